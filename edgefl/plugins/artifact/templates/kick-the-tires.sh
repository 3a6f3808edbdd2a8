#!/usr/bin/env bash
# Does it work? The first seconds of each experiment under the virtual clock: {{ kick_time }} where the artifact was made, {{ kick_mb }} MB.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
{% for study in kicked %}
run kick-{{ study.name }} experiments/{{ study.name }}/kick.toml --clock virtual
{% endfor %}
"$python" check.py --script kick-the-tires.sh
