#!/usr/bin/env bash
# Runs the quick tests with the lowest versions that pyproject.toml allows of the packages that it names, in an environment
# of its own, which is removed at the end. Arguments are passed to pytest. It downloads about 0.6 GB and takes five minutes.
#
#   PYTHON=python3.11   the interpreter: the oldest packages have no builds for newer ones (default: python3)
#
# torch has the version of constraints.txt: older builds may bring gigabytes. Not tried: the extras ray, datasets and flower.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1
folder=$(mktemp -d -t edgefl-lowest-XXXXXX)
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3}" -m venv "$folder/venv"
lowest="$folder/venv/bin"
torch_index=()  # the CPU build, unless pip's own settings say where packages come from
grep -qE 'index.url|find.links|no.index' <<<"$("$lowest/pip" config list)" || torch_index=(--index-url https://download.pytorch.org/whl/cpu)
"$lowest/pip" install --quiet --no-deps --constraint "$root/scripts/constraints.txt" ${torch_index[@]+"${torch_index[@]}"} torch
"$lowest/pip" install --quiet uv
"$lowest/python" -c 'from importlib.metadata import version; print("torch==" + version("torch").split("+")[0])' >"$folder/override"
extras=()
for extra in lab text optuna launch live discover export mlflow dev; do extras+=(--extra "$extra"); done
"$lowest/uv" pip install --quiet --python "$lowest/python" --resolution lowest-direct --override "$folder/override" \
    --requirement "$root/pyproject.toml" "${extras[@]}"
"$lowest/pip" uninstall --quiet --yes tensorflow tf-nightly  # of the oldest tensorboard; torch would load it
"$lowest/pip" install --quiet --no-deps --no-build-isolation --editable "$root"
cd "$root"
"$lowest/python" -m pytest --quiet --numprocesses=2 --dist=loadfile -m "not processes and not slow and not rest" "$@"
