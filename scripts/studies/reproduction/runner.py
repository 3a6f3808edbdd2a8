"""Runs an entry: the tuning of its parts, then their tables; every finished run is kept at once."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from edgefl.config.experiment import Experiment
from edgefl.errors import UserError, listed
from edgefl.hosts.setup.resumption import RunStage
from edgefl.hosts.workers import EngineName, Power
from edgefl.results.rundirs import title
from edgefl.sweep.metrics import facts_of
from edgefl.sweep.sweep_runs import Did, SweepRun, do, locked
from reproduction import tables as files
from reproduction import wall
from reproduction.digest import differing, machine, machine_id
from reproduction.entry import WALL, Entry, Part, Scale
from reproduction.ledger import CpuClock, Ledger
from reproduction.plans import PartPlan, PlannedRun
from reproduction.progress import EntryLines, say
from reproduction.results import RESULT, TUNING, RunRow
from reproduction.tables import Tables

S_PER_H = 3600.0


@dataclass(slots=True)
class Budget:
    """CPU seconds that may be used before no more runs begin; None: as many as needed."""

    limit_s: float | None = None
    used_s: float = 0.0

    @property
    def is_spent(self) -> bool:
        return self.limit_s is not None and self.used_s >= self.limit_s


@dataclass(frozen=True)
class Work:
    """What all entries of a command have in common.

    ``out``: of run directories. ``data``: of result files. ``changes``: to every config.
    """

    scale: Scale
    power: Power
    out: Path
    data: Path
    changes: tuple[str, ...] = ()
    anew: bool = False
    budget: Budget = field(default_factory=Budget)

    @cached_property
    def machine(self) -> str:
        """This machine's id; its facts are in machines.csv from now on."""
        facts = machine()
        name = machine_id(facts)
        files.put_machine(self.data, name, facts)
        return name


