"""Runs on many machines: `edgefl launch` and `edgefl hosts`. Start at ``command``.

On the machine that launches:

- ``command``, ``hosts_command``: the commands
- ``inventory``: the TOML file with the hosts
- ``launch_plan``: an experiment's edges on these hosts, and what each host gets; no I/O
- ``connections``: commands and files on a host, in a network namespace, or here; ``ssh``: by ssh;
  ``opening`` opens them
- ``survey``: what a host is and can do; ``host_probe`` is the program that it runs there
- ``wheels``, ``installer``: edgefl on a host
- ``host_data``: the shares of the data that a host's edges need
- ``host_session``: one host during a run, a coordinator elsewhere, all hosts and their logs

On a host:

- ``agent_messages``: what both sides agree on
- ``agent``: the process that looks after a host's edges; ``supervisor``: its decisions, no I/O
- ``edge_process``: one edge
"""
