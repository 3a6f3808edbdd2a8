#!/usr/bin/env bash
# Makes .venv with the versions of requirements.txt and the edgefl of wheels/. Needs Python {{ python }} and an index of packages.
#   PYTHON=python{{ python }}   the interpreter
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

found=${PYTHON:-python{{ python }}}
command -v "$found" >/dev/null || found=python3
"$found" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "expected Python 3.11 or newer, found $("$found" --version)" >&2; exit 2; }
"$found" -c 'import sys; sys.exit("%d.%d" % sys.version_info[:2] != "{{ python }}")' || echo "warning: the runs used Python {{ python }}, this is $("$found" --version)" >&2
"$found" -m venv .venv
pip() { .venv/bin/python -m pip --disable-pip-version-check --no-input "$@"; }
{% if torch_index %}
# PyTorch's own index has the build that the runs used ({{ build }}). Settings of pip come first.
if [ "$(uname -sm)" = "Linux {{ machine }}" ] && ! pip config list | grep -qE 'index.url|find.links|no.index'; then
    pip install --no-deps --index-url {{ torch_index }} "$(grep '^torch==' requirements.txt)"
fi
{% endif %}
pip install --no-deps --requirement requirements.txt
pip install --no-deps --no-index wheels/*.whl
pip check || echo "warning: packages disagree, see above" >&2
.venv/bin/python -m edgefl --version
