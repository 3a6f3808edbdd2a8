"""Runs as rows of numbers, and strategies against a baseline, over seeds, on a chosen x.

Start with ``load`` (runs as ``Row``, for comparison.csv) and ``answer`` (a ``Question`` about
several strategies). ``edgefl.results.tables`` shows both.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from types import NoneType
from typing import Any, get_args

from edgefl.config.scores import ACCURACY, SCORES, Score, score_of, target_in
from edgefl.errors import UserError, nearest, undamaged
from edgefl.record.files import ENERGY, EVENTS, LINKS, METRICS, SUMMARY
from edgefl.results import age, energy, run_files, summary
from edgefl.results.differences import Difference, differences, in_one_line
from edgefl.results.read import is_torn, number, read_csv, read_events
from edgefl.results.run_files import RunFiles
from edgefl.results.statistics import (
    Interval,
    Method,
    PairedEffect,
    Reached,
    Spread,
    difference,
    holm,
    interval,
    speed_up,
    spread,
)
from edgefl.results.summary import AXES, DIVERGED, FAILED, INTERRUPTED, STRAINED, UNFINISHED, Axis

Record = dict[str, Any]  # a row of a file, by its columns


# ---------------------------------------------------------------------- runs
@dataclass(frozen=True, slots=True)
class Row:
    """One run; the fields are the columns of comparison.csv.

    The seeds of a strategy share their ``name``. ``verdict``: see ``summary.verdict``; "unfinished"
    if the run has no summary; ``finished`` is the reason why it ended. The accuracies and their
    target are those of the run's ``metric``, if that is another score; the columns are then named
    after it.
    """

    name: str
    strategy: str
    clock: str | None
    seed: int | None
    final_accuracy: float | None
    convergence_accuracy: float | None
    best_accuracy: float | None
    stability: float | None
    target_accuracy: float | None
    time_to_target_s: float | None
    versions: int
    updates_received: int | None  # None: an old run that did not count it
    updates_applied: int
    updates_discarded: int
    bytes_up: int
    bytes_down: int
    staleness_mean: float | None
    staleness_max: int | None
    emulated_s: float | None
    wall_s: float | None
    finished: str | None
    verdict: str
    reasons: str
    warnings: str = ""  # all of them in one line
    resumptions: int = 0
    outage_s: float = 0.0  # wall seconds between a break and the resumption, all together
    joules: float | None = None  # None: its config has no powers
    joules_to_target: float | None = None
    joules_kind: str | None = None  # "modelled" or "measured"
    raw_bytes_up: int | None = None  # without compression; None: the run has none
    raw_bytes_down: int | None = None
    # the emulated seconds over which ``convergence_accuracy`` is the mean; None: a run of an older
    # version, where it is the mean of the last ten evaluations
    convergence_from_s: float | None = None
    convergence_to_s: float | None = None
    metric: str = ACCURACY.name  # which score ``final_accuracy`` and the others are
    # by the names of ``age.QUANTITIES``, which are columns, too; {} unless asked for: see with_ages
    ages: Mapping[str, float] = field(default_factory=dict)

    @property
    def score(self) -> Score:
        return SCORES.get(self.metric, ACCURACY)

    @property
    def mark(self) -> str:
        """The verdict, or "interrupted" if the run was broken off before its own end."""
        return INTERRUPTED if self.finished in summary.BROKEN_OFF else self.verdict


# of Row: taken from summary.json as they are; counts are 0 if they are missing
TAKEN = (
    *("clock", "seed", "final_accuracy", "convergence_accuracy", "best_accuracy", "stability"),
    *("target_accuracy", "time_to_target_s", "updates_received", "emulated_s", "wall_s"),
    "finished",
)
COUNTS = ("versions", "updates_applied", "bytes_up", "bytes_down")
# of Row: what has a spread over seeds
QUANTITIES = (
    *("final_accuracy", "convergence_accuracy", "best_accuracy", "stability", "time_to_target_s"),
    *("versions", "updates_received", "updates_applied", "updates_discarded"),
    *("bytes_up", "bytes_down", "staleness_mean", "emulated_s", "wall_s"),
    *("joules", "joules_to_target"),
)


def load(*paths: Path) -> list[Row]:
    """Load every run in ``paths`` or below, the seeds of a strategy one after another.

    UserError if a path holds no run, or if a number of summary.json is none.
    """
    found = run_files.find(paths)
    return [loaded(run, name) for name, directories in found.items() for run in directories]


def loaded(run: Path, name: str) -> Row:
    """Load a run. UserError if a number of summary.json is none."""
    with undamaged(run):
        row = load_run(run, name)
    for each in fields(row):
        value = getattr(row, each.name)
        numeric = str(each.type).removesuffix(" | None") in ("int", "float")
        if numeric and not isinstance(value, (int, float, NoneType)):
            place = f"{run / SUMMARY}: {each.name}"
            raise UserError(f"{place}: expected a number, found {value!r:.60}")
    return row


def load_run(run: Path, name: str) -> Row:
    """Load a run's summary.json, or else what its events and metrics give, as "unfinished"."""
    facts = run_files.read_summary(run) or _unfinished(run)
    mean, largest = summary.staleness_stats(facts.get("staleness", {}))
    score, outages = score_of(facts), facts.get("resumed", ())
    used, raw = facts.get("energy", {}), facts.get("compression", {})
    begin_s, end_s = facts.get("convergence_window_s") or (None, None)
    taken: dict[str, Any] = {key: facts.get(in_words_of(key, score)) for key in TAKEN}
    return Row(
        name=name,
        strategy=facts.get("strategy") or run_files.title(run).split(" seed ")[0],
        updates_discarded=sum(facts.get("updates_discarded", {}).values()),
        staleness_mean=mean,
        staleness_max=largest,
        verdict=summary.verdict(facts),
        reasons="; ".join(facts.get("fidelity", {}).get("reasons", ())),
        warnings="; ".join(facts.get("warnings", ())),
        resumptions=len(outages),
        outage_s=sum(each["outage_s"] for each in outages),
        joules=used.get("joules"),
        joules_to_target=used.get("joules_to_target"),
        joules_kind=used.get("kind"),
        raw_bytes_up=raw.get("raw_bytes_up"),
        raw_bytes_down=raw.get("raw_bytes_down"),
        convergence_from_s=begin_s,
        convergence_to_s=end_s,
        metric=score.name,
        **taken,
        **{key: facts.get(key, 0) for key in COUNTS},
    )


