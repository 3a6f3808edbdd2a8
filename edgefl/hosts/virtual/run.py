"""Run one strategy of an experiment under the virtual clock."""

from __future__ import annotations

import gc
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from edgefl.config.faults import revives, schedule
from edgefl.disk import Disk, OwnDisk, PatientDisk
from edgefl.hosts.fault_lives import FaultLives
from edgefl.hosts.processes import keep_freed_memory
from edgefl.hosts.room import WaitForRoom
from edgefl.hosts.setup.learning import Learning
from edgefl.hosts.setup.network import latencies, network
from edgefl.hosts.setup.plan import fidelity, refuse_native
from edgefl.hosts.setup.resumption import digest_facts
from edgefl.hosts.setup.rundir import OpenRun
from edgefl.hosts.virtual.edges import DeferredEdges
from edgefl.hosts.virtual.faults import VirtualFaults
from edgefl.hosts.virtual.host import VirtualHost
from edgefl.hosts.virtual.pool.engine import Engine, InProcessEngine
from edgefl.hosts.virtual.saved_run import SavedRun, Saving
from edgefl.results.summary import BROKEN_OFF
from edgefl.streams import Streams
from emulator.fidelity import Fidelity
from emulator.units import to_ns

Progress = Callable[[int, OpenRun], None]
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


def _host(learned: Learning, index: int, run: OpenRun, pool: Engine) -> VirtualHost:
    experiment, samples = learned.experiment, learned.samples
    edges, ids = DeferredEdges(learned, index), list(samples)
    slots = run.coordinator.strategy.schedules_slots
    links = network(experiment, learned.base, slots, at_first_use=True)
    host = VirtualHost(run.coordinator, edges, links, latencies(experiment), pool)
    if experiment.faults:
        host.faults = VirtualFaults(
            host,
            schedule(experiment.faults, ids, Streams(experiment.seed)),
            FaultLives(ids, revives(experiment.faults)),
            fresh=edges.fresh,
            liveness_ns=to_ns(experiment.network.liveness_s * experiment.chosen_speed),
            samples=samples,
        )
    return host


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
    learned: Learning, index: int, saved: SavedRun, pool: Engine, book: Fidelity, disk: Disk
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
    host = _host(learned, index, run, pool)
    digests = digest_facts(learned.data_digest(), learned.frozen_digest())
    run.begin("virtual", book, {**digests, **learned.device_facts()})
    learned.keep_beside(directory)
    return run, host, partial(host.run, samples)


def run_virtual(
    learned: Learning,
    index: int,
    directory: Path,
    progress: Progress | None = None,
    pool: Engine | None = None,
    resume: bool = False,
    saving: Saving | None = None,
) -> dict[str, Any]:
    """Run strategy ``index``, and return the summary.

    ``progress(now_ns, run)`` is called after every step. ``pool`` None: train in this process.
    ``resume``: go on with the run in ``directory`` at its newest checkpoint; it begins anew if it
    has none. ``saving``: when checkpoints are written.
    """
    experiment, pool = learned.experiment, pool or InProcessEngine(learned)
    refuse_native(experiment)
    keep_freed_memory()
    book, saved = fidelity(experiment), SavedRun(directory, saving or Saving())
    learned.engine(index)  # refuses one that the experiment asks for and cannot have
    if resume:
        saved.find()
    if pool.groups is not None:
        pool.groups.begin(saved.tell, saved.groups_so_far)
    interrupt, say = DelayedInterrupt(), saved.saving.say
    room = WaitForRoom(say, time.monotonic, time.sleep, lambda: interrupt.asked)
    run, host, play = _opened(learned, index, saved, pool, book, PatientDisk(OwnDisk(), room))

    def after_step(now: int) -> None:
        run.flush_now_and_then()
        if progress is not None:
            progress(now, run)
        if interrupt.asked:
            saved.save(host)
            raise KeyboardInterrupt
        saved.now_and_then(host)

    try:
        # objects that exist now stay: the garbage collector need not visit them again
        gc.freeze()
        with interrupt:
            play(after_step)
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
    goes_on = host.coordinator.finished in BROKEN_OFF
    if not goes_on:
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
    if not goes_on:
        saved.clear()
    return summary
