#!/usr/bin/env bash
# Creates or reuses .venv at the project's root and installs the project with the versions of constraints.txt.
# Does nothing and downloads nothing while pyproject.toml and constraints.txt are unchanged.
#
#   scripts/setup_env.sh                     with everything that the tests need (the extras lab, launch and dev)
#   scripts/setup_env.sh lab,launch,live     with these extras of pyproject.toml, and those that .venv has already
#
#   PYTHON=python3.12         the interpreter for a new .venv (3.11 or newer; default: the first one found)
#   EDGEFL_TORCH_INDEX=URL    the package index for torch; empty: the index of pip's own settings.
#                             If unset, on x86 Linux, and without an index in pip's settings: PyTorch's CPU builds,
#                             because the default build brings gigabytes of CUDA libraries, which only a GPU needs.
#                             On 64-bit ARM the pinned version is a CPU build on every index.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
constraints="$root/scripts/constraints.txt"
venv="$root/.venv"
venv_python="$venv/bin/python"
stamp="$venv/.edgefl-setup"  # its first line: from what .venv was made; its second: with which extras
extras=${1:-lab,launch,dev}
[[ "$extras" =~ ^[a-z]+(,[a-z]+)*$ ]] || { echo "setup: $extras: expected extras, such as lab,launch" >&2; exit 2; }
for extra in ${extras//,/ }; do  # pip only warns about one that does not exist
    grep -q "^$extra = \[" "$root/pyproject.toml" || { echo "setup: $extra: no such extra in pyproject.toml" >&2; exit 2; }
done
[ "$(uname -m)" = aarch64 ] && other='!=' || other='=='  # how the pins of other machines are marked
pins=$(sed -e '/^#/d' -e "/; platform_machine $other \"aarch64\"\$/d" -e 's/;.*//' "$constraints")
torch_version=$(sed -n 's/^torch==//p' <<<"$pins")
torch_cpu_index="https://download.pytorch.org/whl/cpu"
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1

say() { printf 'setup: %s\n' "$*"; }
fail() { printf 'setup: %s\n' "$*" >&2; exit 1; }

new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; }

find_python() {  # prints an interpreter outside any virtual environment, even if one is active
    local candidate
    for candidate in ${PYTHON:+"$PYTHON"} python3 python3.13 python3.12 python3.11; do
        if new_enough "$candidate"; then
            "$candidate" -c 'import sys; print(getattr(sys, "_base_executable", None) or sys.executable)'
            return
        fi
        [ "$candidate" != "${PYTHON:-}" ] || fail "PYTHON=$PYTHON is not a Python of version 3.11 or newer"
    done
    fail "no Python 3.11 or newer found; install one, or name it: PYTHON=/path/to/python3 $0"
}

has_torch() {  # true if interpreter $1 has torch of the pinned version, in any build
    "$1" - "$torch_version" >/dev/null 2>&1 <<'PYTHON'
import sys
from importlib.metadata import version
sys.exit(version("torch").split("+")[0] != sys.argv[1])
PYTHON
}

make_venv() {
    local python options=()
    python=$(find_python)
    if has_torch "$python"; then
        say "$python has torch $torch_version already: .venv will share its packages"
        options=(--system-site-packages)
    fi
    if [ -e "$venv" ]; then
        say "the existing .venv does not work (moved, or an older Python): creating it again"
        options+=(--clear)
    fi
    say "creating .venv with $python"
    "$python" -m venv ${options[@]+"${options[@]}"} "$venv" || fail "$python cannot create a virtual environment (on Debian and Ubuntu: apt install python3-venv)"
}

fingerprint() {  # prints a hash of everything that the installation depends on
    "$venv_python" - "$root/pyproject.toml" "$constraints" "$root" <<'PYTHON'
import hashlib, pathlib, sys
*files, root = sys.argv[1:]
parts = [pathlib.Path(file).read_bytes() for file in files] + [root.encode(), sys.version.encode()]
print(hashlib.sha256(b"\0".join(parts)).hexdigest())
PYTHON
}

