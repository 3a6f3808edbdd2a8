"""Runs an entry: the tuning of its parts, then their tables; every finished run is kept at once."""

from __future__ import annotations

import mmap
import os
import platform
import shutil
import signal
import struct
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import psutil
from rich.console import Console

from edgefl.clocks.choices import EngineName, Power
from edgefl.clocks.setup.resumption import RunStage, git_commit
from edgefl.config.file import FACTS, dump
from edgefl.errors import UserError, nearest
from edgefl.plugins.sweep.choice import facts_of
from edgefl.plugins.sweep.command import SweepLines
from edgefl.plugins.sweep.sweep_runs import Did, SweepRun, do, locked
from edgefl.results.run_files import read_config, replace_file, title
from reproduction import registry
from reproduction import results as files
from reproduction.entry import WALL, Entry, Part, Scale
from reproduction.plans import PartPlan, PlannedRun, short_hash
from reproduction.results import RESULT, RunRow, Tables

S_PER_H = 3600.0
LOCKS = ".locks"  # in the folder of the result files: one command at a time changes an entry's
WINDOW = "convergence_window_s"  # in the summary of a run under rule 2
SLOT = struct.Struct("q")
Settings = Mapping[str, Mapping[str, str]]  # method -> its tuned values, as text


def say(text: str) -> None:
    """Print a line to stderr: stdout has only tables."""
    Console(stderr=True).print(text, highlight=False, markup=False, soft_wrap=True)


class EntryLines(SweepLines):
    """As ``edgefl sweep`` shows it. ``ended`` is called with the title of a run that has ended."""

    def __init__(self) -> None:
        super().__init__()
        self.ended: Callable[[str], None] = lambda name: None

    def say(self, text: str) -> None:
        self.close()
        say(text)

    def end(self, name: str, text: str) -> None:
        super().end(name, text)
        self.ended(name)


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
    ``parts``: names of those to run; empty: all.
    """

    scale: Scale
    power: Power
    out: Path
    data: Path
    changes: tuple[str, ...] = ()
    anew: bool = False
    parts: tuple[str, ...] = ()
    budget: Budget = field(default_factory=Budget)

    @cached_property
    def machine(self) -> str:
        """This machine's id; its facts are in machines.csv from now on."""
        facts = machine()
        name = short_hash(facts)[:6]
        with locked(self.data / LOCKS / "machines"):
            files.put_machine(self.data, name, facts)
        return name


