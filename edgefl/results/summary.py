"""The outcome of a run, computed from its evaluations and events."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from statistics import pstdev
from typing import Any

from edgefl.config.scores import ACCURACY, Score, score_of
from edgefl.record.counters import Counters
from edgefl.results.warnings import diverged

CONVERGENCE_SHARE = 0.1  # of the run's emulated time, at its end
STABILITY_EVALUATIONS = 10
MUCH_EVALUATION, LONG_S = 0.1, 10.0  # a share of a run of at least so many wall seconds
INTERRUPTED = "interrupted"  # the end reason of a run that the user ended
FAILED, DIVERGED, UNFINISHED = "failed", "diverged", "unfinished"
FAITHFUL, STRAINED, VIRTUAL = "faithful", "strained", "virtual"
# end reasons of runs that did not reach their own end: these can be resumed
BROKEN_OFF = (INTERRUPTED, "launcher gone", "no edge left")


def outcome(
    metrics_rows: Sequence[Mapping[str, Any]],
    target: float | None,
    score: Score = ACCURACY,
    end_s: float | None = None,
) -> dict[str, Any]:
    """Return accuracies (0 to 1), emulated seconds to the target, and test losses.

    The losses are those of the first, worst and last model. A missing or non-finite value is None.
    ``score``: what ``target`` refers to. If that is not the accuracy, there are its values, too.
    ``end_s``: the emulated second at which the run ended, or its latest one so far; None is that of
    the last evaluation.
    """
    window = convergence_window(metrics_rows, end_s)
    evaluated = evaluations(metrics_rows, score.name)
    losses = test_losses(metrics_rows)
    reached = (t for t, value in evaluated if target is not None and score.reaches(value, target))
    accuracies = [accuracy for _, accuracy in evaluations(metrics_rows)]
    of_metric: dict[str, Any] = {}
    if score is not ACCURACY:
        of_metric = {
            "metric": score.name,
            **_values(evaluated, score, window),
            f"target_{score.name}": target,
        }
    return {
        **_values(evaluations(metrics_rows), ACCURACY, window),
        "convergence_window_s": window,
        "stability": stability(accuracies[-STABILITY_EVALUATIONS:]),
        "target_accuracy": target if score is ACCURACY else None,
        **of_metric,
        "time_to_target_s": next(reached, None),
        **(_of_losses(losses) if losses else {}),
    }


def _values(
    evaluated: Sequence[tuple[float, float]], score: Score, window: Sequence[float] | None
) -> dict[str, float | None]:
    values = [value for _, value in evaluated]
    return {
        f"final_{score.name}": values[-1] if values else None,
        f"convergence_{score.name}": None if window is None else time_average(evaluated, *window),
        f"best_{score.name}": score.best(values),
    }


def convergence_window(
    metrics_rows: Iterable[Mapping[str, Any]], end_s: float | None = None
) -> list[float] | None:
    """Return the begin and the end of the last tenth of a run, in emulated seconds.

    ``end_s`` as in ``outcome``. None for a run without an evaluation.
    """
    times = [t for row in metrics_rows if (t := number(row.get("emulated_s"))) is not None]
    if not times:
        return None
    end = max(*times, end_s or 0.0)
    return [end * (1 - CONVERGENCE_SHARE), end]


def time_average(
    evaluated: Sequence[tuple[float, float]], begin_s: float, end_s: float
) -> float | None:
    """Return the mean over a window of time of a score that is constant between evaluations.

    ``evaluated``: (emulated_s, score) in order of time. The score of an evaluation holds until the
    next one; before the first one there is none, and that time does not count. In a window without
    length the last score is the mean. None if no score lies in or before the window.
    """
    inside = [(max(t, begin_s), value) for t, value in evaluated if t <= end_s]
    ends = [t for t, _ in inside[1:]] + [end_s]
    lengths = [until - t for (t, _), until in zip(inside, ends)]
    if not any(length > 0 for length in lengths):
        return inside[-1][1] if inside else None
    parts = (length * value for length, (_, value) in zip(lengths, inside))
    return math.fsum(parts) / math.fsum(lengths)


def stability(accuracies: Sequence[float]) -> float | None:
    """Return the standard deviation of the decimal logarithms of the last accuracies.

    0 means perfectly stable (WKAFL, arXiv 2203.01214, 6.1.3; the paper does not name the base).
    None for fewer than STABILITY_EVALUATIONS, or if one accuracy is 0.
    """
    if len(accuracies) < STABILITY_EVALUATIONS or min(accuracies) <= 0:
        return None
    return pstdev(math.log10(accuracy) for accuracy in accuracies)


def verdict(facts: Mapping[str, Any]) -> str:
    """Return what a reader is told about a run that has ended; ``facts``: its summary.json.

    Failures come first: "failed" without a new model, "diverged" if its models are no better than
    guessing or not finite. Then the host's verdict, "strained" or "faithful". Under the virtual
    clock, which computes all times, no host can be late: "virtual".
    """
    of_host: str = facts.get("fidelity", {}).get("verdict", UNFINISHED)
    if of_host == UNFINISHED:
        return UNFINISHED
    if facts.get("versions") == 0 and facts.get("finished") not in BROKEN_OFF:
        return FAILED
    if diverged(facts) is not None:
        return DIVERGED
    return VIRTUAL if facts.get("clock") == VIRTUAL and of_host == FAITHFUL else of_host


def one_line(summary: Mapping[str, Any], name: str) -> str:
    """Return a finished run as one line for the terminal.

    "fedavg: 20 versions, 25.0 emulated s in 25.0 s, accuracy 0.9361, faithful (emulated_s)"
    """
    score = score_of(summary)
    final = summary[f"final_{score.name}"]
    accuracy = "" if final is None else f", {score.title} {final:.4f}"
    resumed = len(summary.get("resumed", ()))
    times = f"{summary['emulated_s']:.1f} emulated s in {summary['wall_s']:.1f} s"
    share = summary.get("evaluation_share", 0.0)
    if share > MUCH_EVALUATION and summary["wall_s"] >= LONG_S:
        times += f" ({100 * share:.0f} % of it for evaluation, see evaluation.every_versions)"
    besides = "".join(f"; {warning}" for warning in summary["warnings"])
    told, finished = verdict(summary), summary["finished"]
    end = (
        f"{interruption(finished)}{f' ({told} so far)' if told != VIRTUAL else ''}"
        if finished in BROKEN_OFF
        else f"{told} ({finished})"
    )
    again = f", resumed {'once' if resumed == 1 else f'{resumed} times'}" if resumed else ""
    return f"{name}: {summary['versions']} versions, {times}{accuracy}{again}, {end}{besides}"


def interruption(finished: str | None, after: str = "") -> str:
    """Return "interrupted after 2.5 emulated s: launcher gone"; ``finished`` is the end reason."""
    return f"{INTERRUPTED}{after}" + ("" if finished == INTERRUPTED else f": {finished}")


def evaluations(
    metrics_rows: Iterable[Mapping[str, Any]], column: str = "accuracy"
) -> list[tuple[float, float]]:
    """Return (emulated_s, value) of a column in order of emulated time.

    Evaluations run in parallel to the run, so their rows may be out of order.
    """
    found = []
    for row in metrics_rows:
        emulated_s, value = number(row.get("emulated_s")), number(row.get(column))
        if emulated_s is not None and value is not None:
            found.append((emulated_s, value))
    return sorted(found, key=lambda pair: pair[0])


def test_losses(metrics_rows: Iterable[Mapping[str, Any]]) -> list[float | None]:
    """Return the test losses in order of emulated time; None for a non-finite loss."""
    found = [
        (number(row["emulated_s"]) or 0.0, number(row["test_loss"]))
        for row in metrics_rows
        if number(row.get("accuracy")) is not None and row.get("test_loss")
    ]
    return [loss for _, loss in sorted(found, key=lambda pair: pair[0])]


def scores_not_finite(metrics_rows: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """Return score -> the most evaluations in a row in which it was NaN or infinite, if above 1.

    Evaluations are taken in order of emulated time. Empty cells are not counted.
    """
    rows = sorted(metrics_rows, key=lambda row: number(row.get("emulated_s")) or 0.0)
    found = {}
    for name in rows[0] if rows else ():
        longest = now = 0
        for row in rows:
            now = now + 1 if _is_not_finite(row.get(name)) else 0
            longest = max(longest, now)
        if longest > 1:
            found[name] = longest
    return found


def _is_not_finite(text: Any) -> bool:
    try:
        return not math.isfinite(float(text))
    except (TypeError, ValueError):
        return False  # an empty cell, or a text


def _of_losses(losses: Sequence[float | None]) -> dict[str, float | None]:
    finite = [loss for loss in losses if loss is not None]
    return {
        "initial_loss": losses[0],
        "highest_loss": max(finite) if len(finite) == len(losses) else None,
        "final_loss": losses[-1],
    }


def number(text: Any) -> float | None:
    """Return a finite number from a CSV field or JSON value; None if it is not one."""
    try:
        value = float(text)
    except (TypeError, ValueError):
        return None
    return value if math.isfinite(value) else None


def staleness_stats(histogram: Mapping[str, int]) -> tuple[float | None, int | None]:
    """Return mean and largest staleness of a histogram such as {"0": 12, "1": 5}."""
    updates = sum(histogram.values())
    if not updates:
        return None, None
    return sum(int(gap) * n for gap, n in histogram.items()) / updates, max(
        int(gap) for gap, n in histogram.items() if n
    )


def counters(
    events: Iterable[Mapping[str, Any]], links: Iterable[Mapping[str, str]] = ()
) -> dict[str, Any]:
    """Return the counters of summary.json from the files of an unfinished run."""
    found, emulated_s = Counters(), 0.0
    for event in events:
        emulated_s = event.get("t", emulated_s)
        found.take(event)
    for row in links:
        found.link(row["direction"], int(row["bytes"]))
    return {
        "versions": found.versions,
        "emulated_s": emulated_s,
        **found.of_updates(),
        **found.of_run(),
    }
