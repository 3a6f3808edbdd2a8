#!/usr/bin/env bash
# Builds the documentation into docs/_build/html. Warnings are errors: a broken link between pages, a missing picture, a key without a
# text, a cell of a notebook that raises. Arguments are passed to Sphinx: scripts/docs.sh -E
# The generated pages alone, without a build: .venv/bin/python docs/_generate
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
scripts/setup_env.sh docs
.venv/bin/python -m sphinx --quiet --fail-on-warning --keep-going --jobs auto --builder html docs docs/_build/html "$@"
printf 'docs: open docs/_build/html/index.html\n'
