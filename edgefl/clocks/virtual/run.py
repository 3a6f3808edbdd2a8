"""Run one strategy of an experiment under the virtual clock, with checkpoints to go on from."""

from __future__ import annotations

import gc
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgefl.checkpoints.codec import CannotDecode, CannotEncode, decode, encode
from edgefl.checkpoints.files import Checkpoint, Checkpoints
from edgefl.clocks.processes import keep_freed_memory
from edgefl.clocks.room import WaitForRoom
from edgefl.clocks.setup.learning import Learning
from edgefl.clocks.setup.network import latencies, network
from edgefl.clocks.setup.plan import fidelity, options, refuse_native
from edgefl.clocks.setup.resumption import digest_facts
from edgefl.clocks.setup.rundir import OpenRun, RunSoFar, externals, lengthenings
from edgefl.clocks.virtual.host import DeferredEdges, EndRun, VirtualHost
from edgefl.clocks.virtual.pool.engine import Engine, InProcessEngine
from edgefl.config.faults import revives, schedule
from edgefl.disk import Disk, OwnDisk, PatientDisk
from edgefl.errors import UserError
from edgefl.exchange.fault_lives import FaultLives
from edgefl.exchange.machine import Exchange, Flow
from edgefl.record.files import CHECKPOINTS, METRICS
from edgefl.record.tables import lost_rows
from edgefl.results.run_files import title
from edgefl.results.summary import INTERRUPTED
from edgefl.strategies.base.catalog import own_modules
from edgefl.streams import Streams
from emulator.fidelity import Fidelity
from emulator.links.network import Network
from emulator.units import to_ns

EVERY_S = 300.0  # wall time from the end of a checkpoint to the next one
MOST_SHARE = 0.05  # of the wall time for checkpoints; if one takes long, the next one is later


@dataclass(frozen=True, slots=True)
class Saving:
    """When a run is saved: every ``every_s`` seconds of wall time, or every ``every_steps`` steps.

    ``say`` gets lines for the user.
    """

    every_s: float = EVERY_S
    every_steps: int | None = None
    say: Callable[[str], None] = print