class EntryRunner:
    """Does what is missing of an entry.

    ``reads_only``: only its results are wanted. UserError if the entry cannot be run, or if its
    results were made by other code.
    """

    def __init__(self, entry: Entry, work: Work, reads_only: bool = False) -> None:
        self.entry, self.work = entry, work
        self.folder = work.out / f"{entry.name}-{work.scale}"
        self.lines = EntryLines()
        parts = [part for part in entry.parts if work.scale in part.scales]
        self.plans = [
            PartPlan(entry, part, work.scale, self.folder, work.changes) for part in parts
        ]
        if entry.needs and work.scale is Scale.paper and not reads_only:
            raise UserError(f"{entry.name}: cannot be run here at the paper's scale: {entry.needs}")
        self.tables = Tables(work.data, entry)

    def run(self) -> Did:
        """Do all runs that are not done; a Ctrl-C, a death or a spent budget ends it early."""
        with locked(self.folder):
            if self.work.anew:
                self._forget()
            self.ledger = Ledger(self.folder)
            for plan in self.plans:
                plan.check()
            try:
                return self._do_all()
            except KeyboardInterrupt:
                return Did(interrupted=True)
            finally:
                self.lines.close()

    def _forget(self) -> None:
        self.tables.drop(self.work.scale)
        for plan in self.plans:
            for name in (plan.part.name, f"{plan.part.name}-tuning"):
                shutil.rmtree(self.folder / name, ignore_errors=True)
        (self.folder / "runs.json").unlink(missing_ok=True)

    def _do_all(self) -> Did:
        """Do part by part, so that a spent budget leaves whole parts; those on the wall clock last.

        Each is tuned, then its table is run.
        """
        best: dict[str, Mapping[str, Mapping[str, str]]] = {}
        on_wall: list[PlannedRun] = []
        for plan in self.plans:
            did = self._tune(plan, best)
            if not did.to_the_end:
                return did
            runs = plan.table(best[plan.part.name])
            if plan.part.clock == WALL:
                on_wall += runs
                continue
            did = self._do(runs)
            if not did.to_the_end:
                return did
        return self._do_wall(on_wall)

    # ------------------------------------------------------------------ tuning
    def _tune(self, plan: PartPlan, best: dict[str, Mapping[str, Mapping[str, str]]]) -> Did:
        """Find the best settings of a part, and add them to ``best``."""
        part, did = plan.part, Did()
        if part.tuning is not None:
            column = part.tuning.metric
            try:
                sweep = plan.sweep(lambda key: self._score(key, column))
            except UserError as error:
                raise UserError(f"{error}; or --anew runs {self.entry.name} again") from error
            did = sweep.do(lambda runs: self._do(sweep.planned(runs)))
            best[part.name] = sweep.best_settings()
        elif part.settings_of:
            best[part.name] = best.get(part.settings_of) or self._settings_of(part)
        else:
            best[part.name] = {}
        return did

    def _score(self, key: files.Key, column: str) -> float | None:
        row = self._row(key)
        return None if row is None else row.numbers.get(column)

    def _settings_of(self, part: Part) -> dict[str, Mapping[str, str]]:
        """Return the settings of an earlier part's table runs, by method."""
        name, slash, of_part = part.settings_of.rpartition("/")
        tables = self.tables
        if slash:
            from reproduction.registry import find

            tables = Tables(self.work.data, find(name))
        found = {
            row.method: row.setting
            for row in tables.rows
            if (row.scale, row.part, row.role) == (self.work.scale, of_part, RESULT)
        } or best_tried(tables, self.work.scale, of_part)
        if not found:
            before = name or self.entry.name
            raise UserError(
                f"{self.entry.name}, part {part.name}: takes the settings of {part.settings_of},"
                f" which has no results at this scale: run --entry {before} first"
            )
        return found

    # ------------------------------------------------------------------ runs
    def _do(self, runs: Sequence[PlannedRun]) -> Did:
        """Do those of ``runs`` that are in no result file."""
        missing = [run for run in runs if not self._is_known(run)]
        self._refuse_other_code(missing)
        missing = [run for run in missing if not self._take(run, None)]
        if not missing:
            return Did()
        if self.work.budget.is_spent:
            return Did(interrupted=True)
        check_data(self.entry, [run.run for run in missing])
        self.ledger.begin({run.run.directory: run.digest for run in missing})
        clock = CpuClock(len(missing))
        places = {run.run.directory: place for place, run in enumerate(missing)}
        power = self.work.power
        at_once = power.workers if power.engine is EngineName.local else 1
        self.lines.start(len(runs), len(missing), at_once)
        self.lines.ended = lambda name: self._ended(name, missing, clock)
        did = do(
            [run.run for run in missing],
            power,
            self.lines,
            begins=lambda run: clock.begin(places[run.directory]),
        )
        self.lines.ended = lambda name: None
        return Did(did.whole, did.interrupted or self.work.budget.is_spent)

    def _ended(self, name: str, runs: Sequence[PlannedRun], clock: CpuClock) -> None:
        """A run with this title has ended, or was broken off."""
        for place, run in enumerate(runs):
            used_s = clock.used_s(place)
            if title(run.run.directory) != name or used_s is None or self._row(run.key):
                continue
            used_s += self.ledger.used_s(run.run.directory)
            if self._take(run, used_s):
                self.work.budget.used_s += used_s
            else:
                self.ledger.note(run.run.directory, used_s)
        if self.work.budget.is_spent:
            os.kill(os.getpid(), signal.SIGINT)  # as Ctrl-C: running ones are kept and go on later

    def _take(self, run: PlannedRun, cpu_s: float | None) -> bool:
        """Put a run into the result files if its directory has it; return whether it has."""
        directory = run.run.directory
        if run.stage is not RunStage.finished:
            return False
        row = RunRow(
            run.scale,
            run.part.name,
            run.method.shown,
            run.role,
            run.seed,
            run.setting,
            files.numbers_of(directory, run.part.measures),
            files.fidelity_of(directory, run.part.clock),
            files.rounded(cpu_s or self.ledger.used_s(directory) or None),
            files.rounded(facts_of(directory).get("wall_s")),
            run.digest,
            self.work.machine,
        )
        of = run.scale, run.part.name, run.method.shown, run.seed
        self.tables.put(row, files.curve_of(directory, *of) if run.role == RESULT else ())
        return True

    def _do_wall(self, runs: Sequence[PlannedRun]) -> Did:
        """Do the runs on the wall clock, one after another."""
        missing = [run for run in runs if not self._is_known(run)]
        self._refuse_other_code(missing)
        missing = [run for run in missing if not self._take(run, None)]
        self.lines.start(len(missing), len(missing), 1)
        for run in missing:
            if self.work.budget.is_spent:
                return Did(interrupted=True)
            self.ledger.begin({run.run.directory: run.digest})
            cpu_s = wall.do(run)
            if not self._take(run, cpu_s):
                say(f"{run}: edgefl run left no finished run")
                return Did(whole=False)
            self.work.budget.used_s += cpu_s
            self.lines.end(title(run.run.directory), f"{run}: on the wall clock, done")
        return Did()

    # ------------------------------------------------------------------ what is known
    def _row(self, key: files.Key) -> RunRow | None:
        return next((row for row in self.tables.rows if files.key_of(row) == key), None)

    def _is_known(self, run: PlannedRun) -> bool:
        """Return whether the result files have a run. UserError if other code has made it."""
        row = self._row(run.key)
        if row is None or (run.role != TUNING and row.setting != run.setting):
            return False
        if row.digest != run.digest:
            raise self._other_code(self.tables.path, run, row.digest)
        if not row.numbers.keys() >= run.part.measures.keys():
            self._take(run, row.cpu_s)  # a measure is new: read it, if the directory is there
        return True

    def _refuse_other_code(self, runs: Sequence[PlannedRun]) -> None:
        """Raise UserError if a run directory was begun by other code."""
        for run in runs:
            if run.stage in (RunStage.finished, RunStage.broken_off):
                noted = self.ledger.digest(run.run.directory)
                if noted != run.digest:
                    raise self._other_code(run.run.directory, run, noted or "")

    def _other_code(self, place: Path, run: PlannedRun, digest: str) -> UserError:
        return UserError(
            f"{place}: {run} was made by other code: {listed(differing(digest, run.digest))} has"
            f" changed: --confirm looks whether its numbers are the same, --anew runs"
            f" {self.entry.name} again"
        )