def _unfinished(run: Path) -> dict[str, Any]:
    """The summary of a run that has none."""
    metrics, config = read_csv(run / METRICS), run_files.read_config(run)
    torn = [name for name in (EVENTS, METRICS, LINKS, ENERGY) if is_torn(run / name)]
    reason = "no complete summary.json: the run crashed or still runs; values so far" + (
        f" (torn last line in {', '.join(torn)})" if torn else ""
    )
    events = read_events(run / EVENTS)
    counted = summary.counters(events, read_csv(run / LINKS))
    evaluation = config.get("evaluation", {})
    latest_s = max((t for row in events if (t := number(row.get("t")))), default=None)
    target, score = number(target_in(evaluation)), score_of(evaluation)
    outcome = summary.outcome(metrics, target, score, latest_s, counted["version_s"])
    return {
        "seed": config.get("seed"),
        "clock": config.get("run", {}).get("clock"),
        **outcome,
        **counted,
        "resumed": [each for each in events if each.get("fact") == "resumed"],
        "energy": energy.so_far(run, metrics, target, score),
        "warnings": summary.warnings(counted),
        "fidelity": {"verdict": UNFINISHED, "reasons": [reason]},
    }


def strategies(rows: Iterable[Row]) -> dict[str, list[Row]]:
    """Group ``rows`` by name: one list per strategy, one row per seed."""
    by_name: dict[str, list[Row]] = {}
    for row in rows:
        by_name.setdefault(row.name, []).append(row)
    return by_name


