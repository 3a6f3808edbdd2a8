# What the scripts share: which Python, the data sets, and runs that go on after a break.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
python=${EDGEFL_PYTHON:-.venv/bin/python}
command -v "$python" >/dev/null || { echo "no $python: run ./install.sh first, or set EDGEFL_PYTHON to an interpreter that has edgefl" >&2; exit 2; }
export EDGEFL_DATA=${EDGEFL_DATA:-$PWD/data}

edgefl() { "$python" -m edgefl "$@"; }

# run NAME CONFIG OPTIONS...: into results/NAME. What is finished stays; what was broken off goes on.
run() {
    local name=$1 done=results/.$1.finished
    shift
    if [ -f "$done" ]; then
        echo "results/$name: is finished; remove $done to run it again"
        return
    fi
    mkdir -p results
    if [ -f "results/$name/experiment.toml" ]; then
        edgefl run --resume "results/$name"
    else
        edgefl run "$@" --out results
    fi
    touch "$done"
}
{% for name in downloads %}
edgefl data get {{ name }} --dir "$EDGEFL_DATA"
{% endfor %}
