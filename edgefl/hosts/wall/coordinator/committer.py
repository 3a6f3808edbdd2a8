"""What leaves the process waits until the journal is durable.

``record.durability`` says what that means: "process": the entries are in the operating system's
hands. "power": they survive a loss of power; then another thread waits for the disk, for all
entries at once that have gathered meanwhile, so that neither pacing nor logic waits.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from threading import Thread

from edgefl.hosts.wall.system import OWN_SYSTEM, System
from edgefl.record.journal import Journal

Then = Callable[[], None]


class Committer:
    """Calls what waits for the journal, in order. None: there is no journal to wait for.

    ``failed`` is called in the committer's thread if the disk refuses, or if a call fails. After
    that nothing is called, and ``commit`` raises the error.
    """

    def __init__(
        self,
        journal: Journal | None,
        failed: Callable[[BaseException], None] = lambda error: None,
        at_start: Callable[[], object] = lambda: None,
        system: System = OWN_SYSTEM,
    ) -> None:
        """``at_start`` is called in the committer's thread."""
        self.journal, self.failed, self.at_start, self.system = journal, failed, at_start, system
        self.power = journal is not None and journal.power
        self.error: BaseException | None = None
        self._waiting: deque[Then] = deque()
        self._bell = system.inbox()  # wakes the thread: True, or False to end it
        self._thread: Thread | None = None

    def start(self) -> None:
        """Start the thread, if one is needed."""
        if self.power:
            self._thread = Thread(target=self._run, name="committer", daemon=True)
            self.system.start(self._thread)

    def commit(self, then: Then) -> None:
        """Call ``then`` once all entries so far are durable.

        The thread that writes the journal calls this. UserError if the disk refuses.
        """
        if self.error is not None:
            raise self.error
        if self.journal is not None:
            self.journal.flush()
        if self.power:
            self._waiting.append(then)
            self._bell.put(True)
        else:
            then()

    def sync(self) -> None:
        """Make all that was flushed so far durable, then call what waited for it.

        The thread does this. A host without threads calls it itself.
        """
        assert self.journal is not None
        ready = len(self._waiting)  # what is added meanwhile waits for the next sync
        if ready and self.error is None:
            try:
                self.journal.sync()
            except BaseException as error:
                self.error = error
                self.failed(error)
                return
            try:
                for _ in range(ready):
                    self._waiting.popleft()()
            except Exception as error:  # a bug: without this the run would wait for ever
                self.error = error
                self.failed(error)

    def stop(self) -> None:
        """Return when nothing waits any more, and the thread has ended."""
        if self._thread is not None:
            self._bell.put(False)
            self.system.join(self._thread)
            self._thread = None

    def _run(self) -> None:
        self.at_start()
        while self._bell.get():
            self.sync()
        self.sync()