class SavedRun:
    """The checkpoints of the run in ``directory``.

    A checkpoint holds the host with all that it refers to: coordinator, strategy, edges, network,
    planned events, faults. What the process builds itself (data, files, engine, config) is not part
    of it. A run that goes on from a checkpoint writes the same bytes as an unbroken one.
    """

    def __init__(self, directory: Path, saving: Saving) -> None:
        self.directory, self.saving = directory, saving
        self.files = Checkpoints(OwnDisk(), directory / CHECKPOINTS)
        self.found: Checkpoint | None = None
        self._sizes: deque[dict[str, int]] = deque(maxlen=self.files.keep)
        self._number = 0
        self._steps = 0
        self._possible = True
        self._keeps_state = False  # when the run has ended
        self._due_s = time.monotonic() + saving.every_s

    def find(self) -> None:
        """Look for the newest checkpoint, to go on from there."""
        self.found = self.files.latest(self.saving.say)
        while self.found is not None and (lost := self._lost_rows(self.found)):
            self.tell(f"checkpoint {self.found.number} cannot be used: {lost}")
            self.found = self.files.latest(self.saving.say, before=self.found.number)
        if self.found is None:
            self.tell("has no checkpoint: it begins anew")
        else:
            self._number = self.found.number

    @property
    def so_far(self) -> RunSoFar | None:
        """How far the files are at the checkpoint that was found; None: the run begins anew."""
        if self.found is None:
            return None
        return RunSoFar.of(self.found.meta)

    @property
    def groups_so_far(self) -> dict[str, Any] | None:
        """How tasks were trained together until the checkpoint that was found."""
        return None if self.found is None else self.found.meta.get("groups")

    def use(self, learned: Learning, index: int, run: OpenRun, pool: Engine) -> None:
        """Set what this process has built, which checkpoints only name."""
        self._groups, self._keeps_state = pool.groups, run.experiment.record.keep_state
        self.run = run
        strategy = run.coordinator.strategy
        self._own = own_modules(type(strategy), type(strategy.selector))
        more = {"options of the rule": learned.rule(index).options, "learned": learned}
        self._externals: dict[str, object] = {**externals(run), **more, "engine": pool}

    def load(self) -> VirtualHost:
        """Return the host of the checkpoint that was found. UserError if it cannot be used."""
        assert self.found is not None
        try:
            host = decode(self.found.encoded, self._externals, self._own)
        except CannotDecode as reason:
            raise UserError(
                f"{self.files.folder}: checkpoint {self.found.number} {reason}"
            ) from reason
        if not isinstance(host, VirtualHost):
            raise UserError(f"{self.files.folder}: checkpoint {self.found.number} has no run")
        self._hold(self.found.meta["sizes"])
        self.run.coordinator, self.found = host.coordinator, None  # its arrays are not needed
        host.coordinator.lengthen()
        return host

    def now_and_then(self, host: VirtualHost) -> None:
        """Save the run if it is time. Call this after every step."""
        if self.saving.every_steps is None:
            due = time.monotonic() >= self._due_s
        else:
            self._steps += 1
            due = self._steps % self.saving.every_steps == 0
        if due or (self._keeps_state and host.ends_next):
            self.save(host)

    def save(self, host: VirtualHost) -> None:
        """Write a checkpoint. The host must be between two steps."""
        if self._possible:
            began_s = time.monotonic()
            self._write(host)
            ended_s = time.monotonic()
            self._due_s = ended_s + max(self.saving.every_s, (ended_s - began_s) / MOST_SHARE)

    def _write(self, host: VirtualHost) -> None:
        try:
            encoded = encode(host, self._externals, self._own, copy=False)
        except CannotEncode as reason:
            self._possible = False
            self.tell(f"no checkpoints ({reason}): if this run is broken off, it begins anew")
            return
        self.run.record.flush()  # a checkpoint counts only rows that are in the files
        self._number += 1
        meta: dict[str, Any] = {"sizes": (sizes := self.run.record.sizes())}
        meta["wall_s"] = self.run.wall_s
        if self._groups is not None:
            meta["groups"] = self._groups.section()
        try:
            self.files.write(self._number, encoded, meta)
            self._hold(sizes)
        except OSError as error:  # the run goes on, and the checkpoint before is still there
            place = error.filename or self.files.folder
            self.tell(f"{place}: no checkpoint was written ({error.strerror})")

    def _hold(self, sizes: dict[str, int]) -> None:
        """Keep the parts of tables that the checkpoints need which are kept, too."""
        self._sizes.append(sizes)
        self.run.record.hold(self._sizes[0])

    def clear(self) -> None:
        """Remove all checkpoints: the run has come to its end."""
        self.files.clear()
        with suppress(OSError):  # not empty, or missing
            self.files.folder.rmdir()

    def _lost_rows(self, found: Checkpoint) -> str:
        try:
            return lost_rows(self.directory, self.files.disk, RunSoFar.of(found.meta).sizes)
        except CannotDecode as reason:
            return f"it {reason}"

    def tell(self, line: str) -> None:
        """Say a line about this run."""
        self.saving.say(f"{title(self.directory)}: {line}")


Progress = Callable[[int, OpenRun], None]
Scored = Callable[[], str | None]
Play = Callable[[Callable[[int], None]], None]  # gets what is called after each step


class DelayedInterrupt:
    """Delays Ctrl-C until the current step is done, so that each event is fully recorded.

    A second Ctrl-C does not wait.
    """

    def __init__(self) -> None:
        self.asked = False

    def __enter__(self) -> DelayedInterrupt:
        # only the main thread may set a handler, and only it is interrupted
        self._main = threading.current_thread() is threading.main_thread()
        if self._main:
            self._former = signal.signal(signal.SIGINT, self._ask)
        return self

    def __exit__(self, *error: object) -> None:
        if self._main:
            signal.signal(signal.SIGINT, self._former)

    def _ask(self, number: int, frame: Any) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True


def _host(learned: Learning, index: int, run: OpenRun, pool: Engine, links: Network) -> VirtualHost:
    experiment, samples = learned.experiment, list(learned.samples)
    exchange: Exchange[Flow] = Exchange(links, latencies(experiment))
    return VirtualHost(
        run.coordinator,
        DeferredEdges(learned, index),
        exchange,
        pool,
        schedule(experiment.faults, samples, Streams(experiment.seed)),
        FaultLives(samples, revives(experiment.faults)),
        to_ns(experiment.network.liveness_s * experiment.chosen_speed),
    )


