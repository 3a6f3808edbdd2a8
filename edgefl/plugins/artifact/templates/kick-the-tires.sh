#!/usr/bin/env bash
# Does it work? The first seconds of each experiment under the virtual clock: {{ kick_time }} where the artifact was made, {{ kick_mb }} MB.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
. ./common.sh
{% for name in downloads %}
edgefl data get {{ name }} --dir "$EDGEFL_DATA"
{% endfor %}
{% for study in kicked %}
run kick-{{ study.name }} experiments/{{ study.name }}/kick.toml --clock virtual
{% endfor %}
"$python" check.py --script kick-the-tires.sh
