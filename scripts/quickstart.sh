#!/usr/bin/env bash
# Sets everything up and runs the main job; what follows goes on to `edgefl run`, for example: scripts/quickstart.sh --clock virtual
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
scripts/setup_env.sh
exec .venv/bin/edgefl run configs/quickstart.toml "$@"