class EntryRunner:
    """Does what is missing of an entry.

    UserError if the entry cannot be run, or if its results were made with another config.
    """

    def __init__(self, entry: Entry, work: Work) -> None:
        self.entry, self.work = entry, work
        self.folder = work.out / f"{entry.name}-{work.scale}"
        self.lines = EntryLines()
        parts = {part.name: part for part in entry.parts if work.scale in part.scales}
        for name in work.parts:
            if name not in parts:
                raise UserError(f"{entry.name}: --part {name}: not there{nearest(name, parts)}")
        self.plans = [
            PartPlan(entry, part, work.scale, self.folder, work.changes)
            for name, part in parts.items()
            if name in (work.parts or parts)
        ]
        if entry.needs and work.scale is Scale.paper:
            raise UserError(f"{entry.name}: cannot be run here at the paper's scale: {entry.needs}")
        self.tables = Tables(work.data, entry)

    def run(self) -> Did:
        """Do all runs that are not done; a Ctrl-C, a death or a spent budget ends it early."""
        with locked(self.folder), locked(self.work.data / LOCKS / self.entry.name):
            self.tables = Tables(self.work.data, self.entry)  # another command may have added runs
            for plan in self.plans:
                plan.check()
            if self.work.anew:
                self._forget()
            self._tell_of_other_code()
            try:
                return self._do_all()
            except KeyboardInterrupt:
                return Did(interrupted=True)
            finally:
                self.lines.close()

    def _forget(self) -> None:
        self.tables.drop(self.work.scale)
        for plan in self.plans:
            for more in ("", "-tuning", "-confirming"):
                name = f"{plan.part.name}{more}"
                shutil.rmtree(self.folder / name, ignore_errors=True)

    def _tell_of_other_code(self) -> None:
        """Say which rows of the result files were made by another commit: they are kept."""
        rows = [row for row in self.tables.rows if row.scale is self.work.scale]
        now = git_commit()
        others = sum(row.digest.rpartition("-")[0] != now for row in rows)
        if others:
            say(
                f"{self.tables.path}: {others} of {len(rows)} runs were made by other code than"
                f" {now}; --anew runs {self.entry.name} again"
            )

    def _do_all(self) -> Did:
        """Do look by look, and in each part by part, so that a spent budget leaves whole parts.

        A part is tuned, then its table is run; those on the wall clock come last. After a look that
        decides all claims, or all but those that need too many seeds, there is no further one.
        """
        best: dict[str, Settings] = {}
        looks = self.entry.looks if self.work.scale is Scale.paper else self.entry.looks[-1:]
        for before, look in zip((0, *looks), looks):
            on_wall: list[PlannedRun] = []
            for plan in self.plans:
                did = self._tune(plan, best) if plan.part.name not in best else Did()
                if not did.to_the_end:
                    return did
                settings = best[plan.part.name]
                chosen = {each.shown: plan.own(each, settings) for each in plan.part.methods}
                self.tables.drop_settings(self.work.scale, plan.part.name, chosen)
                # at the last look also a part's further seeds
                until = None if look == looks[-1] else look
                seeds = plan.part.seeds_at(self.work.scale)[before:until]
                runs = [run for run in plan.table(best[plan.part.name]) if run.seed in seeds]
                if plan.part.clock == WALL:
                    on_wall += runs
                    continue
                did = self._do(runs)
                if not did.to_the_end:
                    return did
            did = self._do_wall(on_wall)
            if not did.to_the_end:
                return did
            if look != looks[-1] and not self._is_open():
                say(f"{self.entry.name}: decided, or never, with {look} seeds: no further look")
                return did
        return did

    def _is_open(self) -> bool:
        """Return whether further seeds of the parts that are run may decide a claim.

        Those of other entries that need these runs alone count, too.
        """
        from reproduction.book import Book  # it needs the figures, which take long

        mine = self.entry
        users = [each for each in registry.entries().values() if mine.name in each.uses]
        read = {
            each.name: each for each in registry.with_used([*users, *map(registry.find, mine.uses)])
        }
        book = Book((read | {mine.name: mine}).values(), self.work.data)
        run = {(mine.name, plan.part.name) for plan in self.plans}

        for entry in (mine, *users):
            for judged in book.judged(entry):
                needed = {(name, part.name) for name, part in book.needed(entry, judged.claim)}
                if entry is mine:  # the runs that it uses are there
                    needed = {key for key in needed if key[0] == mine.name}
                if judged.finding.is_open and needed and run >= needed:
                    return True
        return False

    # ------------------------------------------------------------------ tuning
    def _tune(self, plan: PartPlan, best: dict[str, Settings]) -> Did:
        """Find the best settings of a part, and add them to ``best``."""
        part, did = plan.part, Did()
        if part.tuning is not None:
            column = part.tuning.metric
            try:
                sweep = plan.sweep(lambda key: self._score(key, column))
            except UserError as error:
                raise UserError(f"{error}; or --anew runs {self.entry.name} again") from error
            did = sweep.do(lambda runs: self._do(sweep.planned(runs)))
            if did.to_the_end:
                did = self._do(sweep.confirming())
            best[part.name] = sweep.best_settings()
        elif part.settings_of:
            best[part.name] = best.get(part.settings_of) or self._settings_of(part)
        else:
            best[part.name] = {}
        if did.to_the_end and (part.tuning is not None or part.settings_of):
            self._refuse_untuned(part, best[part.name])
        return did

    def _refuse_untuned(self, part: Part, best: Settings) -> None:
        """Raise UserError if a method would run with defaults against tuned ones."""
        left = [each.shown for each in part.methods if (each.tuned_as or each.shown) not in best]
        if not left:
            return
        whose = f"part {part.settings_of}" if part.settings_of else "its tuning"
        raise UserError(
            f"{self.entry.name}, part {part.name}: {whose} has no best setting of"
            f" {', '.join(left)}: let it end first, or see why their runs have no score"
        )

    def _score(self, key: files.Key, column: str) -> float | None:
        row = self._row(key)
        return None if row is None else row.numbers.get(column)

    def _settings_of(self, part: Part) -> Settings:
        """Return the settings of an earlier part's table runs, by method."""
        name, slash, of_part = part.settings_of.rpartition("/")
        tables = Tables(self.work.data, registry.find(name)) if slash else self.tables
        found = {
            row.method: row.setting
            for row in tables.rows
            if (row.scale, row.part, row.role) == (self.work.scale, of_part, RESULT)
        }
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
        missing = self._missing(runs)
        if not missing:
            return Did()
        if self.work.budget.is_spent:
            return Did(interrupted=True)
        check_data(self.entry, [run.run for run in missing])
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
            if title(run.run.directory) != name or used_s is None or self._is_known(run):
                continue
            used_s += used_before_s(run.run.directory)
            if self._take(run, used_s):
                self.work.budget.used_s += used_s
            else:
                replace_file(time_file(run.run.directory), f"{used_s}\n".encode())
        if self.work.budget.is_spent:
            os.kill(os.getpid(), signal.SIGINT)  # as Ctrl-C: running ones are kept and go on later

    def _take(self, run: PlannedRun, cpu_s: float | None) -> bool:
        """Put a run into the result files if its directory has it; return whether it has."""
        directory = run.run.directory
        if run.stage is not RunStage.finished:
            return False
        if WINDOW not in facts_of(directory) and run.part.depends_on(files.OF_RULE):
            say(f"{directory}: made under rule 1, so it is deleted and run again")
            shutil.rmtree(directory)
            return False
        commit = read_config(directory)[FACTS]["git_commit"]
        row = RunRow(
            run.scale,
            run.part.name,
            run.method.shown,
            run.role,
            run.seed,
            run.setting,
            files.numbers_of(directory, run.part.measures),
            files.fidelity_of(directory, run.part.clock),
            files.rounded(cpu_s or used_before_s(directory) or None),
            files.rounded(facts_of(directory).get("wall_s")),
            f"{commit}-{run.config_digest}",
            self.work.machine,
        )
        of = run.scale, run.part.name, run.method.shown, run.seed
        self.tables.put(row, files.curve_of(directory, *of) if run.role == RESULT else ())
        time_file(directory).unlink(missing_ok=True)  # the row has it
        return True

    def _do_wall(self, runs: Sequence[PlannedRun]) -> Did:
        """Do the runs on the wall clock, one after another."""
        missing = self._missing(runs)
        self.lines.start(len(missing), len(missing), 1)
        for run in missing:
            if self.work.budget.is_spent:
                return Did(interrupted=True)
            cpu_s = run_on_wall(run)
            if not self._take(run, cpu_s):
                say(f"{run}: edgefl run left no finished run")
                return Did(whole=False)
            self.work.budget.used_s += cpu_s
            self.lines.end(title(run.run.directory), f"{run}: on the wall clock, done")
        return Did()

    # ------------------------------------------------------------------ what is known
    def _missing(self, runs: Sequence[PlannedRun]) -> list[PlannedRun]:
        """Return those that neither the result files nor their directories have, finished."""
        return [run for run in runs if not self._is_known(run) and not self._take(run, None)]

    def _row(self, key: files.Key) -> RunRow | None:
        return next((row for row in self.tables.rows if files.key_of(row) == key), None)

    def _is_known(self, run: PlannedRun) -> bool:
        """Return whether the result files have a run. UserError if it has another config."""
        row = self._row(run.key)
        if row is None or row.setting != run.setting:
            return False
        if row.rule != files.RULE and run.part.depends_on(files.OF_RULE):
            return False  # it is run again, and replaced
        if row.digest.rpartition("-")[2] != run.config_digest:
            raise UserError(
                f"{self.tables.path}: {run} was made with another config: --anew runs"
                f" {self.entry.name} again"
            )
        if any(row.numbers[name] is None for name in run.part.measures):
            self._measure_again(run, row)
        return True

    def _measure_again(self, run: PlannedRun, row: RunRow) -> None:
        """Read the measures that a row lacks, if its directory is there: one may be new."""
        if run.stage is RunStage.finished:
            found = files.numbers_of(run.run.directory, run.part.measures)
            new = {name: found[name] for name in run.part.measures if row.numbers[name] is None}
            if any(value is not None for value in new.values()):
                self.tables.put(replace(row, numbers={**row.numbers, **new}))


