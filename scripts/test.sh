#!/usr/bin/env bash
# Sets everything up and runs the tests; what follows goes on to pytest, for example: scripts/test.sh -k fedavg
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
scripts/setup_env.sh
exec .venv/bin/python -m pytest --quiet --durations=5 "$@"
