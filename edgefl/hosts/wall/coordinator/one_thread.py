"""The logic in the pacing thread: for runs in which nothing is paced and models are small.

Two threads spend about a quarter of the coordinator's CPU on waking each other and on the
interpreter's lock. Without paced links, no piece waits for an item that is handled between two
turns of the pacing thread. While the strategy or the disk is slow, the logic has a thread of its
own all the same, so that sessions go on.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Thread
from typing import Any

from edgefl.hosts.wall.coordinator.logic import FLUSH_S, Logic
from edgefl.hosts.wall.coordinator.pacing import Pacing
from edgefl.hosts.wall.system import System
from emulator.units import FOREVER, NS_PER_S

SMALL_BYTES = 1_000_000  # of a model; the vectors of a larger one are computed beside the sockets
TURN_NS = 5_000_000  # after so long, the sockets are looked at again
# The logic's own thread ends when nothing was slow for so long: 200 times the least slow item, so a
# slow item that comes now and then takes at most 0.5 % of the pacing thread's time. Each further
# thread has to wait twice as long as the one before. So a strategy that is slow again and again
# delays the sockets a few times in a run, and not once in each of these spans.
QUIET_NS = 10 * NS_PER_S


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

    ``tell``: puts what the turn has told the logic into its inbox. ``thread``: the logic's own
    thread, while something is slow. It and the pacing thread never handle items at the same time:
    it starts after the pacing thread's last item, and the pacing thread goes on after its end.
    """

    def __init__(
        self, logic: Logic, pacing: Pacing, tell: Callable[[], None], system: System
    ) -> None:
        self.logic, self.pacing, self.tell, self.system = logic, pacing, tell, system
        self.thread: Thread | None = None
        self._quiet_ns = QUIET_NS
        self._thread_ends = False  # set by the logic's own thread: it handles nothing more
        self._requests = TurnRequests()
        self._handles_in: int | None = None  # the thread, while it handles items
        logic.said, logic.wake = self._requests, pacing.said.put
        pacing.turn_ends = self.turn_ends

    def turn_ends(self) -> None:
        """Handle what waits, and do what it asks for."""
        self.tell()
        if self.thread is not None and not self._taken_back():
            return  # the logic's own thread handles it
        if self._handles_in is not None:
            return  # in ``sleep``
        self._handles_in = self.system.thread()
        self.pacing.rouse_ns = FOREVER
        try:
            more = self._handle()
        finally:
            self._handles_in = None
        slow = self.logic.slow_at_ns is not None
        if slow and not self.logic.ended and self.logic.error is None:
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

    # ------------------------------------------------------------------ the logic's own thread
    def _split(self) -> None:
        self.logic.said, self.logic.wake = self.pacing.said, lambda: None
        self._thread_ends = False
        self.thread = Thread(target=self._run, name="logic", daemon=True)
        self.system.start(self.thread)

    def _run(self) -> None:
        self.logic.run(self._stays)
        self._thread_ends = True
        self.pacing.said.put()  # wakes the pacing thread

    def _stays(self) -> bool:
        """Whether something was slow not long ago."""
        slow_at_ns = self.logic.slow_at_ns
        assert slow_at_ns is not None  # the thread was started because of it
        return self.system.monotonic_ns() - slow_at_ns < self._quiet_ns

    def _taken_back(self) -> bool:
        """Take the logic back into this thread if its own has ended; return whether it has."""
        if not self._thread_ends:
            return False
        self.thread, self.logic.slow_at_ns = None, None
        self._quiet_ns *= 2
        # before the inbox is read: from now on, an item of another thread wakes this one
        self.logic.said, self.logic.wake = self._requests, self.pacing.said.put
        self.pacing.obey(self.pacing.said.take())  # what the thread has asked for last
        self.tell()
        return True
