#!/usr/bin/env bash
# Sets up this machine and the hosts of an inventory, and runs an experiment on them:
#
#   scripts/launch.sh INVENTORY CONFIG [KEY=VALUE...] [options of edgefl launch]
#
#   WHEELS=DIR   a folder of `edgefl hosts wheels`, for hosts without internet
#   INSTALL=no   the hosts have edgefl already
# The exit status is that of the run.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
[ $# -ge 2 ] || { echo "usage: scripts/launch.sh INVENTORY CONFIG [KEY=VALUE...]" >&2; exit 2; }
inventory=$1
"$root/scripts/setup_env.sh"
edgefl="$root/.venv/bin/edgefl"
if [ "${INSTALL:-yes}" != no ]; then
    "$edgefl" hosts install "$inventory" ${WHEELS:+--wheels "$WHEELS"}
fi
exec "$edgefl" launch "$@"
