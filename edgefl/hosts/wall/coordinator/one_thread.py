"""The logic in the pacing thread: for runs in which nothing is paced and models are small.

Two threads spend about a quarter of the coordinator's CPU on waking each other and on the
interpreter's lock. Without paced links, no piece waits for an item that is handled between two
turns of the pacing thread.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from edgefl.hosts.wall.coordinator.logic import FLUSH_S, Logic
from edgefl.hosts.wall.coordinator.pacing import Pacing
from edgefl.hosts.wall.system import System
from emulator.units import FOREVER, NS_PER_S

SMALL_BYTES = 1_000_000  # of a model; the vectors of a larger one are computed beside the sockets
SLOW_NS = 50_000_000  # an item that takes longer: the logic gets a thread of its own
TURN_NS = 5_000_000  # after so long, the sockets are looked at again


class TurnRequests:
    """What the logic asks of the pacing thread; it takes the place of the mailbox."""

    def __init__(self) -> None:
        self._items: list[Any] = []

    def put(self, *items: Any) -> None:
        self._items.extend(items)

    def take(self) -> list[Any]:
        taken, self._items = self._items, []
        return taken


class OneThread:
    """Handles the logic's items at the end of each turn of the pacing thread.

    ``tell``: puts what the turn has told the logic into its inbox. If the strategy turns out to be
    slow, the logic's own thread starts, and ``split`` is True.
    """

    def __init__(
        self, logic: Logic, pacing: Pacing, tell: Callable[[], None], system: System
    ) -> None:
        self.logic, self.pacing, self.tell, self.system = logic, pacing, tell, system
        self.split = False
        self._requests = TurnRequests()
        self._handles_in: int | None = None  # the thread, while it handles items
        logic.said, logic.wake = self._requests, pacing.said.put
        pacing.turn_ends = self.turn_ends

    def turn_ends(self) -> None:
        """Handle what waits, and do what it asks for."""
        self.tell()
        if self._handles_in is not None:
            return  # in ``sleep``
        self._handles_in = self.system.thread()
        self.pacing.rouse_ns = FOREVER
        try:
            more = self._handle()
        finally:
            self._handles_in = None
        if self.logic.longest_ns > SLOW_NS and not self.logic.ended and self.logic.error is None:
            self._split()
        else:
            now = self.system.monotonic_ns()
            self.pacing.rouse_ns = now if more else now + round(FLUSH_S * NS_PER_S)

    def sleep(self, pause_s: float) -> None:
        """Wait for room on the disk. Sessions go on if the pacing thread itself waits."""
        if self._handles_in != self.system.thread():
            self.system.sleep(pause_s)
            return
        until_s = self.system.monotonic_s() + pause_s
        while (rest_s := until_s - self.system.monotonic_s()) > 0:
            self.pacing.turn(rest_s)

    def _handle(self) -> bool:
        """True: more may wait."""
        until_ns = self.system.monotonic_ns() + TURN_NS
        while self.logic.turn():
            self.pacing.obey(self._requests.take())
            self.tell()
            if self.system.monotonic_ns() > until_ns:
                return True
        return False

    def _split(self) -> None:
        logic, pacing = self.logic, self.pacing
        logic.said, logic.wake = pacing.said, lambda: None
        pacing.turn_ends = self.tell
        self.split = True
        self.system.start(logic)
