#!/usr/bin/env bash
# Sets up the environment and runs the tests in two processes. Arguments are passed to pytest: scripts/test.sh -k fedavg
#
#   --fast   leave out the tests that start processes or open sockets (about a minute)
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
scripts/setup_env.sh

words=()
for word in "$@"; do
    case "$word" in
        --fast) words+=(-m "not processes") ;;
        *) words+=("$word") ;;
    esac
done
exec .venv/bin/python -m pytest --quiet --durations=5 --numprocesses=2 --dist=loadfile ${words[@]+"${words[@]}"}
