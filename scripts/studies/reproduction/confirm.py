"""``--confirm``: whether today's code gives the numbers of the result files.

The beginning of one recorded run of each method is repeated: its first seed, up to the third point
of its curve. If all numbers of these points are equal, the rows get today's digest, and keep the
one that made them as ``made_by``. Other code, or another processor, may give other numbers; then
nothing is changed.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace

from edgefl.config.experiment import Stop
from edgefl.errors import UserError
from edgefl.sweep.sweep_runs import SweepRun, do, locked
from reproduction.digest import differing
from reproduction.entry import WALL
from reproduction.plans import PlannedRun
from reproduction.progress import say
from reproduction.results import RESULT, CurveRow, RunRow
from reproduction.runner import EntryRunner
from reproduction.tables import key_of, points_of

POINTS = 3  # of a curve that must be equal; the first one is the initial model


@dataclass(frozen=True, slots=True)
class Repeated:
    """A recorded run, as it is planned today, and the points that its repetition must have."""

    row: RunRow
    planned: PlannedRun
    points: tuple[CurveRow, ...]
    run: SweepRun


class Confirmation:
    """Confirms the rows of an entry at one scale."""

    def __init__(self, runner: EntryRunner) -> None:
        self.runner, self.tables = runner, runner.tables
        self.folder = runner.folder / "confirm"

    def run(self) -> bool:
        """Confirm what other code has made; return whether anything was.

        UserError, and no change, if a method's numbers or its config differ.
        """
        with locked(self.runner.folder):
            shutil.rmtree(self.folder, ignore_errors=True)
            repeated = self._repeated()
            if not repeated:
                return False
            try:
                did = do([each.run for each in repeated], self.runner.work.power, self.runner.lines)
            finally:
                self.runner.lines.close()
            if not did.to_the_end:
                raise UserError(f"{self.runner.entry.name}: not confirmed: stopped; start it again")
            for each in repeated:
                self._compare(each)
            self._write(repeated)
            shutil.rmtree(self.folder, ignore_errors=True)
        return True

    def _repeated(self) -> list[Repeated]:
        """Return a run of each method whose rows have another digest than today's."""
        found = []
        for plan in self.runner.plans:
            plan.check()
            rows = self._first_rows(plan.part.name)
            for planned in plan.table({method: row.setting for method, row in rows.items()}):
                row = rows.get(planned.method.shown)
                if row is None or key_of(row) != planned.key or row.digest == planned.digest:
                    continue
                if plan.part.clock == WALL:
                    say(f"{planned}: is on the wall clock, whose numbers are never the same")
                    continue
                self._refuse_another_config(row, planned)
                found.append(self._beginning(row, planned))
        return found

    def _first_rows(self, part: str) -> dict[str, RunRow]:
        """Return method -> its table run with the smallest seed."""
        found: dict[str, RunRow] = {}
        for row in sorted(self.tables.rows, key=lambda row: row.seed):
            if (row.scale, row.part, row.role) == (self.runner.work.scale, part, RESULT):
                found.setdefault(row.method, row)
        return found

    def _refuse_another_config(self, row: RunRow, planned: PlannedRun) -> None:
        if row.digest.rpartition("-")[2] != planned.digest.rpartition("-")[2]:
            raise UserError(
                f"{self.tables.path}: {planned}: the config has changed, so its numbers cannot be"
                f" confirmed: --anew runs {self.runner.entry.name} again"
            )

    def _beginning(self, row: RunRow, planned: PlannedRun) -> Repeated:
        own = (row.scale, row.part, row.method, row.seed)
        curve = [
            each
            for each in self.tables.curves
            if (each.scale, each.part, each.method, each.seed) == own
        ]
        if not curve:
            raise UserError(f"{self.tables.curves_path}: has no curve of {planned}")
        curve.sort(key=lambda each: (each.emulated_s, each.version))
        last = min(POINTS, len(curve)) - 1
        # between two points, so that the last one of the repetition is not at its very end
        later_s = curve[last + 1].emulated_s if last + 1 < len(curve) else None
        experiment = planned.run.experiment
        if later_s is not None:
            limits = experiment.stop.model_dump()
            end_s = (curve[last].emulated_s + later_s) / 2
            stop = Stop(**{**limits, "emulated_s": end_s})
            experiment = experiment.model_copy(update={"stop": stop})
        place = self.folder / planned.run.directory.relative_to(self.runner.folder)
        run = replace(planned.run, experiment=experiment, directory=place)
        return Repeated(row, planned, tuple(curve[: last + 1]), run)

    def _compare(self, each: Repeated) -> None:
        """Raise UserError if a point of the repetition is not that of the files."""
        now = points_of(each.run.directory, each.points[0])
        for point in each.points:
            if point in now:
                continue
            machine = self.runner.work.machine
            elsewhere = each.row.machine != machine
            where = f" (they were made on another machine, {each.row.machine})" if elsewhere else ""
            raise UserError(
                f"{self.tables.path}: {each.planned}: today's code gives other numbers at"
                f" {point.emulated_s:g} emulated s{where}: --anew runs {self.runner.entry.name}"
                " again"
            )

    def _write(self, repeated: Sequence[Repeated]) -> None:
        """Give the rows of the confirmed methods today's digest of strategy and trainer."""
        code = {
            (each.row.part, each.row.method): each.planned.digest.rpartition("-")[0]
            for each in repeated
        }
        old = {(each.row.part, each.row.method): each.row.digest for each in repeated}
        changed = []
        for row in self.tables.rows:
            key = row.part, row.method
            if row.scale is not self.runner.work.scale or key not in code:
                continue
            if not _same_code(row.digest, old[key]):
                continue  # of yet another code, which was not looked at
            digest = f"{code[key]}-{row.digest.rpartition('-')[2]}"
            changed.append(replace(row, digest=digest, made_by=row.made_by or row.digest))
        self.tables.replace(changed)
        for each in repeated:
            told = " and ".join(differing(each.row.digest, each.planned.digest))
            say(f"{each.planned}: the same numbers, although {told} has changed")


def _same_code(digest: str, other: str) -> bool:
    return digest.rpartition("-")[0] == other.rpartition("-")[0]
