"""How the pacing thread sleeps between two turns."""

from __future__ import annotations

from collections.abc import Callable

from edgefl.hosts.wall.coordinator.gaps import Gaps
from edgefl.hosts.wall.mailbox import Mailbox
from edgefl.hosts.wall.system import System
from edgefl.hosts.wall.wire import Wire
from emulator.units import NS_PER_S


class Rests:
    """Sleeps until the socket or the mailbox has something, and tells ``gaps`` of each sleep."""

    def __init__(self, socket: Wire, said: Mailbox, system: System, gaps: Gaps) -> None:
        self.socket, self.said, self.system, self.gaps = socket, said, system, gaps
        self._began_ns = 0  # when the last turn began

    def sleep(self, timeout_s: Callable[[], float], grain_s: float) -> bool:
        """Sleep until there is work; True: the mailbox has something.

        ``timeout_s()``: the time (s) from now until something is due. ``grain_s``: passes between
        two turns unless something is due, so that one turn handles several messages.
        """
        passed_s = (self.system.monotonic_ns() - self._began_ns) / NS_PER_S
        rest_s = min(grain_s - passed_s, timeout_s()) if grain_s > passed_s else 0.0
        if rest_s > 0:
            self._falls_asleep(rest_s)
            self.system.sleep(rest_s)
            self.gaps.wakes(self.system.monotonic_ns())
        until_s = timeout_s()
        self._falls_asleep(until_s)
        woken = self.socket.wait(self.said.fd, until_s)
        self._began_ns = self.system.monotonic_ns()
        self.gaps.wakes(self._began_ns)
        return woken

    def _falls_asleep(self, most_s: float) -> None:
        now = self.system.monotonic_ns()
        self.gaps.sleeps(now, now + round(most_s * NS_PER_S))
