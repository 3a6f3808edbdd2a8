#!/usr/bin/env bash
# Sets up the environment and runs configs/quickstart.toml. Arguments are passed to `edgefl run`: scripts/quickstart.sh --clock virtual
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
scripts/setup_env.sh lab,launch,live
exec .venv/bin/edgefl run configs/quickstart.toml "$@"
