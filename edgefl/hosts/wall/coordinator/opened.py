"""Open a run directory on the wall clock: for a new run, or to go on with one.

A run goes on from its newest checkpoint, or from its start if there is none; then the inputs in its
journal are repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from edgefl.checkpoints.codec import CannotDecode, decode
from edgefl.checkpoints.files import Checkpoint, Checkpoints
from edgefl.disk import Disk
from edgefl.errors import UserError
from edgefl.hosts.setup.rundir import OpenRun, RunSoFar, writable
from edgefl.hosts.setup.saved_state import externals
from edgefl.hosts.wall.coordinator.checkpoint_writer import CheckpointWriter
from edgefl.hosts.wall.coordinator.evaluator import Evaluator
from edgefl.hosts.wall.coordinator.job_table import JobTable
from edgefl.hosts.wall.coordinator.process_task import CoordinatorTask, shares
from edgefl.hosts.wall.coordinator.run_logic import RunLogic
from edgefl.hosts.wall.system import System
from edgefl.record.files import CHECKPOINTS, EVENTS
from edgefl.record.journal import BLOBS, LINES, read, segment_name, segments, segments_from
from edgefl.record.record import JOURNAL
from edgefl.record.tables import Later, lost_rows, parts
from edgefl.strategies.base.catalog import own_modules
from edgefl.vectors import Layout


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