missing_packages() {  # prints the pinned packages that .venv lacks or has in another version
    "$venv_python" - $pins <<'PYTHON'
import sys
from importlib.metadata import PackageNotFoundError, version
for pin in sys.argv[1:]:
    name, _, pinned = pin.partition("==")
    try:
        found = version(name)
    except PackageNotFoundError:
        found = "none"
    if found.split("+")[0] != pinned:
        print(name)
PYTHON
}

torch_index() {  # prints the index for torch; empty: pip's own settings decide
    local settings
    if [ -n "${EDGEFL_TORCH_INDEX+set}" ]; then
        printf '%s' "$EDGEFL_TORCH_INDEX"
    elif [ "$(uname -sm)" = "Linux x86_64" ]; then
        settings=$("$venv_python" -m pip config list)
        grep -qE 'index.url|find.links|no.index' <<<"$settings" || printf '%s' "$torch_cpu_index"
    fi
}

pip_install() {  # shows pip's progress on a terminal, nothing in logs
    local options=()
    [ -t 1 ] || options=(--quiet)
    [[ ",$extras," != *,docs,* ]] || options+=(--constraint "$root/scripts/constraints-docs.txt")
    "$venv_python" -m pip install ${options[@]+"${options[@]}"} --constraint "$constraints" "$@"
}

install_torch() {
    local index
    index=$(torch_index)
    [ -n "$index" ] || return 0  # it is installed with the project
    say "torch comes from $index"
    PIP_INDEX_URL=$index pip_install --no-deps "torch==$torch_version" && return
    [ -z "${EDGEFL_TORCH_INDEX:-}" ] || fail "no torch $torch_version from EDGEFL_TORCH_INDEX=$index"
    say "no torch $torch_version there; using the default build, which on x86 Linux brings about 3 GB of CUDA libraries"
}

install() {
    local missing count
    missing=$(missing_packages)
    count=$(grep -c . <<<"$missing" || true)
    if [ "$count" -gt 0 ]; then
        if [[ ",$extras," = *,dev,* ]]; then
            say "about to download $count packages: $(tr '\n' ' ' <<<"$missing")"
        else
            say "about to download the packages of the extras $extras"
        fi
        if grep -qx torch <<<"$missing"; then
            say "roughly 0.2 GB for torch $torch_version (a CPU build; with CUDA 3 GB) and up to 0.3 GB for the other packages"
            install_torch
        else
            say "roughly 0.3 GB at most; torch $torch_version is already installed"
        fi
    fi
    pip_install setuptools  # the build runs in .venv too, so that its version is pinned
    # The name of this project before edgefl-testbed, and projects of others with packages of the same names.
    "$venv_python" -m pip uninstall --quiet --yes edgefl emulator 2>/dev/null
    pip_install --no-build-isolation --editable "${root}[$extras]"
    "$venv_python" -c 'import torch' || fail "the installed torch does not import; see docs/how-to/install.md"
}

new_enough "$venv_python" || make_venv
"$venv_python" -m pip --version >/dev/null 2>&1 || "$venv_python" -m ensurepip >/dev/null || fail "no pip in .venv, and ensurepip cannot install it"
made_from=$(fingerprint)
{ read -r made_before && read -r had; } 2>/dev/null <"$stamp" || { made_before="" had=""; }
for extra in ${had//,/ }; do  # the tests' environment keeps what it has when the quickstart runs in it
    [[ ",$extras," = *",$extra,"* ]] || extras+=",$extra"
done
if [ "$made_before" != "$made_from" ] || [ "${#extras}" != "${#had}" ]; then
    rm -f "$stamp"
    install
    printf '%s\n' "$(fingerprint)" "$extras" >"$stamp"
    say "done: $venv"
fi
