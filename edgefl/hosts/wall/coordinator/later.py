"""Work that may wait, in a thread of its own: compressing tables that have grown."""

from __future__ import annotations

from collections.abc import Callable
from threading import Thread

from edgefl.hosts.wall.system import OWN_SYSTEM, System


class LaterThread:
    """Calls what it gets, one after the other. The thread starts with the first call."""

    def __init__(self, system: System = OWN_SYSTEM) -> None:
        self.system, self._waiting = system, system.inbox()
        self._thread: Thread | None = None

    def __call__(self, work: Callable[[], None]) -> None:
        self._waiting.put(work)
        if self._thread is None:
            self._thread = Thread(target=self._run, name="later", daemon=True)
            self.system.start(self._thread)

    def stop(self) -> None:
        """Return when all is done."""
        if self._thread is not None:
            self._waiting.put(None)
            self.system.join(self._thread)
            self._thread = None

    def _run(self) -> None:
        while (work := self._waiting.get()) is not None:
            work()
