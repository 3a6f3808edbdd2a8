"""What one coordinator process runs, what its edges must have, and its run directory, opened.

A run that goes on does so from its newest checkpoint, or from its start if there is none; then the
inputs in its journal are repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import orjson

import edgefl
from edgefl.checkpoints.codec import CannotDecode, decode
from edgefl.checkpoints.files import Checkpoint, Checkpoints
from edgefl.clocks.process_messages import SHARES, StartRun, frozen_digest
from edgefl.clocks.setup.rundir import OpenRun, RunSoFar, externals, writable
from edgefl.clocks.wall import keys as curve
from edgefl.clocks.wall.coordinator.durability import CheckpointWriter
from edgefl.clocks.wall.coordinator.run_logic import JobTable, RunLogic
from edgefl.clocks.wall.coordinator.sessions import Expected
from edgefl.clocks.wall.coordinator.workers import Evaluator
from edgefl.clocks.wall.system import System
from edgefl.config.experiment import Experiment
from edgefl.config.toml import parsed
from edgefl.disk import Disk
from edgefl.errors import UserError, undamaged
from edgefl.loading.file import FACTS, shared_digest, to_json
from edgefl.protocol.messages import Setup
from edgefl.record.files import CHECKPOINTS, CONFIG, EVENTS
from edgefl.record.journal import BLOBS, LINES, read, segment_name, segments, segments_from
from edgefl.record.record import JOURNAL
from edgefl.record.tables import Later, lost_rows, parts
from edgefl.strategies.base.catalog import own_modules
from edgefl.vectors import Layout
from emulator.units import to_ns

SILENCE_SHARE = 1.25  # edge timeout / coordinator liveness timeout


@dataclass(frozen=True, slots=True)
class CoordinatorTask:
    """What one coordinator process runs. Large data is in files in ``scratch``."""

    experiment: Experiment
    index: int
    directory: Path
    base: Path | None
    scratch: Path
    data_digest: str
    keys: curve.ServerKeys | None
    more: bool
    strains: tuple[str, ...]  # why the host is too slow, from the check before the run
    speed_auto: bool
    resume: bool = False  # go on with what is in ``directory``
    engine: str = ""  # what computes its training, as far as the launcher's host knows


def coordinator_task(start: StartRun) -> CoordinatorTask:
    return CoordinatorTask(
        Experiment.model_validate_json(start.experiment),
        start.index,
        Path(start.directory),
        Path(start.base) if start.base else None,
        Path(start.scratch),
        start.data_digest,
        curve.load_server(Path(start.keys)) if start.keys else None,
        start.more,
        start.strains,
        start.speed_auto,
        start.resume,
        start.engine,
    )


def shares(scratch: Path) -> dict[str, int]:
    """Samples by edge, if the warm parent knows the split."""
    path = scratch / SHARES
    return orjson.loads(path.read_bytes()) if path.exists() else {}


def expected(job: CoordinatorTask, layout: Layout, run_id: str) -> Expected:
    experiment, entry = job.experiment, job.experiment.strategies[job.index]
    section = experiment.network
    return Expected(
        edges=frozenset(experiment.edges.ids()),
        package=edgefl.__version__,
        config_digest=shared_digest(experiment, entry),
        layout_digest=layout.digest(),
        data_digest=job.data_digest,
        setup=Setup(
            to_json(experiment, entry),
            entry.strategy,
            to_ns(section.heartbeat_s),
            to_ns(SILENCE_SHARE * section.liveness_s),
            to_ns(section.report_s),
            run_id,
        ),
        keyed=job.keys is not None,
        heartbeat_ns=to_ns(section.heartbeat_s),
        liveness_ns=to_ns(section.liveness_s),
        max_sessions=section.max_edges,
        frozen_digest=frozen_digest(job.scratch),
    )


def run_id(job: CoordinatorTask, system: System) -> str:
    """The random name of the run, by which edges know it; that of a run that goes on."""
    if not job.resume:
        return f"{system.random_bits(64):016x}"
    path = job.directory / CONFIG
    try:
        text = system.disk.read(path)
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from error
    with undamaged(path):
        return str(parsed(text.decode())[FACTS]["run_id"])


@dataclass(slots=True)
class OpenedRun:
    """A run's directory and its state.

    ``since``: the journal's segment that comes next. ``wall_s``: the wall seconds so far.
    ``sizes``: of the files at the checkpoint from which the run goes on.
    """

    run: OpenRun
    core: RunLogic
    checkpoints: Checkpoints
    since: int = 0
    wall_s: float = 0.0
    sizes: Mapping[str, int] | None = None

    def writer(
        self, evaluator: Evaluator | None, say: Callable[[str], None], system: System
    ) -> CheckpointWriter | None:
        """What takes checkpoints during the run; None if it has no journal."""
        journal, strategy = self.run.record.journal, self.run.coordinator.strategy
        if journal is None or not journal.inputs:
            return None
        found, own = externals(self.run), own_modules(type(strategy))
        core, files = self.core, self.checkpoints
        return CheckpointWriter(
            core, journal, files, found, own, evaluator, say, self.sizes, system
        )


@dataclass(frozen=True, slots=True)
class RunOpener:
    """Opens the directory of ``job``. ``evaluates`` and ``works``: there are such processes.

    ``say`` gets a line about each damaged checkpoint.
    """

    job: CoordinatorTask
    weights: np.ndarray
    layout: Layout
    evaluates: bool
    works: bool
    disk: Disk
    later: Later
    say: Callable[[str], None]

    def open(self) -> OpenedRun:
        """Open a new run, or the one to go on with, as it was at its checkpoint.

        UserError if the run cannot go on.
        """
        section = self.job.experiment.record
        disk, folder = self.disk, self.job.directory / CHECKPOINTS
        files = Checkpoints(disk, folder, durable=section.durability == "power")
        if not self.job.resume:
            return self._opened(files, None, None)
        if section.durability == "off":
            raise UserError(
                f"{self.job.directory}: record.durability is off, so there is no journal to go on"
                " with"
            )
        before = None
        while (found := files.latest(self.say, before)) is not None:
            try:
                so_far = RunSoFar.of(found.meta)
                if lost := lost_rows(self.job.directory, disk, so_far.sizes):
                    raise CannotDecode(f"cannot be used: {lost}")
                return self._opened(files, found, so_far)
            except CannotDecode as reason:
                self.say(f"{folder}: checkpoint {found.number} {reason}; the one before is used")
                before = found.number
        return self._opened(files, None, RunSoFar({}, 0.0))

    def _opened(
        self, files: Checkpoints, found: Checkpoint | None, done: RunSoFar | None
    ) -> OpenedRun:
        job = self.job
        if done is not None:
            self._check_journal(0 if found is None else found.number, done.sizes)
        known = shares(job.scratch)
        whole = (job.experiment, job.index, job.directory, job.base, self.weights, self.layout)
        with writable(job.directory, resumed=done is not None):
            run = OpenRun(*whole, known, self.disk, done, inputs=True, later=self.later)
        jobs = JobTable() if self.works else None
        core = RunLogic(run.coordinator, run.record, self.evaluates, jobs)
        if found is None:
            return OpenedRun(run, core, files)
        own = own_modules(type(run.coordinator.strategy))
        root = cast(dict[str, Any], decode(found.encoded, externals(run), own))
        core, run.record.wall_at = root["core"], root["wall_at"]
        run.coordinator = core.coordinator
        meta = found.meta
        return OpenedRun(run, core, files, found.number, meta["wall_s"], meta["sizes"])

    def _check_journal(self, since: int, sizes: Mapping[str, int]) -> None:
        """UserError if the journal has less than the run's events; not later, because then rows are
        dropped already.

        Rows of events reach the disk after their entries in the journal. ``sizes``: of the files
        when segment ``since`` began.
        """
        directory, folder = self.job.directory, self.job.directory / JOURNAL
        events = directory / EVENTS
        begun = bool(parts(events, self.disk)) and EVENTS not in sizes
        if self.disk.exists(events) and (
            since == 0 or self.job.experiment.record.durability == "process"
        ):
            begun = begun or self.disk.size(events) > sizes.get(EVENTS, 0)
        instead = f"bring it back from a copy, or remove {directory}, and it runs anew"
        known = segments(folder, self.disk)
        if known:
            segments_from(folder, self.disk, since)
        elif since or begun:
            raise UserError(f"{folder}: has no journal, but the run has begun: {instead}")
        if begun and next(read(folder, self.disk, since), None) is None:
            what = f"{segment_name(since)}{LINES}: has no whole entry"
            raise UserError(f"{folder / what}, but {EVENTS} has later rows: {instead}")
        last = segment_name(max(known, default=0) + 1)
        if not self.disk.exists(folder / f"{last}{BLOBS}"):
            return
        if self.job.experiment.record.durability != "power":  # its lines were made before it
            raise UserError(f"{folder}: parts of the journal are missing: {last}{LINES}")
        # before the first sync, a loss of power may take one of two new names
        self.say(f"{folder}: {last}{LINES} is missing; the run goes on from the part before it")