def common_score(rows: Iterable[Row]) -> Score:
    """Return the score of all runs. UserError if they have different ones."""
    by_metric = {row.metric: row for row in rows}
    if len(by_metric) > 1:
        scores = ", ".join(f"{row.name} {row.score.title}" for row in by_metric.values())
        raise UserError(
            f"the runs have different evaluation.metric ({scores}): expected runs with the same one"
        )
    return next((row.score for row in by_metric.values()), ACCURACY)


def in_words_of(quantity: str, score: Score) -> str:
    """Return the name of a quantity of another score: "final_accuracy" is "final_f1" for F1."""
    if quantity.endswith(f"_{ACCURACY.name}"):
        return quantity.removesuffix(ACCURACY.name) + score.name
    return quantity


def worst_mark(rows: Sequence[Row]) -> str:
    """Return the worst mark of a strategy's runs, since a mean is no better than its runs."""
    marks = {row.mark for row in rows}
    worse = (FAILED, DIVERGED, UNFINISHED, INTERRUPTED, STRAINED)
    return next((bad for bad in worse if bad in marks), rows[0].mark)


def spread_of(rows: Sequence[Row], quantity: str) -> Spread:
    """Return the spread of a number of ``Row`` over a strategy's runs."""
    if quantity in age.QUANTITIES:
        return spread([row.ages.get(quantity) for row in rows])
    return spread([getattr(row, quantity) for row in rows])


# ---------------------------------------------------------------------- the question
TARGET = "evaluation.target_accuracy"
ACCURACIES = {
    "final": "final_accuracy",
    "best": "best_accuracy",
    "convergence": "convergence_accuracy",
}


@dataclass(frozen=True, slots=True)
class Question:
    """What is compared, and how.

    ``x``: a name of ``AXES``; None is "emulated_s". ``target``: an accuracy from 0 to 1 in place of
    the runs' own. ``accuracy``: a key of ACCURACIES. ``effect``: the difference of accuracies for
    which the needed seeds are counted; None: the observed one.
    """

    baseline: str | None = None
    x: str | None = None
    target: float | None = None
    accuracy: str = "final"
    method: Method = "auto"
    effect: float | None = None

    def __post_init__(self) -> None:
        """UserError for a value that cannot be."""
        for option, value, valid in (
            ("accuracy", self.accuracy, ACCURACIES),
            ("method", self.method, get_args(Method)),
        ):
            if value not in valid:
                raise UserError(f"--{option} {value}: there is no such one{nearest(value, valid)}")
        summary.check_number("--target", self.target)
        summary.check_number("--effect", self.effect)
        effect = self.effect
        if effect is not None and (self.baseline is None or not 0 < effect < math.inf):
            expected = "a difference above 0" if self.baseline else "it with --baseline"
            raise UserError(f"--effect {effect:g}: expected {expected}")


@dataclass(frozen=True, slots=True)
class SeedEstimate:
    """A number over the seeds of a strategy; the interval is that of the mean."""

    spread: Spread
    interval: Interval | None

    @classmethod
    def of(
        cls, values: Sequence[float | None], method: Method, highest: float = math.inf
    ) -> SeedEstimate:
        """Estimate the mean of values from 0 to ``highest``; None: a run without the number."""
        over = spread(values)
        around = interval([value for value in values if value is not None], method)
        known = over.mean is not None and around is not None
        return cls(over, around.within(0, highest) if known and around else None)


@dataclass(frozen=True, slots=True)
class ComparedStrategy:
    """One strategy with its runs, one per seed; ``gain`` and ``speed_up`` are over the baseline.

    ``gain``: the difference of accuracies.
    """

    name: str
    rows: tuple[Row, ...]
    accuracy: SeedEstimate
    to_target: SeedEstimate
    reached: tuple[Reached, ...]
    differs: tuple[Difference, ...]
    gain: PairedEffect | None = None
    speed_up: PairedEffect | None = None

    @property
    def verdict(self) -> str:
        return worst_mark(self.rows)

    @property
    def seeds(self) -> list[int | None]:
        return [row.seed for row in self.rows]


