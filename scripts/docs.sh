#!/usr/bin/env bash
# Builds the documentation into docs/_build/html. Warnings are errors: a broken link between pages, a missing picture, a key without a
# text. Arguments are passed to Sphinx: scripts/docs.sh -E
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
scripts/setup_env.sh
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1
# An import checks faster than pip whether all packages are installed.
.venv/bin/python -c 'import furo, myst_parser, sphinx, sphinx_design' 2>/dev/null || {
    printf 'docs: installing Sphinx and its extensions\n'
    .venv/bin/python -m pip install --quiet --constraint scripts/constraints.txt --constraint scripts/constraints-docs.txt \
        furo myst-parser sphinx sphinx-design
}
.venv/bin/python -m sphinx --quiet --fail-on-warning --keep-going --jobs auto --builder html docs docs/_build/html "$@"
printf 'docs: open docs/_build/html/index.html\n'