@contextmanager
def _no_collection() -> Iterator[None]:
    """Hold the garbage collector back: a run's many objects stay, so it would find nothing."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


@_no_collection()
def _opened(
    learned: Learning,
    index: int,
    saved: SavedRun,
    pool: Engine,
    links: Network,
    book: Fidelity,
    disk: Disk,
) -> tuple[OpenRun, VirtualHost, Play]:
    """Open the run: at its beginning, or at the checkpoint that ``saved`` has found."""
    weights, layout, samples = learned.initial_weights(), learned.layout, learned.samples
    directory, done = saved.directory, saved.so_far
    run = OpenRun(
        learned.experiment, index, directory, learned.base, weights, layout, samples, disk, done
    )
    saved.use(learned, index, run, pool)
    if done is not None:
        host = saved.load()
        return run, host, host.go_on
    host = _host(learned, index, run, pool, links)
    digests = digest_facts(learned.data_digest(), learned.frozen_digest())
    facts = {**digests, **learned.device_facts(), **lengthenings(directory)}
    run.begin("virtual", book, facts)
    learned.keep_beside(directory)
    return run, host, host.run


def run_virtual(
    learned: Learning,
    index: int,
    directory: Path,
    progress: Progress | None = None,
    pool: Engine | None = None,
    resume: bool = False,
    saving: Saving | None = None,
    scored: Scored | None = None,
) -> dict[str, Any]:
    """Run strategy ``index``, and return the summary.

    ``progress(now_ns, run)`` is called after every step. ``pool`` None: train in this process.
    ``resume``: go on with the run in ``directory`` at its newest checkpoint; it begins anew if it
    has none. ``saving``: when checkpoints are written. ``scored()`` is called when metrics.csv has
    new rows; the run ends for the reason that it returns. With it, each step waits for the
    evaluations, so that the end does not depend on the workers.
    """
    experiment, pool = learned.experiment, pool or InProcessEngine(learned)
    refuse_native(experiment)
    slots = options(experiment.strategies[index], learned.base)[0].schedules_slots
    # first: what is wrong with a link is told before anything is written
    links = network(experiment, learned.base, slots, at_first_use=True)
    keep_freed_memory()
    book, saved = fidelity(experiment), SavedRun(directory, saving or Saving())
    learned.engine(index)  # refuses one that the experiment asks for and cannot have
    if resume:
        saved.find()
    if pool.groups is not None:
        pool.groups.begin(saved.tell, saved.groups_so_far)
    interrupt, say = DelayedInterrupt(), saved.saving.say
    room = WaitForRoom(say, time.monotonic, time.sleep, lambda: interrupt.asked)
    disk = PatientDisk(OwnDisk(), room)
    run, host, play = _opened(learned, index, saved, pool, links, book, disk)
    size = 0  # of metrics.csv when ``scored`` was called

    def end_by_scores() -> str | None:
        nonlocal size
        if scored is None:
            return None
        host.record(wait=True)
        before, size = size, run.record.size_of(METRICS)
        if size == before:
            return None
        run.record.flush()
        return scored()

    def after_step(now: int) -> None:
        run.flush_now_and_then()
        if progress is not None:
            progress(now, run)
        reason = end_by_scores()
        if interrupt.asked or reason == INTERRUPTED:
            saved.save(host)
            raise KeyboardInterrupt
        if reason is not None:
            raise EndRun(reason)
        saved.now_and_then(host)

    try:
        # objects that exist now stay: the garbage collector need not visit them again
        gc.freeze()
        with interrupt:
            play(after_step)
        end_by_scores()  # of the last model; what it returns comes too late
    finally:
        gc.unfreeze()
        pool.clear()  # tasks that are not done at the end
        run.record.flush()  # if a bug ends the run here, the user can read what led to it
    return _ended(run, host, saved, pool, book, learned.engine(index))


def _ended(
    run: OpenRun,
    host: VirtualHost,
    saved: SavedRun,
    pool: Engine,
    book: Fidelity,
    engine: str,
) -> dict[str, Any]:
    """Write the remaining files, drop what only a run that goes on needs; return the summary."""
    if not run.goes_on:
        run.record.hold(None)
    wall_s = run.wall_s
    more: dict[str, Any] = {
        "evaluation_s": round(host.evaluation_s, 3),
        "evaluation_share": round(host.evaluation_s / (wall_s * pool.workers), 3),
        "engine": engine,
    }
    if pool.groups is not None:
        more["tasks_at_once"] = pool.groups.section()
    summary = run.end("virtual", host.clock.now(), wall_s, book.summary(), more)
    if not run.goes_on:
        saved.clear()
    return summary