def best_tried(tables: Tables, scale: Scale, part: str) -> dict[str, Mapping[str, str]]:
    """Return the settings that a part's table would take, from its tuning runs alone."""
    from edgefl.sweep.metrics import metric

    plan = tables.entry.part(part)
    if plan.tuning is None:
        return {}
    wanted = metric(plan.tuning.metric)
    found: dict[str, tuple[float, Mapping[str, str]]] = {}
    for row in tables.rows:
        score = row.numbers.get(wanted.name)
        if (row.scale, row.part, row.role) == (scale, part, TUNING) and score is not None:
            best = found.get(row.method)
            if best is None or wanted.better((score, best[0])) != best[0]:
                found[row.method] = score, row.setting
    return {method: setting for method, (_, setting) in found.items()}


def check_data(entry: Entry, runs: Sequence[SweepRun]) -> None:
    """Raise UserError if a data set of these runs is not there: which file, and how to get it."""
    from edgefl.hosts.setup.learning import learning

    seen: set[str] = set()
    for run in runs:
        if (needs := _data(run.experiment)) not in seen:
            seen.add(needs)
            try:
                learning(run.experiment, run.base)
            except UserError as error:
                raise UserError(f"{entry.name}: {error}") from error


def _data(experiment: Experiment) -> str:
    return experiment.model_dump_json(include={"task", "data", "unlabelled"})
