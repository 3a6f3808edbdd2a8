"""From a part of an entry to what is run: configs, tuning sweeps, and the rules of fairness.

Tuning is a sweep of ``edgefl.plugins.sweep`` that takes its scores from the result files. Its grid
is derived: the knobs of the part and the axes of each method.
"""

from __future__ import annotations

import hashlib
import math
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import orjson
import tomli_w

from edgefl.clocks.setup.resumption import RunStage, run_stage
from edgefl.config.experiment import Experiment, Stop
from edgefl.config.file import Config, base_of, load, toml_value
from edgefl.errors import UserError, listed, nearest
from edgefl.plugins.sweep.choice import Tried, best_of, metric
from edgefl.plugins.sweep.search import Method, Sampler, Sweep, SweepPlan
from edgefl.plugins.sweep.settings import GridAxis, Setting, quoted, settings, toml_text
from edgefl.plugins.sweep.sweep_runs import SweepRun
from edgefl.results.run_files import replace_file, seed_name
from edgefl.strategies.base import catalog
from edgefl.strategies.base.rounds import Rounds
from edgefl.strategies.tdma_fl import SyncTdmaFL
from reproduction.entry import ROOT, WALL, Entry, MethodPlan, Part, Scale, Tuning
from reproduction.results import CONFIRMING, RESULT, TUNING, Key, setting_text

SMALLEST_SHARE = 0.1  # of the budget, for tuning
TOGETHER = 2  # knobs that are tried in every combination
FINALISTS = 2  # values of the first knob that are confirmed
DECAY = "training.decay"
NOT_COUNTED = ("name", "seed", "seeds", "record", "network", "fidelity")  # change no result
SYNCHRONOUS = (Rounds, SyncTdmaFL)


@dataclass(frozen=True, slots=True)
class PlannedRun:
    """A run with its place in the result files. ``setting``: the tuned values, as text."""

    part: Part
    method: MethodPlan
    role: str
    setting: Mapping[str, str]
    run: SweepRun
    scale: Scale

    @property
    def seed(self) -> int:
        return self.run.experiment.seed

    @property
    def key(self) -> Key:
        """As ``results.key_of`` of its row."""
        setting = "" if self.role == RESULT else setting_text(self.setting)
        return self.scale, self.part.name, self.method.shown, self.role, self.seed, setting

    @property
    def config_digest(self) -> str:
        one = self.run.experiment.model_copy(update={"strategies": (self.run.entry,)})
        return config_digest(one)

    @property
    def stage(self) -> RunStage | None:
        """How far it got in an earlier command; None if its directory has another run."""
        if self.part.clock != WALL:
            return self.run.stage()
        if (
            self.wall_config.is_file()
            and config_digest(load(self.wall_config)) == self.config_digest
        ):
            return run_stage(self.run.directory)
        return None

    @property
    def wall_config(self) -> Path:
        """The config of a run on the wall clock, beside its folder."""
        folder = self.run.directory.parent
        return folder.with_name(f"{folder.name}.toml")

    def __str__(self) -> str:
        """Return "fedasmu mu_beta=3.0 of main, seed 1"."""
        setting = setting_text(self.setting)
        of = f"{self.method.shown} {setting}" if setting else self.method.shown
        return f"{of} of {self.part.name}, seed {self.seed}"


