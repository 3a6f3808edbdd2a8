"""Checkpoints of a run under the virtual clock, and how a run goes on from one.

A checkpoint holds the host with all that it refers to: coordinator, strategy, edges, network,
planned events, faults. What the process builds itself (data, files, engine, config) is not part of
it. A run that goes on from a checkpoint writes the same bytes as an unbroken one.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgefl.checkpoints.codec import CannotDecode, CannotEncode, decode, encode
from edgefl.checkpoints.files import Checkpoint, Checkpoints
from edgefl.disk import OwnDisk
from edgefl.errors import UserError
from edgefl.hosts.setup.learning import Learning
from edgefl.hosts.setup.rundir import OpenRun, RunSoFar
from edgefl.hosts.virtual.host import VirtualHost
from edgefl.hosts.virtual.pool.engine import Engine
from edgefl.record.files import CHECKPOINTS
from edgefl.record.tables import lost_rows
from edgefl.results.rundirs import title
from edgefl.strategies.base.catalog import own_modules

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
    """The checkpoints of the run in ``directory``."""

    def __init__(self, directory: Path, saving: Saving) -> None:
        self.directory, self.saving = directory, saving
        self.files = Checkpoints(OwnDisk(), directory / CHECKPOINTS)
        self.found: Checkpoint | None = None
        self._sizes: deque[dict[str, int]] = deque(maxlen=self.files.keep)
        self._number = 0
        self._steps = 0
        self._possible = True
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
        self._groups = pool.groups
        self.run, strategy = run, run.coordinator.strategy
        self._own = own_modules(type(strategy))
        self._externals: dict[str, object] = {
            "strategy": strategy,
            "options": strategy.options,
            "options of the rule": learned.rule(index).options,
            "layout": learned.layout,
            "experiment": learned.experiment,
            "learned": learned,
            "recorder": run.record,
            "engine": pool,
        }
        if (limits := run.coordinator.deadlines.limits) is not None:
            self._externals["limits"] = limits

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
        return host

    def now_and_then(self, host: VirtualHost) -> None:
        """Save the run if it is time. Call this after every step."""
        if self.saving.every_steps is None:
            due = time.monotonic() >= self._due_s
        else:
            self._steps += 1
            due = self._steps % self.saving.every_steps == 0
        if due:
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
