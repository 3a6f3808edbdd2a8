"""The processes of a run on this machine: the warm parent and the coordinators.

They load their code while the launcher still reads the experiment. So this file imports little.
"""

from __future__ import annotations

import resource  # POSIX only, so no module of an edge may import this file
import subprocess

from edgefl.clocks.ipc import Channel
from edgefl.clocks.processes import end_in, spawn
from edgefl.errors import UserError

FILES_PER_EDGE, FILES_SPARE = 1, 64
WARM, COORDINATOR = "edgefl.clocks.wall.fleet", "edgefl.clocks.wall.coordinator.process"
END_PATIENCE_S = 10.0


def room_for_edges(edges: int) -> int:
    """Raise the limit of open files as far as allowed, and return how many ``edges`` leave over.

    UserError if there are too few: at the limit libzmq would spin.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    left = hard - edges * FILES_PER_EDGE - FILES_SPARE
    if left < 0:
        raise UserError(
            f"{edges} edges need {edges * FILES_PER_EDGE + FILES_SPARE} open files, this system"
            f" allows {hard} (ulimit -n)"
        )
    return left


class RunProcesses:
    """Starts the warm parent and the first coordinator at once, and later ones when needed.

    ``control``: the channel to the warm parent. As a context, it ends what it has started.
    """

    def __init__(self) -> None:
        # between each coordinator and two children of the warm parent
        evaluations, jobs = Channel.pair(), Channel.pair()
        self.control, theirs = Channel.pair()
        self.warm = spawn(WARM, [theirs, evaluations[1], jobs[1]])
        self.warmed_up = False
        self._workers = [evaluations[0], jobs[0]]
        self._loading: tuple[Channel, subprocess.Popen[bytes]] | None = self._start()

    def __enter__(self) -> RunProcesses:
        return self

    def __exit__(self, *error: object) -> None:
        self.end()

    def coordinator(self) -> tuple[Channel, subprocess.Popen[bytes]]:
        """Return a coordinator that waits for its StartRun, and the channel to it."""
        found, self._loading = self._loading or self._start(), None
        return found

    def end(self) -> None:
        """End the warm parent, its children, and a coordinator that was not used."""
        self.control.close()
        try:
            # it reads no messages while it loads
            end_in(END_PATIENCE_S if self.warmed_up else 0.0, self.warm)
        finally:
            if self._loading is not None:
                channel, process = self._loading
                self._loading = None
                channel.close()
                end_in(0.0, process)

    def _start(self) -> tuple[Channel, subprocess.Popen[bytes]]:
        ours, theirs = Channel.pair()
        return ours, spawn(COORDINATOR, [theirs, *self._workers], keep=self._workers)