def check_data(entry: Entry, runs: Sequence[SweepRun]) -> None:
    """Raise UserError if a data set of these runs is not there: which file, and how to get it."""
    from edgefl.clocks.setup.learning import learning

    seen: set[str] = set()
    for run in runs:
        needs = run.experiment.model_dump_json(include={"task", "data", "unlabelled"})
        if needs not in seen:
            seen.add(needs)
            try:
                learning(run.experiment, run.base)
            except UserError as error:
                raise UserError(f"{entry.name}: {error}") from error


def run_on_wall(run: PlannedRun) -> float:
    """Do a run over real sockets by ``edgefl run``, as far as it goes; return its CPU seconds.

    ``--force``: a machine that cannot keep up leaves a strained run, which the page marks.
    """
    before_s = _of_ended_s()
    folder = run.run.directory.parent
    experiment = run.run.experiment.model_copy(update={"name": folder.name})
    replace_file(
        run.wall_config, dump(experiment, {FACTS: {"base": str(run.run.base.resolve())}}).encode()
    )
    words = ["run", str(run.wall_config), "--force", "--overwrite", "--out", str(folder.parent)]
    subprocess.run([sys.executable, "-m", "edgefl.cli", *words], check=False)
    return _of_ended_s() - before_s


# ------------------------------------------------------------------ CPU time
class CpuClock:
    """The CPU seconds of ``runs`` runs, each with all of its processes.

    A run is done in a forked process of its own, or in this process with workers below it, one run
    after another. Workers on other machines are not counted.
    """

    def __init__(self, runs: int) -> None:
        self._pids = mmap.mmap(-1, SLOT.size * max(runs, 1))  # shared with forks
        self._owner = os.getpid()
        self._began_s: dict[int, float] = {}  # those that are done in this process

    def begin(self, run: int) -> None:
        """Run number ``run`` begins in the calling process."""
        SLOT.pack_into(self._pids, run * SLOT.size, os.getpid())
        if os.getpid() == self._owner:
            self._began_s = {run: _of_tree_s()}

    def used_s(self, run: int) -> float | None:
        """Return what a run that is going on or has just ended has used; None if unknown."""
        (pid,) = SLOT.unpack_from(self._pids, run * SLOT.size)
        if pid == self._owner:
            began_s = self._began_s.get(run)
            return None if began_s is None else _of_tree_s() - began_s
        with suppress(psutil.NoSuchProcess):
            return _of_process_s(psutil.Process(pid)) if pid else None
        return None


