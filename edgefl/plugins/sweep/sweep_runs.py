"""Single runs of a sweep: their folder, which are done, and doing the others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgefl import __version__
from edgefl.clocks.setup.resumption import (
    MOST_DIFFERENCES,
    RunFolder,
    RunStage,
    check_data,
    differences,
    digests,
    run_stage,
    writable,
)
from edgefl.config.experiment import Experiment, StrategyEntry
from edgefl.config.file import FACTS, dump, load
from edgefl.config.toml import parsed
from edgefl.errors import UserError, listed, undamaged
from edgefl.plugins.sweep.choice import facts_of
from edgefl.plugins.sweep.settings import GridAxis
from edgefl.record.files import CONFIG, EVENTS, EXPERIMENT, SWEEP
from edgefl.results.run_files import read_config, replace_file, seed_name, title

if TYPE_CHECKING:
    from edgefl.clocks.choices import Power
    from edgefl.clocks.setup.learning import Learning
    from edgefl.clocks.virtual.run_batch import BatchRun, Lines


@dataclass(frozen=True, slots=True)
class SweepRun:
    """The strategy at ``index`` of an experiment of one seed, and the directory of its run.

    ``base``: the folder of the user's code and traces.
    """

    experiment: Experiment
    index: int
    directory: Path
    base: Path

    @property
    def entry(self) -> StrategyEntry:
        return self.experiment.strategies[self.index]

    def stage(self) -> RunStage | None:
        """Return how far it got in an earlier command; None if the directory has another run."""
        stage = run_stage(self.directory)
        if stage is RunStage.not_begun:
            return stage
        return stage if self._is_same() and self._is_mine(stage) else None

    def _is_same(self) -> bool:
        """Whether config.toml is of this experiment, with this strategy among others."""
        tables = read_config(self.directory)
        now = self.experiment.model_dump(exclude_none=True)
        mine = self.entry.model_dump(exclude_none=True)
        has_mine = mine in tables.get("strategies", ())
        if has_mine and not differences(now, tables, (FACTS, "strategies")):
            return True
        try:  # an older edgefl may have written it, without keys that have come since
            before = load(self.directory / CONFIG)
        except UserError:
            return False
        but = {"strategies"}
        if before.model_dump(exclude=but) != self.experiment.model_dump(exclude=but):
            return False
        return self.entry in before.strategies

    def _is_mine(self, stage: RunStage) -> bool:
        if stage is RunStage.finished:
            name = facts_of(self.directory).get("label")
        else:
            name = read_config(self.directory).get(FACTS, {}).get("strategy")
        return bool(name == self.entry.name)

    @property
    def is_done(self) -> bool:
        return self.stage() is RunStage.finished

    def refuse_another(self) -> None:
        """Raise UserError if the directory has a run of another config."""
        if self.stage() is not None:
            return
        with undamaged(self.directory / CONFIG):
            before = load(self.directory / CONFIG)
        now, then = (each.model_dump(exclude_none=True) for each in (self.experiment, before))
        found = differences(now, then) or ["another strategy"]
        raise UserError(
            f"{self.directory}: is a run of another config: {listed(found, MOST_DIFFERENCES)};"
            " choose another --out, or remove it"
        )


@dataclass(frozen=True, slots=True)
class Did:
    """What became of runs: ``whole`` if none died; ``interrupted`` after a Ctrl-C."""

    whole: bool = True
    interrupted: bool = False

    @property
    def to_the_end(self) -> bool:
        return self.whole and not self.interrupted


@dataclass(slots=True)
class SharedData:
    """Data and model that most of the runs have in common: loaded once, and shared by forks."""

    first: SweepRun
    _learned: Learning | None = field(default=None, repr=False)

    @classmethod
    def of(cls, runs: Sequence[SweepRun]) -> SharedData:
        """Choose what is shared by ``runs``, of which there is at least one."""
        needs = [_needs(run) for run in runs]
        ((most, _),) = Counter(needs).most_common(1)
        return cls(runs[needs.index(most)])

    def load(self) -> None:
        """Load it. UserError if something is missing."""
        from edgefl.clocks.setup.learning import learning
        from edgefl.clocks.trial import try_out

        self._learned = learning(self.first.experiment, self.first.base)
        try_out(self._learned)

    def learned(self, run: SweepRun, resume: bool) -> Learning:
        """Return the data and the model of a run."""
        from edgefl.clocks.setup.learning import learning, with_experiment
        from edgefl.clocks.setup.resumption import remove_run

        shared = self._learned
        try:
            if shared is not None and _needs(run) == _needs(self.first):
                made = with_experiment(shared, run.experiment)
            else:
                made = learning(run.experiment, run.base)
        except UserError as error:
            raise UserError(f"{title(run.directory)}: {error}") from error
        if resume:
            check_data(run.directory, made.data_digest(), made.frozen_digest())
        else:
            remove_run(run.directory)  # of another config, or without a whole config.toml
        return made


def _needs(run: SweepRun) -> str:
    """Return what the data and the model of a run depend on, apart from the edges' shares."""
    parts = {"task", "data", "model", "unlabelled"}
    if run.experiment.data.source != "partition":
        parts.add("edges")
    return run.experiment.model_dump_json(include=parts) + str(run.base)


