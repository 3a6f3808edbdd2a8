"""The exit statuses of all commands.

From 64 on they are those of sysexits.h. systemd knows their names, for example TEMPFAIL.
"""

from __future__ import annotations

OVER = 0  # done; for an edge: the run is over, or a signal ended it
FAILED = 1  # a run or a host failed, or a bug
BAD_INPUT = 2  # one line says what to correct; the same command fails again
NOT_MET = 3  # a condition of --require, or a host that does not fit
NOT_STARTED = 71  # EX_OSERR: the system refused a process
NO_ANSWER = 75  # EX_TEMPFAIL: no coordinator answers; a later attempt may succeed
REFUSED = 77  # EX_NOPERM: the coordinator does not admit this edge
INTERRUPTED = 130  # 128 + SIGINT: Ctrl-C