def time_file(run: Path) -> Path:
    """Return the file, next to a run that was broken off, with the CPU seconds it has used."""
    return run.with_name(f"{run.name}.cpu_s")


def used_before_s(run: Path) -> float:
    """Return the CPU seconds of a run in earlier commands."""
    file = time_file(run)
    return float(file.read_text()) if file.is_file() else 0.0


def _of_tree_s() -> float:
    """Return the CPU seconds of this process, of those below it, and of those that have ended."""
    own = psutil.Process()
    total_s = _of_process_s(own)
    for child in own.children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            total_s += _of_process_s(child)
    return total_s


def _of_process_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return times.user + times.system + times.children_user + times.children_system


def _of_ended_s() -> float:
    """Return the CPU seconds of all child processes that have ended."""
    times = os.times()
    return times.children_user + times.children_system


# ------------------------------------------------------------------ the machine
def machine() -> dict[str, str]:
    """Return what may decide the last digit and the CPU time: processor, memory, versions."""
    import numpy
    import torch

    return {
        "cpu": _cpu(),
        "cores": str(psutil.cpu_count(logical=True) or 1),
        "memory_GiB": f"{psutil.virtual_memory().total / 2**30:.0f}",
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": numpy.__version__,
    } | _gpu()


def _gpu() -> dict[str, str]:
    """Return the name of the first GPU, if there is one.

    The driver's tool tells it: a process that asks torch for the name begins to use CUDA, and may
    not be forked any more.
    """
    tool = shutil.which("nvidia-smi")
    words = ["--query-gpu=name", "--format=csv,noheader"]
    told = tool and subprocess.run([tool, *words], capture_output=True, text=True, check=False)
    return {"gpu": told.stdout.splitlines()[0]} if told and told.stdout.strip() else {}


def _cpu() -> str:
    """Return the processor's name, as far as the system tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or sys.platform
