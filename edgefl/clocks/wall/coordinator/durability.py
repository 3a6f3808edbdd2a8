"""What makes a run survive: outputs wait until the journal is durable, and checkpoints.

``record.durability`` says what durable means: "process": the entries are in the operating system's
hands. "power": they survive a loss of power; then another thread waits for the disk, for all
entries at once that have gathered meanwhile, so that neither pacing nor logic waits. With
checkpoints, the journal need not be repeated as a whole.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from threading import Thread
from typing import Any

from edgefl.checkpoints.codec import CannotEncode, Encoded, encode
from edgefl.checkpoints.files import Checkpoints
from edgefl.clocks.wall.coordinator.run_logic import RunLogic
from edgefl.clocks.wall.coordinator.workers import Evaluator
from edgefl.clocks.wall.system import OWN_SYSTEM, System
from edgefl.errors import UserError
from edgefl.record.journal import Journal
from emulator.units import NS_PER_S

Then = Callable[[], None]
REPLAY_S = 2.0  # a checkpoint is taken when the replay of the journal would take longer
READ_BYTE_S = 500_000_000  # how fast a journal is read


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


class CheckpointWriter:
    """Takes a checkpoint between two items when it is time for one.

    ``externals``: what a resumed process makes itself. ``own``: modules of the user's strategies.
    ``say`` gets a line if there can be no checkpoints. The logic thread calls all methods; a
    thread of its own writes the files.
    """

    def __init__(
        self,
        core: RunLogic,
        journal: Journal,
        checkpoints: Checkpoints,
        externals: Mapping[str, object],
        own: Collection[str],
        evaluator: Evaluator | None,
        say: Callable[[str], None],
        sizes: Mapping[str, int] | None = None,
        system: System = OWN_SYSTEM,
    ) -> None:
        """``sizes``: of the files at the checkpoint from which the run goes on."""
        self.core, self.journal, self.checkpoints = core, journal, checkpoints
        self.externals, self.own, self.evaluator = externals, own, evaluator
        self.say, self.system = say, system
        # of the files at the checkpoints that are kept
        self._sizes: deque[Mapping[str, int]] = deque([sizes] if sizes else [], checkpoints.keep)
        if sizes:
            core.record.hold(sizes)
        self._handled_ns = 0  # since the last checkpoint
        self._thread: Thread | None = None
        self._impossible = False

    def handled(self, taken_ns: int, wall_s: float) -> None:
        """An item was handled in ``taken_ns``. Take a checkpoint if it is time."""
        self._handled_ns += taken_ns
        writing = self._thread is not None and self._thread.is_alive()
        if self.replay_s > REPLAY_S and not self._impossible and not writing:
            self.take(wall_s)

    def repeated(self, taken_ns: int) -> None:
        """The journal since the last checkpoint was repeated in ``taken_ns``."""
        self._handled_ns += taken_ns

    @property
    def replay_s(self) -> float:
        """How long a replay since the last checkpoint would take, about."""
        read_s = sum(self.journal.sizes().values()) / READ_BYTE_S
        return self._handled_ns / NS_PER_S + read_s

    def take(self, wall_s: float) -> None:
        """Take a checkpoint of this moment, and let another thread write it."""
        core, record = self.core, self.core.record
        pending = core.evaluations
        core.evaluations = {version: self._whole(job) for version, job in pending.items()}
        try:
            root = {"core": core, "wall_at": record.wall_at}
            encoded = encode(root, self.externals, self.own)
        except CannotEncode as error:
            self._impossible = True
            self.say(f"no checkpoints of this run: {error}; a resumption repeats the whole journal")
            return
        finally:
            core.evaluations = pending
        record.flush()
        number = self.journal.begin_segment()
        self._handled_ns = 0
        meta = {"sizes": (sizes := record.sizes()), "wall_s": wall_s}
        record.hold(self._sizes[0] if self._sizes else sizes)
        self._thread = Thread(
            target=self._write, args=(number, encoded, meta), name="checkpoint", daemon=True
        )
        self.system.start(self._thread)

    def stop(self) -> None:
        """Return when no checkpoint is being written any more."""
        if self._thread is not None:
            self.system.join(self._thread)

    def _whole(self, job: Any) -> Any:
        """An evaluation under way with its weights."""
        weights = None if self.evaluator is None else self.evaluator.snapshot(job.version)
        return job if weights is None else replace(job, weights=weights)

    def _write(self, number: int, encoded: Encoded, meta: dict[str, Any]) -> None:
        try:
            if self.checkpoints.durable:
                self.core.record.sync()
                self.journal.disk.sync_folder(self.journal.directory)  # the segment after it
            self.checkpoints.write(number, encoded, meta)
        except (OSError, UserError) as error:
            self.say(f"checkpoint {number} cannot be written ({error}); the journal goes on")
            return
        self._sizes.append(meta["sizes"])
        self.journal.drop_before(self.checkpoints.numbers()[0])
