#!/usr/bin/env bash
# Everything: {{ time }} where the runs were made, and {{ mb }} MB of results. After a break, the same command goes on.
{% if launched %}
#   INVENTORY=hosts.toml   your own hosts, on which to run; without it everything runs on this machine
{% endif %}
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
{% for line in commands %}
{{ line }}
{% endfor %}
"$python" check.py --script reproduce.sh