def do(
    runs: Sequence[SweepRun],
    power: Power,
    lines: Lines,
    begins: Callable[[SweepRun], None] = lambda run: None,
    scored: Callable[[Path], str | None] | None = None,
) -> Did:
    """Do those of ``runs`` that are not done, and go on with those that were broken off.

    ``begins`` is called when a run begins or goes on, in the process that does it. ``scored``: see
    ``RunBatch``. A directory with a run of another config is replaced; ``SweepRun.refuse_another``
    prevents that. UserError if a run finds an error that the user can correct, such as missing
    data.
    """
    from edgefl.clocks.virtual.run_batch import RunBatch

    missing = [(run, stage) for run in runs if (stage := run.stage()) is not RunStage.finished]
    if not missing:
        return Did()
    shared = SharedData.of([run for run, _ in missing])
    shared.load()

    def learned(run: SweepRun, resume: bool) -> Learning:
        begins(run)
        return shared.learned(run, resume)

    jobs = [_job(run, stage is RunStage.broken_off, learned) for run, stage in missing]
    batch = RunBatch(jobs, power, lines, scored=scored)
    whole = batch.run()
    return Did(whole, batch.interrupted)


def _job(run: SweepRun, resume: bool, learned: Callable[[SweepRun, bool], Learning]) -> BatchRun:
    from edgefl.clocks.virtual.run_batch import BatchRun

    given = partial(learned, run, resume)
    return BatchRun(run.experiment, run.index, run.directory, given, resume)


REPEATED = ("seed", "seeds", FACTS)  # keys that may differ from an earlier command's


class SweepFolder:
    """The folder ``path`` of sweeps of one config.

    ``path``/SCHEME/seedN has the runs of the table. Runs that only choose the best setting are in
    ``path``/choice,seedN, so that no comparison of the folder shows them.
    """

    def __init__(self, path: Path, experiment: Experiment, base: Path) -> None:
        self.path, self.experiment, self.base = path, experiment, base

    def directory(self, scheme: str, seed: int, chooses: bool) -> Path:
        """Return the directory of a run."""
        above = self.path / f"choice,{seed_name(seed, True)}" if chooses else self.path
        return above / scheme / seed_name(seed, True)

    def check(self, axes: Sequence[GridAxis]) -> None:
        """Raise UserError if the folder is not that of a sweep of this config.

        Keys of ``axes`` may differ, because each setting has its own.
        """
        if not self.path.exists():
            return
        if not self.path.is_dir():
            raise UserError(f"--out {self.path}: is no directory")
        if not (self.path / SWEEP).is_file():
            self._check_foreign()
            return
        with undamaged(self.path / SWEEP):
            then = parsed((self.path / SWEEP).read_text(encoding="utf-8"))
            facts = then[FACTS]
            version, own = str(facts["edgefl"]), dict(facts["digests"])
        if version != __version__:
            raise UserError(
                f"{self.path}: was made by edgefl {version}, and this is edgefl {__version__}:"
                " expected another --out"
            )
        now_own = self._digests()
        changed = [name for name, digest in now_own.items() if own.get(name, digest) != digest]
        if changed:
            raise UserError(
                f"{self.path}: {listed(changed)} has changed since the sweep began: expected"
                " another --out"
            )
        now = _by_name(self.experiment.model_dump(exclude_none=True))
        but = (*REPEATED, *(_key_by_name(axis.key, self.experiment) for axis in axes))
        found = differences(now, _common(_by_name(then), now), but)
        if found:
            raise UserError(
                f"--out {self.path}: is a sweep of another config, choose another --out:"
                f" {listed(found, MOST_DIFFERENCES)}"
            )

    def _check_foreign(self) -> None:
        """Raise UserError if the folder has results of something else."""
        taken = [self.path / EXPERIMENT, *self.path.glob(f"*/{EVENTS}")]
        there = next((path for path in taken if path.is_file()), None)
        if there is not None:
            raise UserError(
                f"--out {self.path}: has runs and no {SWEEP}, so it is no sweep's folder: expected"
                " another --out"
            )

    @contextmanager
    def claimed(self) -> Iterator[None]:
        """Make and lock the folder, and write sweep.toml.

        UserError if another command writes to the folder.
        """
        with locked(self.path):
            facts = {
                "command": "sweep",
                "base": str(self.base.resolve()),
                "edgefl": __version__,
                "digests": self._digests(),
            }
            replace_file(self.path / SWEEP, dump(self.experiment, {FACTS: facts}).encode())
            yield

    def _digests(self) -> dict[str, str]:
        return digests(self.experiment, self.base)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Make ``folder`` and lock it. UserError if another command writes to it."""
    with writable(folder, "made"):
        folder.mkdir(parents=True, exist_ok=True)
    lock = RunFolder(folder)
    lock.lock()
    try:
        yield
    finally:
        lock.release()


def _by_name(tables: Mapping[str, Any]) -> dict[str, Any]:
    """Return the tables of a config with its strategies by name, so that their order is free."""
    entries = {
        entry.get("label") or entry["strategy"]: entry for entry in tables.get("strategies", [])
    }
    return {**tables, "strategies": entries}


def _common(then: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``then`` with exactly the strategies of ``now``: others may come and go."""
    entries = {
        name: then["strategies"].get(name, entry) for name, entry in now["strategies"].items()
    }
    return {**then, "strategies": entries}


def _key_by_name(key: str, experiment: Experiment) -> str:
    """Return "strategies.NAME.mu" for "strategies.0.mu"; NAME as in ``_by_name``."""
    table, _, rest = key.partition(".")
    place, dot, option = rest.partition(".")
    if table != "strategies" or not rest:
        return key
    for number, entry in enumerate(experiment.strategies):
        if place in (str(number), entry.name):
            return f"strategies.{entry.label or entry.strategy}{dot}{option}"
    return key
