"""Several runs as schemes with their spread over seeds, against a baseline and on a chosen x."""

from __future__ import annotations

import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from edgefl.config.scores import Score
from edgefl.errors import UserError, nearest, needs, undamaged
from edgefl.results import axes, compare, rundirs
from edgefl.results.compare import Record, Row, Spread, replace_file
from edgefl.results.differences import Difference, differences, told
from edgefl.results.statistics import (
    Interval,
    Method,
    PairedEffect,
    Reached,
    difference,
    holm,
    interval,
    speed_up,
)

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
    the runs' own. ``accuracy``: a key of ACCURACIES.
    """

    baseline: str | None = None
    x: str | None = None
    target: float | None = None
    accuracy: str = "final"
    method: Method = "auto"


@dataclass(frozen=True, slots=True)
class SeedEstimate:
    """A number over the seeds of a scheme; the interval is that of the mean."""

    spread: Spread
    interval: Interval | None

    @classmethod
    def of(
        cls, values: Sequence[float | None], method: Method, highest: float = math.inf
    ) -> SeedEstimate:
        """Estimate the mean of values from 0 to ``highest``; None: a run without the number."""
        found = compare.spread(values)
        there = interval([value for value in values if value is not None], method)
        if found.mean is None or there is None:
            return cls(found, None)
        return cls(found, there.within(0, highest))


@dataclass(frozen=True, slots=True)
class ComparedScheme:
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
        return compare.worst_mark(self.rows)

    @property
    def seeds(self) -> list[int | None]:
        return [row.seed for row in self.rows]


@dataclass(frozen=True, slots=True)
class Comparison:
    """The answer: the schemes in the order of the runs.

    ``target`` is None if the runs have none in common. ``baseline`` is a scheme's name.
    """

    question: Question
    axis: axes.Axis
    target: float | None
    baseline: str | None
    schemes: tuple[ComparedScheme, ...]
    rows: tuple[Row, ...]

    @property
    def score(self) -> Score:
        """What ``accuracy`` of the schemes is."""
        return compare.common_score(self.rows)

    @property
    def is_more_than_rows(self) -> bool:
        """Whether there are several seeds, or something was asked that no run says of itself."""
        asked = (self.question.baseline, self.question.x, self.question.target)
        return any(len(each.rows) > 1 for each in self.schemes) or asked != (None, None, None)


def answer(paths: Sequence[Path], question: Question) -> Comparison:
    """Load all runs in ``paths`` or below, finished or not, and compare them.

    UserError for a path without a run, an unknown x or baseline, and if a target is needed and the
    runs have none in common.
    """
    axis = axes.named(question.x or "emulated_s")
    found = rundirs.find(paths)
    baseline = None if question.baseline is None else scheme_named(question.baseline, found)
    rows = {
        name: tuple(_row(run, name, question.target) for run in runs)
        for name, runs in found.items()
    }
    score = compare.common_score(row for of_scheme in rows.values() for row in of_scheme)
    target = _target(rows, question)
    differ = differences(found, baseline, () if question.target is None else (TARGET,))
    schemes = []
    for name, runs in found.items():
        reached = tuple(_reached(run, axis, target, score) for run in runs)
        accuracies = [getattr(row, ACCURACIES[question.accuracy]) for row in rows[name]]
        schemes.append(
            ComparedScheme(
                name,
                rows[name],
                SeedEstimate.of(accuracies, question.method, score.largest),
                SeedEstimate.of([each.x for each in reached], question.method),
                reached,
                differ[name],
            )
        )
    if axis.name != "emulated_s" and not any(
        each.end is not None for s in schemes for each in s.reached
    ):
        raise UserError(f"--x {question.x}: no run has {axis.label}: {axis.missing}")
    baseline_scheme = next((each for each in schemes if each.name == baseline), None)
    compared = schemes if baseline_scheme is None else against(schemes, baseline_scheme, question)
    every = tuple(row for of_scheme in rows.values() for row in of_scheme)
    return Comparison(question, axis, target, baseline, tuple(compared), every)


def scheme_named(name: str, found: Mapping[str, Sequence[Path]]) -> str:
    """Return the scheme that is meant by ``name``: its name, a unique end of it, or its directory.

    UserError with the nearest name.
    """
    if name in found:
        return name
    folder = Path(name).resolve()
    plain = {each: f"/{each.removesuffix(' (reconstructed)')}" for each in found}
    meant = [
        each
        for each, runs in found.items()
        if folder in (runs[0].resolve(), rundirs.scheme_folder(runs[0]))
        or plain[each].endswith(f"/{name.strip('/')}")
    ]
    if len(meant) == 1:
        return meant[0]
    if meant:
        raise UserError(f"--baseline {name}: there are several: {', '.join(meant)}")
    raise UserError(f"--baseline {name}: there is no such run{nearest(name, found)}")


def _row(run: Path, name: str, target: float | None) -> Row:
    """Load a run; with a ``target``, as if it had been the target of the run."""
    with undamaged(run):
        row = compare.load_run(run, name)
    if target is None or target == row.target_accuracy:
        return row
    seconds, joules = (
        axes.to_target(axes.evaluations(run, axes.AXES[name], row.score), target, row.score)
        for name in ("emulated_s", "joules")
    )
    return replace(row, target_accuracy=target, time_to_target_s=seconds, joules_to_target=joules)


def _target(rows: dict[str, tuple[Row, ...]], question: Question) -> float | None:
    """Return the target that all runs have. UserError if the question cannot do without one."""
    if question.target is not None:
        return question.target
    targets: dict[float | None, str] = {}
    for name, of_scheme in rows.items():
        for row in of_scheme:
            targets.setdefault(row.target_accuracy, name)
    if len(targets) == 1 and (question.x is None or None not in targets):
        return next(iter(targets))
    if question.x is None and question.baseline is None:
        return None
    if len(targets) == 1:
        raise UserError(f"the runs have no {TARGET}: say --target 0.9")
    said = ", ".join(
        f"{name} {'none' if target is None else f'{target:g}'}" for target, name in targets.items()
    )
    raise UserError(f"the runs have no common target accuracy ({said}): say --target 0.9")


def _reached(run: Path, axis: axes.Axis, target: float | None, score: Score) -> Reached:
    evaluated = axes.evaluations(run, axis, score)
    end = max((x for x, _ in evaluated), default=None)
    return Reached(None if target is None else axes.to_target(evaluated, target, score), end)


def against(
    schemes: Sequence[ComparedScheme], baseline: ComparedScheme, question: Question
) -> list[ComparedScheme]:
    """Return the schemes with their effects over the baseline, with p adjusted for their number."""
    others = [each for each in schemes if each is not baseline]
    gains, speeds = [], []
    for each in others:
        pairs = paired_places(each, baseline)
        field = ACCURACIES[question.accuracy]
        gains.append(
            difference(
                [getattr(each.rows[own], field) for own, _ in pairs],
                [getattr(baseline.rows[base], field) for _, base in pairs],
                question.method,
                largest=each.rows[0].score.largest,
            )
        )
        speeds.append(
            speed_up(
                [each.reached[own] for own, _ in pairs],
                [baseline.reached[base] for _, base in pairs],
                question.method,
            )
        )
    done = {
        each.name: replace(each, gain=gain, speed_up=speed)
        for each, gain, speed in zip(others, _adjusted(gains), _adjusted(speeds))
    }
    return [done.get(each.name, each) for each in schemes]


def paired_places(own: ComparedScheme, baseline: ComparedScheme) -> list[tuple[int, int]]:
    """Return the positions of runs with the same seed; two single runs are always a pair."""
    if len(own.rows) == len(baseline.rows) == 1:
        return [(0, 0)]
    places = {seed: place for place, seed in enumerate(baseline.seeds) if seed is not None}
    return [
        (place, places[seed])
        for place, seed in enumerate(own.seeds)
        if seed is not None and seed in places
    ]


def _adjusted(effects: Sequence[PairedEffect]) -> list[PairedEffect]:
    values = [None if each.test is None else each.test.p for each in effects]
    return [replace(each, adjusted=p) for each, p in zip(effects, holm(values))]


def of_schemes(comparison: Comparison) -> list[Record]:
    """Return a row per scheme: what comparison_seeds.csv has, then the answer, unrounded.

    ``_low`` and ``_high`` are the 95 % interval. ``gain``: the difference of accuracies. ``bound``:
    the speed-up is larger (">") or smaller ("<") than the number.
    """
    return [_of_scheme(comparison, scheme) for scheme in comparison.schemes]


def _of_scheme(comparison: Comparison, scheme: ComparedScheme) -> Record:
    return compare.scheme_record(scheme.name, scheme.rows, comparison.rows) | {
        "accuracy": comparison.question.accuracy,
        **_of_estimate("accuracy", scheme.accuracy),
        "x": comparison.axis.name,
        "target": comparison.target,
        **_of_estimate("to_target", scheme.to_target),
        "baseline": comparison.baseline,
        **_of_effect("gain", scheme.gain),
        **_of_effect("speed_up", scheme.speed_up),
        "bound": scheme.speed_up.bound if scheme.speed_up else "",
        "differs": told(scheme.differs),
        "verdict": scheme.verdict,
    }


def _of_estimate(name: str, estimate: SeedEstimate) -> Record:
    found = estimate.interval
    return {
        f"{name}_mean": estimate.spread.mean,
        f"{name}_std": estimate.spread.deviation,
        f"{name}_n": estimate.spread.n,
        f"{name}_low": None if found is None else found.low,
        f"{name}_high": None if found is None else found.high,
        f"{name}_method": None if found is None else found.method,
    }


def _of_effect(name: str, effect: PairedEffect | None) -> Record:
    found = PairedEffect(0, 0) if effect is None else effect
    return {
        name: found.size,
        f"{name}_low": None if found.interval is None else found.interval.low,
        f"{name}_high": None if found.interval is None else found.interval.high,
        f"{name}_p": None if found.test is None else found.test.p,
        f"{name}_p_adjusted": found.adjusted,
        f"{name}_pairs": found.pairs,
        f"{name}_test": None if found.test is None else found.test.method,
    }


def of_runs(comparison: Comparison) -> list[Record]:
    """Return a row per run: what comparison.csv has, then x at the target."""
    return [
        {
            **compare.run_record(row, comparison.rows),
            "x": comparison.axis.name,
            "target": comparison.target,
            "to_target": reached.x,
            "differs": told(scheme.differs),
        }
        for scheme in comparison.schemes
        for row, reached in zip(scheme.rows, scheme.reached)
    ]


def write_parquet(records: Sequence[Record], path: Path) -> None:
    """Write a Parquet file; a column of whole numbers with gaps keeps them whole."""
    with needs("export", "--parquet"):
        import pyarrow
        import pyarrow.parquet

    columns = {name: pyarrow.array([record[name] for record in records]) for name in records[0]}
    for name, column in columns.items():
        if pyarrow.types.is_null(column.type):  # no run has the number: still a number
            columns[name] = column.cast(pyarrow.float64())
    data = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.table(columns), data)
    replace_file(path, data.getvalue())
