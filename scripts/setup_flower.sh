#!/usr/bin/env bash
# Creates or reuses .venv-flower: the packages of .venv, but those of constraints-flower.txt before them, and edgefl.
# Does nothing and downloads nothing while these packages stay the same. About 130 MB are downloaded.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
constraints="$root/scripts/constraints-flower.txt"
venv="$root/.venv-flower"
stamp="$venv/.edgefl-setup"
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1

"$root/scripts/setup_env.sh"
wanted=$(sha256sum "$constraints" "$root/.venv/.edgefl-setup" | cut -c 1-64)
if [ "$(cat "$stamp" 2>/dev/null || true)" = "$wanted" ]; then
    exit 0
fi
printf 'setup: creating .venv-flower\n'
python=$("$root/.venv/bin/python" -c 'import sys; print(sys._base_executable)')
"$python" -m venv --clear "$venv"
# Packages that .venv has, too, come from there. Its own editable install of edgefl is found in the same way.
"$venv/bin/python" - "$root/.venv" <<'PYTHON'
import sys, sysconfig
shared = sysconfig.get_path("purelib", vars={"base": sys.argv[1], "platbase": sys.argv[1]})
with open(f"{sysconfig.get_path('purelib')}/shared.pth", "w", encoding="utf-8") as file:
    file.write(f"import site; site.addsitedir({shared!r})\n")
PYTHON
# The list is whole, so nothing is resolved. A new venv has an old setuptools of its own.
"$venv/bin/python" -m pip install --quiet --no-deps --requirement "$constraints" "$(grep '^setuptools==' "$root/scripts/constraints.txt")"
"$venv/bin/python" -m pip install --quiet --no-deps --no-build-isolation --editable "$root"
"$venv/bin/python" -c 'import flwr, flwr_datasets, torch' || { printf 'setup: Flower does not import in .venv-flower\n' >&2; exit 1; }
printf '%s\n' "$wanted" >"$stamp"
printf 'setup: done: %s\n' "$venv"