@dataclass(frozen=True, slots=True)
class PartPlan:
    """A part at a scale, with its configs and runs below ``folder``.

    ``changes``: more changes to the config, of the command line.
    """

    entry: Entry
    part: Part
    scale: Scale
    folder: Path
    changes: tuple[str, ...] = ()

    @property
    def overrides(self) -> tuple[str, ...]:
        return (*self.part.overrides_at(self.scale), *self.changes)

    @property
    def tuned(self) -> list[MethodPlan]:
        """The methods that have tuning runs."""
        if self.part.tuning is None:
            return []
        return [method for method in self.part.methods if not method.tuned_as]

    def axes(self, method: MethodPlan) -> dict[str, tuple[Any, ...]]:
        """Return what is tuned of a method, in the order in which it is tried."""
        assert self.part.tuning is not None  # the caller has looked
        knobs = dict(self.part.tuning.knobs)
        first = dict(list(knobs.items())[:1])
        return {**first, **method.axes, **knobs, **method.axes}

    @property
    def config(self) -> Path:
        """The config of the table's runs, which can be run by hand."""
        return self.folder / "configs" / f"{self.part.name}.toml"

    def experiment(self) -> Experiment:
        """Write the config and load it. UserError if it is not valid."""
        self._write(self.config, self.part.methods)
        return load(self.config, self.overrides)

    def check(self) -> None:
        """Raise UserError if the part is not valid, or not a fair comparison."""
        where, part = f"{self.entry.name}, part {self.part.name}", self.part
        names = [method.shown for method in part.methods]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise UserError(f"{where}: two methods have the name {twice!r}")
        try:
            whole = self.experiment()
        except UserError as error:
            raise UserError(f"{where}: {error}") from error
        self._check_changes(where)
        if part.tuning is None and any(method.axes for method in part.methods):
            raise UserError(f"{where}: its methods have axes: expected tuning")
        if part.tuning is not None:
            self._check_tuning(where, part.tuning)
        if part.clock == WALL and part.tuning is not None:
            raise UserError(f"{where}: is on the wall clock: expected settings_of, not tuning")
        refuse_unequal_time(where, whole, base_of(self.config))

    def _check_changes(self, where: str) -> None:
        for method in self.part.methods:
            if method.changes and self.part.tuning is not None:
                raise UserError(f"{where}: {method.shown}: expected no changes in a tuned part")
            stops = [change for change in method.changes if change.startswith("stop")]
            if stops:
                raise UserError(
                    f"{where}: {method.shown}: {stops[0]}: expected an equal stop for all methods"
                )

    def _check_tuning(self, where: str, tuning: Tuning) -> None:
        if tuning.share < SMALLEST_SHARE:
            raise UserError(
                f"{where}: tuning.share {tuning.share:g}: expected at least {SMALLEST_SHARE:g}"
            )
        for key, seeds in (("seeds", tuning.seeds), ("confirm", tuning.confirm)):
            for seed in seeds:
                if seed in self.part.seeds_at(self.scale):
                    raise UserError(f"{where}: tuning.{key} {seed}: is a seed of the table")
        again = set(tuning.seeds) & set(tuning.confirm)
        if again:
            raise UserError(
                f"{where}: tuning.confirm {min(again)}: is a seed of tuning.seeds: expected others"
            )
        tuned = [each.shown for each in self.tuned]
        for method in self.part.methods:
            for key, names in (("tuned_as", [method.tuned_as]), ("within", method.within)):
                wrong = next((name for name in names if name and name not in tuned), None)
                if wrong is not None:
                    raise UserError(
                        f"{where}: {method.shown}: {key} {wrong!r}: expected a method of the part"
                        " that is tuned itself"
                    )
        untuned = next((each.shown for each in self.tuned if not self.axes(each)), None)
        if untuned is not None:
            raise UserError(f"{where}: {untuned}: has nothing to tune: expected tuning.knobs")

    def _write(self, path: Path, methods: Sequence[MethodPlan]) -> None:
        config = {
            "extends": str(self.part.config.resolve()),
            "name": f"{self.entry.name}-{self.part.name}",
            "strategies": strategies(self.part.config, methods),
        }
        replace_file(path, tomli_w.dumps(config).encode())

    # ------------------------------------------------------------------ tuning
    def sweep(self, score_of: Callable[[Key], float | None]) -> PartSweep:
        """Return the sweep that finds the best settings. ``score_of``: the metric of a done run."""
        tuning = self.part.tuning
        assert tuning is not None  # the caller has looked
        path = self.config.with_name(f"{self.part.name}-tuning.toml")
        self._write(path, self.tuned)
        plan = SweepPlan(
            config=Config.read(path).changed(
                (*self.overrides, *self._shorter(tuning), *tuning.overrides)
            ),
            axes=tuple(
                axis_of(number, method, name, values)
                for number, method in enumerate(self.tuned)
                for name, values in self.axes(method).items()
            ),
            seeds=self.part.seeds_at(self.scale),
            metric=metric(tuning.metric),
            best_seed=tuning.seeds[0],
            extend=tuning.extend,
            only_best=True,
        )
        return PartSweep(plan, self, score_of)

    def _shorter(self, tuning: Tuning) -> list[str]:
        """Return the part's limits times the share of the budget."""
        stop = self.experiment().stop.model_dump(exclude_none=True)
        return [
            f"stop.{name}={math.ceil(value * tuning.share)}"
            if isinstance(value, int)
            else f"stop.{name}={value * tuning.share!r}"
            for name, value in stop.items()
        ]

    # ------------------------------------------------------------------ the table
    def table(self, best: Mapping[str, Mapping[str, str]]) -> list[PlannedRun]:
        """Return the runs of the table, seed by seed; ``best``: method -> its best setting."""
        settings = {each.shown: self.own(each, best) for each in self.part.methods}
        ones = {each.shown: self.whole(each, settings[each.shown]) for each in self.part.methods}
        base = base_of(self.config)
        return [
            PlannedRun(
                self.part,
                method,
                RESULT,
                settings[method.shown],
                SweepRun(
                    ones[method.shown].model_copy(update={"seed": seed}),
                    0,
                    self.directory(method, seed),
                    base,
                ),
                self.scale,
            )
            for seed in self.part.seeds_at(self.scale)
            for method in self.part.methods
        ]

    def whole(self, method: MethodPlan, setting: Mapping[str, str]) -> Experiment:
        """Return the experiment of a method with a setting, over the whole time."""
        number, stop = self.part.methods.index(method), self.experiment().stop
        words = [change(key_in(number, name), value, stop) for name, value in setting.items()]
        whole = load(self.config, (*self.overrides, *method.changes, *words))
        return whole.model_copy(update={"strategies": (whole.strategies[number],), "seeds": None})

    def directory(self, method: MethodPlan, seed: int) -> Path:
        """Return the directory of a table run; on the wall clock, as ``edgefl run`` makes it."""
        if self.part.clock == WALL:
            one = f"{method.shown}-{seed_name(seed, True)}"
            return self.folder / self.part.name / one / method.shown
        return self.folder / self.part.name / method.shown / seed_name(seed, True)

    def own(self, method: MethodPlan, best: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
        """Return those of the best values that the method has."""
        found = best.get(method.tuned_as or method.shown, {})
        (entry,) = strategies(self.part.config, [method])
        kind = catalog.load(entry["strategy"], base_of(self.part.config))
        options = kind.Options.model_fields
        return {name: value for name, value in found.items() if "." in name or name in options}


def run_command(
    part: Part, method: MethodPlan, setting: Mapping[str, str], scale: Scale, seeds: Sequence[int]
) -> str:
    """Return the `edgefl run` that repeats a method's table runs, from the repository's folder."""
    clock = [] if part.clock == WALL else ["--clock", "virtual"]
    words = ["edgefl", "run", part.config.relative_to(ROOT).as_posix(), *clock]
    changes = [
        each if '"' in each else each.replace("'", '"')  # a shell needs fewer marks around it
        for each in run_changes(part, method, setting, scale)
    ]
    return shlex.join([*words, *changes, f"seeds={[*seeds]}"])


def run_changes(
    part: Part, method: MethodPlan, setting: Mapping[str, str], scale: Scale
) -> list[str]:
    """Return the changes to a part's config that leave one method, with this setting."""
    (entry,) = strategies(part.config, [method])
    entry |= {name: toml_value(text) for name, text in setting.items() if "." not in name}
    changes = [f"strategies=[{quoted(entry)}]", *part.overrides_at(scale), *method.changes]
    stop = load(part.config, changes).stop
    return changes + [change(name, text, stop) for name, text in setting.items() if "." in name]


class PartSweep(Sweep):
    """The sweep of a part's settings: it takes scores from the result files, not from runs."""

    def __init__(
        self, plan: SweepPlan, part: PartPlan, score_of: Callable[[Key], float | None]
    ) -> None:
        self._part, self._score_of = part, score_of
        self._places: dict[Path, tuple[Method, Setting]] = {}
        super().__init__(plan, part.folder / f"{part.part.name}-tuning")

    @property
    def _first_seeds(self) -> tuple[int, ...]:
        return self._tuning.seeds

    @property
    def _tuning(self) -> Tuning:
        assert self._part.part.tuning is not None  # else there is no sweep
        return self._part.part.tuning

    def _sampler(self, axes: tuple[GridAxis, ...]) -> Sampler:
        return Knobs(axes, self)

    def changes(self, setting: Setting) -> list[str]:
        return [change(key, toml_text(value), self.whole.stop) for key, value in setting.values]

    def of_others(self, mine: Knobs) -> list[Setting]:
        """Return the best settings of the methods within this one, and of those it is within."""
        own = next(each for each in self.methods if each.sampler is mine)
        found = []
        for method in self.methods:
            top = self.best(method)
            inner, outer = (self._part.part.method(each.name).within for each in (method, own))
            if top is not None and (own.name in inner or method.name in outer):
                found += self._in_terms_of(own, method, top.setting)
        return found

    def _in_terms_of(self, own: Method, other: Method, setting: Setting) -> list[Setting]:
        """Return another method's setting as one of ``own``; [] if it does not give all axes."""
        given = {_short(key): value for key, value in setting.values}
        given |= self._part.part.method(other.name).within.get(own.name, {})
        values = tuple((axis.key, given.get(_short(axis.key))) for axis in own.axes)
        return [] if any(value is None for _, value in values) else [Setting(values)]

    def run_of(self, method: Method, setting: Setting, seed: int) -> SweepRun:
        run = super().run_of(method, setting, seed)
        self._places[run.directory] = method, setting
        return run

    def planned(self, runs: Sequence[SweepRun]) -> list[PlannedRun]:
        """Return those of ``runs`` that choose the setting, with their places in the files.

        The sweep's own table runs are left out: they have only the budget of the tuning.
        """
        return [self._planned(run) for run in runs if run.experiment.seed in self._tuning.seeds]

    def _planned(self, run: SweepRun) -> PlannedRun:
        method, setting = self._places[run.directory]
        plan = self._part.part.method(method.name)
        return PlannedRun(self._part.part, plan, TUNING, texts_of(setting), run, self._part.scale)

    def score(self, method: Method, setting: Setting) -> float | None:
        runs = [self.run_of(method, setting, seed) for seed in self._tuning.seeds]
        return self._mean([self._planned(run) for run in runs])

    def _mean(self, runs: Sequence[PlannedRun]) -> float | None:
        scores = [self._score_of(run.key) for run in runs]
        there = [score for score in scores if score is not None]
        return fmean(there) if len(there) == len(scores) else None

    # ------------------------------------------------------------------ the best ones
    def confirming(self) -> list[PlannedRun]:
        """Return the runs over the whole time that choose among each method's finalists."""
        return [
            run
            for method in self.methods
            for setting in self._finalists(method)
            for run in self._whole(method, setting)
        ]

    def _finalists(self, method: Method) -> list[Setting]:
        """Return the best settings of the two best first knobs, and those of nested methods.

        A method within another one tries the other's, too, in its own terms.
        """
        found = self._own_finalists(method)
        for other in self.methods:
            inner, outer = (self._part.part.method(each.name).within for each in (other, method))
            if method.name in inner or other.name in outer:
                for setting in self._own_finalists(other):
                    found += self._in_terms_of(method, other, setting)
        return list(dict.fromkeys(found))

    def _own_finalists(self, method: Method) -> list[Setting]:
        first, left, found = method.axes[0].key, list(method.tried), list[Setting]()
        while len(found) < FINALISTS and (top := best_of(left, self.metric)):
            found.append(top.setting)
            left = [each for each in left if each.setting[first] != top.setting[first]]
        return found

    def _whole(self, method: Method, setting: Setting) -> list[PlannedRun]:
        part, texts = self._part, texts_of(setting)
        plan = part.part.method(method.name)
        one, folder = part.whole(plan, texts), part.folder / f"{part.part.name}-confirming"
        return [
            PlannedRun(
                part.part,
                plan,
                CONFIRMING,
                texts,
                SweepRun(
                    one.model_copy(update={"seed": seed}),
                    0,
                    folder / self.scheme(method, setting) / seed_name(seed, True),
                    base_of(part.config),
                ),
                part.scale,
            )
            for seed in self._tuning.confirm
        ]

    def best_settings(self) -> dict[str, dict[str, str]]:
        """Return method -> its best setting so far, of those that have a score."""
        found = {}
        for method in self.methods:
            top = self.best(method)
            if self._tuning.confirm:
                finalists = self._finalists(method)
                whole = [Tried(each, self._mean(self._whole(method, each))) for each in finalists]
                top = best_of(whole, self.metric) or top
            if top is not None:
                found[method.name] = texts_of(top.setting)
        return found


class Knobs:
    """Tries two knobs in every combination, then the others, each at the best setting so far.

    At last it tries the best settings of nested methods, so all methods must have come so far: a
    method with fewer knobs waits.
    """

    def __init__(self, axes: Sequence[GridAxis], sweep: PartSweep) -> None:
        self._axes, self._sweep = axes, sweep
        self._calls = 0

    def next(self, tried: Sequence[Tried]) -> list[Setting]:
        last = max(len(method.axes) for method in self._sweep.methods) - TOGETHER + 1
        self._calls += 1
        if self._calls == 1:
            rest = [GridAxis(axis.key, axis.values[:1]) for axis in self._axes[TOGETHER:]]
            return settings([*self._axes[:TOGETHER], *rest])
        best, known = best_of(tried, self._sweep.metric), {each.setting for each in tried}
        if best is None:
            return []
        if self._calls > last:
            made = self._sweep.of_others(self) if self._calls == last + 1 else []
        else:
            knob = self._axes[TOGETHER + self._calls - 2 :][:1]
            made = [best.setting.with_value(axis.key, v) for axis in knob for v in axis.values]
        return [each for each in dict.fromkeys(made) if each not in known]


# ------------------------------------------------------------------ fairness
def refuse_unequal_time(where: str, whole: Experiment, base: Path) -> None:
    """Raise UserError if synchronous and asynchronous strategies do not stop at one time alone."""
    kinds = {entry.name: is_synchronous(entry.strategy, base) for entry in whole.strategies}
    if len(set(kinds.values())) < 2 or whole.stop == Stop(emulated_s=whole.stop.emulated_s or 1.0):
        return
    synchronous = [name for name, is_one in kinds.items() if is_one]
    others = [name for name in kinds if name not in synchronous]
    given = ", ".join(whole.stop.model_dump(exclude_none=True))
    raise UserError(
        f"{where}: stop: expected emulated_s alone, found {given}: {listed(synchronous)} is"
        f" synchronous and {listed(others)} is not, so only equal emulated time is fair"
    )


def is_synchronous(strategy: str, base: Path) -> bool:
    """Return whether a strategy waits for all devices of a round."""
    return issubclass(catalog.load(strategy, base), SYNCHRONOUS)


# ------------------------------------------------------------------ configs
def config_digest(experiment: Experiment) -> str:
    """Return "c1a2b3c4d": a digest of what decides the numbers of an experiment.

    Names, and what changes no result, do not count; nor do keys that have their default, so that a
    new key changes no digest.
    """
    counted = experiment.model_dump(
        mode="json", exclude_none=True, exclude_defaults=True, exclude=set(NOT_COUNTED)
    )
    counted.get("data", {}).pop("dir", None)
    for entry in counted["strategies"]:
        entry.pop("label", None)
    return f"c{short_hash(counted)}"


def short_hash(facts: Mapping[str, Any]) -> str:
    """Return eight hex digits that differ for different facts."""
    text = orjson.dumps(facts, option=orjson.OPT_SORT_KEYS)
    # twice, as the digests of earlier versions, with which rows of result files are compared
    return hashlib.sha256(hashlib.sha256(text).digest()).hexdigest()[:8]


def strategies(config: Path, methods: Sequence[MethodPlan]) -> list[dict[str, Any]]:
    """Return the config's entries of ``methods``, with their options and names.

    UserError if the config has no such strategy.
    """
    known = {entry.name: entry.model_dump(exclude_none=True) for entry in load(config).strategies}
    missing = next((each.label for each in methods if each.label not in known), None)
    if missing is not None:
        raise UserError(f"{config}: no strategy {missing!r}{nearest(missing, known)}")
    return [{**known[each.label], **each.options, "label": each.shown} for each in methods]


def axis_of(number: int, method: MethodPlan, name: str, values: Sequence[Any]) -> GridAxis:
    """Return the axis of an option, or of a key of the config, of the strategy at ``number``."""
    return GridAxis(key_in(number, name), tuple(values), methods=(method.shown,))


def key_in(number: int, name: str) -> str:
    """Return the key of an axis: that of the strategy at ``number`` for a name without a dot."""
    return name if "." in name else f"strategies.{number}.{name}"


def change(key: str, value: str, stop: Stop) -> str:
    """Return a tuned value as a change to the config.

    That of DECAY is a number: what is left of the learning rate at the end of the run, until which
    it falls evenly. UserError unless it is above 0 and at most 1.
    """
    if key != DECAY:
        return f"{key}={value}"
    left = float(value)
    if not 0 < left <= 1:
        raise UserError(f"{DECAY}: expected above 0 and at most 1, found {value}")
    if left == 1:
        return f"{DECAY}={{name='exponential', factor=1.0}}"  # the learning rate stays the same
    end = f"over_s={stop.emulated_s}"
    if stop.emulated_s is None:
        end = f"over_versions={stop.versions}"
    return f"{DECAY}={{name='linear', {end}, floor={left}}}"


def texts_of(setting: Setting) -> dict[str, str]:
    """Return a setting as a plan and the result files have it."""
    return {_short(key): toml_text(value) for key, value in setting.values}


def _short(key: str) -> str:
    """Return an axis' name as a plan has it."""
    return key.split(".", 2)[2] if key.startswith("strategies.") else key