@dataclass(frozen=True, slots=True)
class Comparison:
    """The answer: the strategies in the order of the runs.

    ``target`` is None if the runs have none in common. ``baseline`` is a strategy's name.
    """

    question: Question
    axis: Axis
    target: float | None
    baseline: str | None
    strategies: tuple[ComparedStrategy, ...]
    rows: tuple[Row, ...]

    @property
    def score(self) -> Score:
        """What ``accuracy`` of the strategies is."""
        return common_score(self.rows)

    @property
    def several_seeds(self) -> bool:
        """Whether a strategy has several runs."""
        return any(len(each.rows) > 1 for each in self.strategies)

    @property
    def is_more_than_rows(self) -> bool:
        """Whether there are several seeds, or something was asked that no run says of itself."""
        asked = (self.question.baseline, self.question.x, self.question.target)
        return self.several_seeds or asked != (None, None, None)


def answer(paths: Sequence[Path], question: Question) -> Comparison:
    """Load all runs in ``paths`` or below, finished or not, and compare them.

    UserError for a path without a run, an unknown x or baseline, and if a target is needed and the
    runs have none in common.
    """
    axis = summary.axis_named(question.x or summary.EMULATED_S.name)
    directories = run_files.find(paths)
    baseline = question.baseline and strategy_named(question.baseline, directories)
    rows = {
        name: tuple(_row(run, name, question.target) for run in of_strategy)
        for name, of_strategy in directories.items()
    }
    all_rows = tuple(row for of_strategy in rows.values() for row in of_strategy)
    score = common_score(all_rows)
    summary.check_target(question.target, score)
    target = _target(all_rows, question)
    without = () if question.target is None else (TARGET,)
    differ = differences(directories, baseline, without, on_wall=axis.name == "wall_s")
    found = []
    for name, of_strategy in directories.items():
        reached = tuple(_reached(run, axis, target, score) for run in of_strategy)
        accuracies = [getattr(row, ACCURACIES[question.accuracy]) for row in rows[name]]
        accuracy = SeedEstimate.of(accuracies, question.method, score.largest)
        to_target = SeedEstimate.of([each.x for each in reached], question.method)
        found.append(ComparedStrategy(name, rows[name], accuracy, to_target, reached, differ[name]))
    if axis is not summary.EMULATED_S and not any(
        each.end is not None for strategy in found for each in strategy.reached
    ):
        raise UserError(f"--x {question.x}: no run has {axis.label}: {axis.missing}")
    base = next((each for each in found if each.name == baseline), None)
    if base is not None:
        found = against(found, base, question)
    return Comparison(question, axis, target, baseline, tuple(found), all_rows)


def with_ages(found: Comparison, runs: Mapping[str, Sequence[RunFiles]]) -> Comparison:
    """Return the comparison with the ages of all runs; this reads the events of each.

    ``runs``: the same as in the comparison.
    """
    of_strategies = []
    for strategy in found.strategies:
        ages = [age.numbers(run.ages).items() for run in runs[strategy.name]]
        known = [{name: value for name, value in of if value is not None} for of in ages]
        rows = tuple(replace(row, ages=of) for row, of in zip(strategy.rows, known))
        of_strategies.append(replace(strategy, rows=rows))
    rows = tuple(row for strategy in of_strategies for row in strategy.rows)
    return replace(found, strategies=tuple(of_strategies), rows=rows)


def strategy_named(name: str, directories: Mapping[str, Sequence[Path]]) -> str:
    """Return the strategy that ``name`` means: its name, a unique end of it, or its directory.

    UserError with the nearest name.
    """
    if name in directories:
        return name
    folder = Path(name).resolve()
    meant = [
        each
        for each, of_strategy in directories.items()
        if folder in (of_strategy[0].resolve(), run_files.strategy_folder(of_strategy[0]))
        or f"/{each.removesuffix(' (reconstructed)')}".endswith(f"/{name.strip('/')}")
    ]
    if len(meant) == 1:
        return meant[0]
    if meant:
        raise UserError(f"baseline {name}: there are several: {', '.join(meant)}")
    raise UserError(f"baseline {name}: there is no such run{nearest(name, directories)}")


