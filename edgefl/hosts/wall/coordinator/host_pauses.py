"""Pauses of the coordinator's host: it slept, or the pacing thread stood still."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from edgefl.hosts.wall.coordinator.sessions import Sessions
from edgefl.hosts.wall.coordinator.thread_messages import Noticed
from edgefl.hosts.wall.sleep_watch import SleepWatch
from edgefl.hosts.wall.system import System
from emulator.clock import WallClock
from emulator.fidelity import Fidelity
from emulator.units import NS_PER_S


class HostPauses:
    """Tells the sessions, the verdict and the logic thread about pauses.

    ``fidelity()`` is None before the start, when pauses do no harm.
    """

    def __init__(
        self,
        sessions: Sessions,
        clock: WallClock,
        system: System,
        tell: Callable[[Any], None],
        fidelity: Callable[[], Fidelity | None],
    ) -> None:
        self.sessions, self.clock, self.system = sessions, clock, system
        self.tell, self.fidelity = tell, fidelity
        self._watch = SleepWatch()

    def look_for_sleep(self) -> None:
        """If this host slept, emulated time stood still with it, but not the edges elsewhere."""
        if not self._watch.is_due(self.system.passed_ns()):
            return
        slept_ns = self._watch.look(*self.system.sleep_reading())
        if not slept_ns:
            return
        self.sessions.host_slept(self.system.monotonic_ns())
        self.tell(Noticed(self.clock.now(), "host_slept", {"s": slept_ns / NS_PER_S}))
        if (fidelity := self.fidelity()) is not None:
            fidelity.strain(f"the coordinator's host slept for {slept_ns / NS_PER_S:.0f} s")

    def stood_still(self, began_ns: int, length_ns: int) -> None:
        """Record a gap of the pacing thread."""
        self.sessions.host_stood_still(length_ns, self.system.monotonic_ns())
        if (fidelity := self.fidelity()) is not None:
            at_ns = max(self.clock.at_monotonic(began_ns), 0)
            fidelity.stall(at_ns, length_ns)
            lasted = {"at_s": at_ns / NS_PER_S, "s": length_ns / NS_PER_S}
            self.tell(Noticed(self.clock.now(), "stall", lasted))
