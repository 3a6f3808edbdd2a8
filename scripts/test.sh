#!/usr/bin/env bash
# Sets up the environment and runs the tests in two processes. Arguments are passed to pytest: scripts/test.sh -k fedavg
#
#   --fast   leave out the tests that start processes, open sockets or are slow (under a minute)
#   --rest   only the tests that the suite leaves out: documentation commands, programs in scripts/, long searches, chaos
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
scripts/setup_env.sh

chosen="not rest"
words=()
for word in "$@"; do
    case "$word" in
        --fast) chosen="not processes and not slow and not rest"; words+=("--hypothesis-profile=fast") ;;
        --rest) chosen="rest" ;;
        *) words+=("$word") ;;
    esac
done
unset PYTHONDONTWRITEBYTECODE  # else each process compiles all tests anew in each run
exec .venv/bin/python -m pytest --quiet --durations=5 --numprocesses=2 --dist=loadfile -m "$chosen" ${words[@]+"${words[@]}"}