def _row(run: Path, name: str, target: float | None) -> Row:
    """Load a run; with a ``target``, as if it had been the target of the run."""
    row = loaded(run, name)
    if target is None or target == row.target_accuracy:
        return row
    seconds, joules = (
        _reached(run, AXES[axis], target, row.score).x for axis in ("emulated_s", "joules")
    )
    return replace(row, target_accuracy=target, time_to_target_s=seconds, joules_to_target=joules)


def _target(rows: Sequence[Row], question: Question) -> float | None:
    """Return the target that all runs have. UserError if the question cannot do without one."""
    if question.target is not None:
        return question.target
    targets: dict[float | None, str] = {}
    for row in rows:
        targets.setdefault(row.target_accuracy, row.name)
    if len(targets) == 1 and (question.x is None or None not in targets):
        return next(iter(targets))
    if question.x is None and question.baseline is None:
        return None
    if len(targets) == 1:
        raise UserError(f"the runs have no {TARGET}: say --target 0.9")
    shown = ", ".join(
        f"{name} {'none' if target is None else f'{target:g}'}" for target, name in targets.items()
    )
    raise UserError(f"the runs have no common target accuracy ({shown}): say --target 0.9")


def _reached(run: Path, axis: Axis, target: float | None, score: Score) -> Reached:
    evaluated = summary.evaluations(read_csv(run / METRICS), score.name, axis)
    end = max((x for x, _ in evaluated), default=None)
    return Reached(summary.to_target(evaluated, target, score), end)


def against(
    found: Sequence[ComparedStrategy], baseline: ComparedStrategy, question: Question
) -> list[ComparedStrategy]:
    """Return the strategies with their effects over the baseline, p adjusted for their number."""
    others = [each for each in found if each is not baseline]
    accuracy, gains, speeds = ACCURACIES[question.accuracy], [], []
    for each in others:
        pairs = paired_places(each, baseline)
        gains.append(
            difference(
                [getattr(each.rows[own], accuracy) for own, _ in pairs],
                [getattr(baseline.rows[base], accuracy) for _, base in pairs],
                question.method,
                largest=each.rows[0].score.largest,
                matters=question.effect,
            )
        )
        speeds.append(
            speed_up(
                [each.reached[own] for own, _ in pairs],
                [baseline.reached[base] for _, base in pairs],
                question.method,
            )
        )
    effects = {
        each.name: replace(each, gain=gain, speed_up=speed)
        for each, gain, speed in zip(others, _adjusted(gains), _adjusted(speeds))
    }
    return [effects.get(each.name, each) for each in found]


def paired_places(own: ComparedStrategy, baseline: ComparedStrategy) -> list[tuple[int, int]]:
    """Return the positions of runs with the same seed; two single runs are always a pair."""
    if len(own.rows) == len(baseline.rows) == 1:
        return [(0, 0)]
    places = {seed: place for place, seed in enumerate(baseline.seeds) if seed is not None}
    return [(place, places[seed]) for place, seed in enumerate(own.seeds) if seed in places]


def _adjusted(effects: Sequence[PairedEffect]) -> list[PairedEffect]:
    values = [None if each.test is None else each.test.p for each in effects]
    return [replace(each, adjusted=p) for each, p in zip(effects, holm(values))]


# ---------------------------------------------------------------------- files
def is_told(quantity: str, rows: Iterable[Row]) -> bool:
    """Return whether files have a column of this quantity: of joules and ages only if a run has
    them.
    """
    if quantity in ("metric", "ages"):
        return False  # the names of the columns say it
    if quantity in age.QUANTITIES:
        return any(quantity in row.ages for row in rows)
    return not quantity.startswith("joules") or any(row.joules is not None for row in rows)


def run_record(row: Row, rows: Iterable[Row]) -> Record:
    """Return a run's columns of comparison.csv; ``rows``: all runs of the file.

    The columns of a score have its name.
    """
    names = (each.name for each in fields(Row) if is_told(each.name, rows))
    record = {in_words_of(name, row.score): getattr(row, name) for name in names}
    return record | {name: row.ages.get(name) for name in age.QUANTITIES if is_told(name, rows)}


