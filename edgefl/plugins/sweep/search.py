"""A sweep: the settings of each method, their runs, and the best setting of each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from itertools import count
from math import prod
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from edgefl.commands.running import RESULTS, config_warnings
from edgefl.config.experiment import Experiment, Stop
from edgefl.config.file import Config
from edgefl.errors import UserError, nearest, needs
from edgefl.plugins.sweep.choice import (
    DIGITS,
    METRICS_BY_NAME,
    GridEdge,
    Metric,
    Tried,
    best_of,
    edges,
    next_setting,
)
from edgefl.plugins.sweep.choice import metric as metric_named
from edgefl.plugins.sweep.settings import (
    GridAxis,
    Setting,
    ValueRange,
    parse,
    settings,
    short_names,
    unknown_method,
)
from edgefl.plugins.sweep.sweep_runs import Did, SweepFolder, SweepRun
from edgefl.streams import Streams

# ---------------------------------------------------------------------- samplers
# Samplers: what chooses the settings of a sweep, if not every combination is run.
#
# A sampler depends only on its arguments, so that a sweep can be gone on with. SAMPLERS has the
# functions that make one of (axes, trials, metric, seed).

BATCH = 4  # settings that are tried before the next ones are chosen; not the number of workers,
# on which results must not depend
MOST_MISSES = 1000  # draws in a row that give nothing new


class Sampler(Protocol):
    """Chooses settings."""

    def next(self, tried: Sequence[Tried]) -> list[Setting]:
        """Return the settings to try next, given all that were tried; [] at the end.

        ``tried``: every setting of earlier calls, in this order.
        """
        ...


@dataclass(frozen=True, slots=True)
class Listed:
    """All of these settings at once: a grid, or points of the user."""

    settings: tuple[Setting, ...]

    def next(self, tried: Sequence[Tried]) -> list[Setting]:
        return [] if tried else list(self.settings)


def random_sampler(axes: Sequence[GridAxis], trials: int, metric: Metric, seed: int) -> Listed:
    """Draw ``trials`` settings at random, each at most once; all, if a grid has no more.

    J. Bergstra and Y. Bengio, "Random Search for Hyper-Parameter Optimization", JMLR 13 (2012): of
    many keys few matter, and drawn settings try more values of each than a grid of the same size.
    """
    rng = Streams(seed).rng("sweep")
    if all(axis.span is None for axis in axes) and (
        prod(len(axis.values) for axis in axes) <= trials
    ):
        return Listed(tuple(settings(axes)))
    drawn: dict[Setting, None] = {}
    misses = 0
    while len(drawn) < trials and misses < MOST_MISSES:
        before = len(drawn)
        drawn[Setting(tuple((axis.key, _drawn(axis, rng)) for axis in axes))] = None
        misses = misses + 1 if len(drawn) == before else 0
    return Listed(tuple(drawn))


def _drawn(axis: GridAxis, rng: np.random.Generator) -> Any:
    if axis.span is None:
        return axis.values[int(rng.integers(len(axis.values)))]
    return from_share(axis.span, float(rng.random()))


def from_share(span: ValueRange, share: float) -> Any:
    """Return the number at ``share`` (0 to 1) of a span, with DIGITS digits."""
    low, high = span.low, span.high
    at = low * (high / low) ** share if span.log else low + (high - low) * share
    if span.whole:
        return min(max(round(at), int(low)), int(high))
    return float(f"{min(max(at, low), high):.{DIGITS}g}")


@dataclass(frozen=True, slots=True)
class TpeSampler:
    """Optuna's TPE chooses settings from the scores of those before (extra ``optuna``).

    J. Bergstra et al., "Algorithms for Hyper-Parameter Optimization", NeurIPS 2011. The first ten
    settings are random. It asks a new study for every batch, after telling it all scores: nothing
    needs to be saved.
    """

    axes: Sequence[GridAxis]
    trials: int
    metric: Metric
    seed: int

    def next(self, tried: Sequence[Tried]) -> list[Setting]:
        import optuna

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        study = optuna.create_study(
            direction="maximize" if self.metric.better is max else "minimize",
            sampler=optuna.samplers.TPESampler(seed=self.seed, constant_liar=True),
        )
        failed = optuna.trial.TrialState.FAIL
        for first in range(0, len(tried), BATCH):
            batch = tried[first : first + BATCH]
            for (trial, _), each in zip(self._asked(study, len(batch)), batch):
                study.tell(trial, each.score, state=failed if each.score is None else None)
        left = min(BATCH, self.trials - len(tried))
        return [setting for _, setting in self._asked(study, left)]

    def _asked(self, study: Any, count: int) -> list[tuple[Any, Setting]]:
        """New trials of the study with their settings, which are chosen when they are asked for."""
        trials = [study.ask() for _ in range(max(count, 0))]
        return [
            (trial, Setting(tuple((axis.key, _suggested(trial, axis)) for axis in self.axes)))
            for trial in trials
        ]


def _suggested(trial: Any, axis: GridAxis) -> Any:
    if axis.span is None:
        return axis.values[trial.suggest_categorical(axis.key, list(range(len(axis.values))))]
    if axis.span.whole:
        low, high = int(axis.span.low), int(axis.span.high)
        return trial.suggest_int(axis.key, low, high, log=axis.span.log)
    return from_share(axis.span, trial.suggest_float(axis.key, 0.0, 1.0))


SAMPLERS: dict[str, Callable[..., Sampler]] = {"random": random_sampler, "optuna": TpeSampler}


def sampler(name: str, axes: Sequence[GridAxis], trials: int, metric: Metric, seed: int) -> Sampler:
    """Return the sampler ``name``. UserError if there is none, or without the package optuna."""
    if name not in SAMPLERS:
        raise UserError(f"--sampler {name}: unknown sampler{nearest(name, SAMPLERS)}")
    if name == "optuna":
        with needs("optuna", "--sampler optuna"):
            import optuna  # noqa: F401  # only whether it is there
    return SAMPLERS[name](axes, trials, metric, seed)


TRIALS = 20  # the default number of settings that a sampler chooses
CHOICE_SEED = 11  # the default seed by which the best setting is chosen


@dataclass(frozen=True, slots=True)
class SweepPlan:
    """What a sweep does with ``config``.

    ``seeds``: those of the table; (): those of the config. The best setting is chosen by ``metric``
    of its run with ``best_seed``, which is used for nothing else: a mean over seeds that also chose
    the setting would be too good. ``best_seed`` None: no setting is chosen. ``sampler``: its name;
    None: every combination of the axes' values. ``trials``: settings of each method that the
    sampler chooses. ``extend``: how many more settings of each method are tried while the best
    value of one method lies at an edge of its grid; all methods get equally many. ``only_best``:
    the seeds of the table are run with the best setting of each method alone. ``fair``: methods
    that do not get equal numbers of settings and equal emulated time are refused.
    """

    config: Config
    axes: tuple[GridAxis, ...]
    seeds: tuple[int, ...] = ()
    metric: Metric = METRICS_BY_NAME["convergence_accuracy"]
    best_seed: int | None = CHOICE_SEED
    sampler: str | None = None
    trials: int = TRIALS
    extend: int = 0
    only_best: bool = False
    fair: bool = False


def planned(
    config: Config,
    grid: Sequence[str],
    out: Path | None,
    *,
    sampler: str | None,
    trials: int | None,
    metric: str,
    best_seed: int | None,
    best: bool,
    only_best: bool,
    extend: int,
    fair: bool,
) -> Sweep:
    """Return a sweep. ``grid``: words ``key=value,value``, see ``settings.parse``.

    ``best``: choose the best setting of each method, with a seed for that. The others are those of
    ``SweepPlan``. UserError for what does not go together.
    """
    if trials is not None and sampler is None:
        raise UserError(
            f"--trials {trials}: expected --sampler random or --sampler optuna with it; without a"
            " sampler every combination of the values is run"
        )
    if sampler is not None and extend:
        raise UserError(f"--extend {extend}: is for grids, expected no --sampler with it")
    for given, option in (
        (best_seed is not None, f"--best-seed {best_seed}"),
        (only_best, "--only-best"),
        (extend > 0, f"--extend {extend}"),
    ):
        if not best and given:
            raise UserError(f"{option}: has no effect with --no-best: leave one of them out")
    axes, seeds = parse(grid, ranges=sampler is not None)
    wanted = metric_named(metric)
    whole = config.experiment()
    if best and best_seed is None:
        best_seed = free_seed(seeds or [one.seed for one in whole.by_seed()])
    trials = trials or TRIALS
    plan = SweepPlan(
        config, axes, seeds, wanted, best_seed, sampler, trials, extend, only_best, fair
    )
    return Sweep(plan, out or RESULTS / f"{whole.name}-sweep")


def free_seed(seeds: Sequence[int]) -> int:
    """Return the seed for the choice if the user names none: CHOICE_SEED, or the next free one."""
    return next(seed for seed in count(CHOICE_SEED) if seed not in seeds)


@dataclass(slots=True)
class Method:
    """A strategy of the config: the axes that change it, and what was tried."""

    number: int
    name: str
    axes: tuple[GridAxis, ...]
    sampler: Sampler
    tried: list[Tried] = field(default_factory=list)

    @property
    def settings(self) -> list[Setting]:
        """The different settings that were tried or are being tried, in order."""
        return list(dict.fromkeys(each.setting for each in self.tried))


class Sweep:
    """All runs of a plan, in ``folder``.

    UserError if the plan, or a setting of it, is not valid.
    """

    def __init__(self, plan: SweepPlan, folder: Path) -> None:
        self.plan = plan
        self.base = plan.config.base
        self.whole = plan.config.experiment()
        self.seeds = plan.seeds or tuple(one.seed for one in self.whole.by_seed())
        self.experiment = self.whole.by_seed()[0]
        self.short = short_names(plan.axes)
        self.folder = SweepFolder(folder, self.experiment, self.base)
        self.methods = self._methods()
        self.metric = plan.metric
        self.best_seed = plan.best_seed if any(each.axes for each in self.methods) else None
        if self.best_seed in self.seeds:
            raise UserError(
                f"--best-seed {self.best_seed}: is a seed of the table: expected another one, since"
                " the best setting is chosen on a seed of its own"
            )
        self._ones: dict[tuple[int, Setting], Experiment] = {}
        self.first = [(each, each.sampler.next([])) for each in self.methods]
        self.folder.check(plan.axes)
        # with the later runs of --only-best, so that no run is for nothing
        runs = self._runs(self.first, (*self._first_seeds, *self.seeds))
        for run in runs:
            plan.metric.check(run.experiment)
        if plan.fair:
            self._refuse_unfair([run.experiment for run in runs])

    def _methods(self) -> list[Method]:
        plan, names = self.plan, [entry.name for entry in self.experiment.strategies]
        unknown_method(plan.axes, names)
        methods = []
        for number, name in enumerate(names):
            axes = tuple(axis for axis in plan.axes if axis.is_for(number, name))
            methods.append(Method(number, name, axes, self._sampler(axes)))
        for axis in plan.axes:
            if not any(axis in each.axes for each in methods):
                plan.config.experiment(_any_of(axis).overrides())  # says what it is
                raise UserError(f"--grid {axis.key}: changes no strategy of {plan.config.called}")
        return methods

    def _sampler(self, axes: tuple[GridAxis, ...]) -> Sampler:
        plan = self.plan
        if plan.sampler is None or not axes:
            return Listed(tuple(settings(axes)))
        if plan.best_seed is None:
            raise UserError(f"--sampler {plan.sampler}: chooses by a metric: leave --no-best out")
        return sampler(plan.sampler, axes, plan.trials, plan.metric, plan.best_seed)

    # ------------------------------------------------------------------ runs of settings
    @property
    def _first_seeds(self) -> tuple[int, ...]:
        """The seeds with which every setting is run; that of the choice comes first."""
        choice = () if self.best_seed is None else (self.best_seed,)
        return choice if choice and self.plan.only_best else (*choice, *self.seeds)

    def run_of(self, method: Method, setting: Setting, seed: int) -> SweepRun:
        """Return one run. UserError if the setting is not valid."""
        key = method.number, setting
        if key not in self._ones:
            whole = self.plan.config.experiment(self.changes(setting))
            self._ones[key] = whole.model_copy(
                update={"strategies": (whole.strategies[method.number],), "seeds": None}
            )
        one = self._ones[key].model_copy(update={"seed": seed})
        scheme = self.scheme(method, setting)
        directory = self.folder.directory(scheme, seed, chooses=seed == self.best_seed)
        return SweepRun(one, 0, directory, self.base)

    def changes(self, setting: Setting) -> list[str]:
        """Return a setting as changes to the config."""
        return setting.overrides()

    def scheme(self, method: Method, setting: Setting) -> str:
        """Return the name of a setting of a method, and of its directory."""
        named = setting.named(self.short)
        return f"{method.name},{named}" if named else method.name

    def _runs(
        self, asked: Sequence[tuple[Method, Sequence[Setting]]], seeds: Sequence[int]
    ) -> list[SweepRun]:
        """Return these runs. UserError if the directory of one has a run of another config."""
        found = [
            self.run_of(method, setting, seed)
            for seed in seeds
            for method, its in asked
            for setting in its
        ]
        runs = list({run.directory: run for run in found}.values())  # a sampler may repeat one
        for run in runs:
            run.refuse_another()
        return runs

    def runs(self) -> list[SweepRun]:
        """Return all runs that are known so far."""
        asked = [(each, each.settings or first) for each, first in self.first]
        found = self._runs(asked, self._first_seeds)
        if self.plan.only_best:
            found += self._runs(self._best_settings(), self.seeds)
        return found

    # ------------------------------------------------------------------ doing them
    def claimed(self) -> AbstractContextManager[None]:
        """Lock the folder for ``do``. UserError if another command writes to it."""
        return self.folder.claimed()

    def do(self, do_runs: Callable[[Sequence[SweepRun]], Did]) -> Did:
        """Do all runs that are not done, by ``do_runs``; a Ctrl-C or a death ends it early."""
        did, asked = Did(), self.first
        while did.to_the_end and any(its for _, its in asked):
            did = self._try(asked, do_runs)
            if did.to_the_end:
                asked = [(each, each.sampler.next(each.tried)) for each in self.methods]
        for _ in range(self.plan.extend):
            if not did.to_the_end or not any(map(self.open_edges, self.methods)):
                break
            asked = [(each, self._one_more(each)) for each in self.methods]
            if self.plan.fair and not all(its for _, its in asked):
                break  # a method has nothing more to try, so the others get nothing more
            did = self._try(asked, do_runs)
        if did.to_the_end and self.plan.only_best:
            did = do_runs(self._runs(self._best_settings(), self.seeds))
        return did

    def _try(
        self,
        asked: Sequence[tuple[Method, Sequence[Setting]]],
        do_runs: Callable[[Sequence[SweepRun]], Did],
    ) -> Did:
        did = do_runs(self._runs(asked, self._first_seeds))
        for method, its in asked:
            method.tried += [Tried(setting, self.score(method, setting)) for setting in its]
        return did

    def _best_settings(self) -> list[tuple[Method, Sequence[Setting]]]:
        return [(each, [top.setting]) for each in self.methods if (top := self.best(each))]

    def score(self, method: Method, setting: Setting) -> float | None:
        """Return the number by which a setting is chosen; None if it has none yet."""
        if self.best_seed is None:
            return None
        run = self.run_of(method, setting, self.best_seed)
        return self.metric.of(run.directory) if run.is_done else None

    def best(self, method: Method) -> Tried | None:
        """Return the best setting so far; None without a choice, or if none has a score."""
        return best_of(method.tried, self.metric)

    def edges(self, method: Method) -> list[GridEdge]:
        """Return where the best value of a method lies at an edge of what was tried."""
        return edges(method.axes, method.tried, self.metric)

    def open_edges(self, method: Method) -> list[GridEdge]:
        """Return the edges beyond which there is a valid value."""
        best = self.best(method)
        return [
            edge
            for edge in self.edges(method)
            if best is not None
            and edge.beyond is not None
            and self._is_valid(method, best.setting.with_value(edge.axis.key, edge.beyond))
        ]

    def _one_more(self, method: Method) -> list[Setting]:
        made = next_setting(
            method.axes, method.tried, self.metric, lambda setting: self._is_valid(method, setting)
        )
        return [] if made is None else [made]

    def _is_valid(self, method: Method, setting: Setting) -> bool:
        try:
            self.run_of(method, setting, self.seeds[0])
        except UserError:
            return False
        return True

    def _refuse_unfair(self, experiments: Sequence[Experiment]) -> None:
        """Raise UserError unless all methods have equal numbers of settings and equal time."""
        unequal = self.unequal()
        if unequal is not None:
            raise UserError(f"--fair: {unequal}")
        stops = {one.stop for one in experiments}
        times = {stop.emulated_s for stop in stops}
        if len(times) > 1 or stops != {Stop(emulated_s=time_s) for time_s in times if time_s}:
            raise UserError(
                f"--fair: {self.plan.config.called}: stop: expected emulated_s alone, and the same"
                " for all settings, so that all strategies have equal time"
            )

    def warnings(self) -> list[str]:
        """Return the warnings about the config, and about a comparison that is not fair."""
        return [*config_warnings(self.whole, self.base), *filter(None, [self.unequal()])]

    def unequal(self) -> str | None:
        """Return a warning if the methods get different numbers of settings; None if not."""
        counts = {each.name: len(first) for each, first in self.first}
        if len(set(counts.values())) < 2:
            return None
        said = ", ".join(f"{name} {number}" for name, number in counts.items())
        return (
            f"the strategies get different numbers of settings, which is no fair comparison: {said}"
        )


def _any_of(axis: GridAxis) -> Setting:
    value = axis.values[0] if axis.span is None else axis.span.low
    return Setting(((axis.key, value),))