def strategy_record(name: str, of_strategy: Sequence[Row], rows: Iterable[Row]) -> Record:
    """Return a strategy's columns of comparison_seeds.csv but the verdict.

    Every quantity has its mean, its sample standard deviation, and the number of runs that have it.
    ``rows``: all runs of the file.
    """
    first = of_strategy[0]
    record: Record = {"name": name, "strategy": first.strategy, "clock": first.clock}
    record["runs"] = len(of_strategy)
    for quantity in (*QUANTITIES, *age.QUANTITIES):
        if is_told(quantity, rows):
            name_of_column = in_words_of(quantity, first.score)
            record |= _of_spread(name_of_column, spread_of(of_strategy, quantity))
    return record


def _of_spread(name: str, over: Spread) -> Record:
    return {f"{name}_mean": over.mean, f"{name}_std": over.deviation, f"{name}_n": over.n}


def of_strategies(comparison: Comparison) -> list[Record]:
    """Return a row per strategy: what comparison_seeds.csv has, then the answer, unrounded.

    ``_low`` and ``_high`` are the 95 % interval. ``gain``: the difference of accuracies. ``bound``:
    the speed-up is larger (">") or smaller ("<") than the number. Another score has its own name
    in place of ``accuracy``.
    """
    score = comparison.score.name
    return [
        strategy_record(strategy.name, strategy.rows, comparison.rows)
        | {
            score: comparison.question.accuracy,
            **_of_estimate(score, strategy.accuracy),
            "x": comparison.axis.name,
            "target": comparison.target,
            **_of_estimate("to_target", strategy.to_target),
            "baseline": comparison.baseline,
            **_of_effect("gain", strategy.gain),
            **_of_effect("speed_up", strategy.speed_up),
            "bound": strategy.speed_up.bound if strategy.speed_up else "",
            "differs": in_one_line(strategy.differs),
            "verdict": strategy.verdict,
        }
        for strategy in comparison.strategies
    ]


def _of_interval(name: str, around: Interval | None) -> Record:
    low, high = (None, None) if around is None else (around.low, around.high)
    return {f"{name}_low": low, f"{name}_high": high}


def _of_estimate(name: str, estimate: SeedEstimate) -> Record:
    around = estimate.interval
    method = {f"{name}_method": None if around is None else around.method}
    return {**_of_spread(name, estimate.spread), **_of_interval(name, around), **method}


def _of_effect(name: str, effect: PairedEffect | None) -> Record:
    known = PairedEffect(0, 0) if effect is None else effect
    return {
        name: known.size,
        **_of_interval(name, known.interval),
        f"{name}_p": None if known.test is None else known.test.p,
        f"{name}_p_adjusted": known.adjusted,
        f"{name}_pairs": known.pairs,
        f"{name}_seeds": known.seeds,
        f"{name}_test": None if known.test is None else known.test.method,
    }


def of_runs(comparison: Comparison) -> list[Record]:
    """Return a row per run: what comparison.csv has, then x at the target."""
    return [
        {
            **run_record(row, comparison.rows),
            "x": comparison.axis.name,
            "target": comparison.target,
            "to_target": reached.x,
            "differs": in_one_line(strategy.differs),
        }
        for strategy in comparison.strategies
        for row, reached in zip(strategy.rows, strategy.reached)
    ]


def write_csv(rows: Sequence[Row], path: Path) -> None:
    """Write comparison.csv, one row per run: seconds with 9 decimals, a missing value empty."""
    common_score(rows)
    write_records([run_record(row, rows) for row in rows], path)


def write_seeds_csv(rows: Sequence[Row], path: Path) -> None:
    """Write comparison_seeds.csv, one row per strategy."""
    records = [
        strategy_record(name, of_strategy, rows) | {"verdict": worst_mark(of_strategy)}
        for name, of_strategy in strategies(rows).items()
    ]
    write_records(records, path)


def write_records(records: Sequence[Record], path: Path) -> None:
    """Write rows with the same keys as a CSV file."""
    run_files.write_table(path, list(records[0]), ([*record.values()] for record in records))
