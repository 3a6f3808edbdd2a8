"""The outcome of a run: scores over an axis, the verdict, the warnings. Does no input or output.

To add a warning, add a sentence to ``_of_tasks``, ``_of_scores`` or ``_of_edges``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from numbers import Real
from statistics import pstdev
from typing import Any

from edgefl.config.scores import ACCURACY, Score, score_of
from edgefl.errors import UserError, nearest
from edgefl.record.counters import Counters
from edgefl.results.read import number

CONVERGENCE_SHARE = 0.1  # of the run's emulated time, at its end
STABILITY_EVALUATIONS = 10
MUCH_EVALUATION, LONG_S = 0.1, 10.0  # a share of a run of at least so many wall seconds
INTERRUPTED = "interrupted"  # the end reason of a run that the user ended
FAILED, DIVERGED, UNFINISHED = "failed", "diverged", "unfinished"
FAITHFUL, STRAINED, VIRTUAL = "faithful", "strained", "virtual"
LENGTHENED = "lengthened"  # in place of its end reason, until the run has reached its new end
# end reasons of runs that did not reach their own end: these can be resumed
BROKEN_OFF = (INTERRUPTED, "launcher gone", "no edge left", LENGTHENED)
# end reasons that are keys of [stop], in words
LIMITS = {
    "emulated_s": "time limit",
    "versions": "version limit",
    "updates": "update limit",
    "target_joules": "energy limit",
    "target": "target reached",
    "no_progress_s": "no more progress",
}
Facts = Mapping[str, Any]  # summary.json
Evaluations = Sequence[tuple[float, float]]  # (x, score), in order of emulated time


# ---------------------------------------------------------------------- axes
# By unit: (from which value on, size, name), the largest first.
UNITS: Mapping[str, Sequence[tuple[float, float, str]]] = {
    "s": ((3 * 3600, 3600, "h"), (600, 60, "min"), (0, 1, "s")),
    "B": ((1e12, 1e12, "TB"), (1e9, 1e9, "GB"), (1e6, 1e6, "MB"), (1e3, 1e3, "kB"), (0, 1, "B")),
    "J": ((1e6, 1e6, "MJ"), (1e3, 1e3, "kJ"), (0, 1, "J")),
}


def unit_up_to(most: float, unit: str) -> tuple[float, str]:
    """Return (size, name) of the unit for values of "s", "B" or "J" up to ``most``."""
    return next((size, name) for least, size, name in UNITS[unit] if most >= least)


@dataclass(frozen=True, slots=True)
class Axis:
    """An x that each evaluation of a run has: the sum of some columns of metrics.csv.

    ``unit``: "" for a count. ``missing``: why runs may not have it.
    """

    name: str
    columns: tuple[str, ...]
    unit: str
    label: str
    missing: str = "they are of an older version"

    def value(self, row: Mapping[str, Any]) -> float | None:
        """Return x of a row of metrics.csv; None if a column is missing or not a number."""
        values = [number(row.get(column)) for column in self.columns]
        return None if None in values else sum(value or 0.0 for value in values)


EMULATED_S = Axis("emulated_s", ("emulated_s",), "s", "emulated seconds")
NO_JOULES = "their configs have no [devices.energy] or [links.radio]"
AXES = {
    axis.name: axis
    for axis in (
        EMULATED_S,
        Axis("wall_s", ("wall_s",), "s", "wall-clock seconds"),
        Axis("version", ("version",), "", "versions"),
        Axis("bytes", ("bytes_up", "bytes_down"), "B", "bytes sent, up and down"),
        Axis("joules", ("joules",), "J", "joules", NO_JOULES),
    )
}
ALIASES = {
    **dict.fromkeys(("round", "rounds", "versions"), "version"),
    "time": "emulated_s",
    "energy": "joules",
}


def axis_named(name: str) -> Axis:
    """Return an axis by its name or alias. UserError for an unknown one."""
    axis = AXES.get(ALIASES.get(name, name))
    if axis is None:
        raise UserError(f"--x {name}: there is no such x{nearest(name, AXES)}")
    return axis


def evaluations(
    metrics_rows: Iterable[Mapping[str, Any]],
    column: str = ACCURACY.name,
    axis: Axis = EMULATED_S,
) -> list[tuple[float, float]]:
    """Return (x, value) of a column in order of emulated time; [] if there is no such x.

    Evaluations run in parallel to the run, so their rows may be out of order.
    """
    return [
        (x, value)
        for _, value, row in _scored(metrics_rows, column)
        if value is not None and (x := axis.value(row)) is not None
    ]


def _scored(
    metrics_rows: Iterable[Mapping[str, Any]], column: str
) -> list[tuple[float, float | None, Mapping[str, Any]]]:
    """Return (emulated s, score, row) of the evaluations with this score, in order of time.

    None for a score that is not finite.
    """
    rows = [
        (t, number(row[column]), row)
        for row in metrics_rows
        if (t := number(row.get("emulated_s"))) is not None and row.get(column) not in (None, "")
    ]
    return sorted(rows, key=lambda each: each[0])


def ends_finite(metrics_rows: Iterable[Mapping[str, Any]], column: str) -> bool:
    """Return whether the last score of a column is finite: only that holds until the end."""
    scored = _scored(metrics_rows, column)
    return bool(scored) and scored[-1][1] is not None


def to_target(evaluated: Evaluations, target: float | None, score: Score) -> float | None:
    """Return x of the first model that reaches ``target``; None if there is none."""
    if target is None:
        return None
    return next((x for x, value in evaluated if score.reaches(value, target)), None)


def check_number(option: str, value: object) -> None:
    """UserError unless the value of a user's option is a number, or None: there is none."""
    if not isinstance(value, Real | None):
        raise UserError(f"{option} {value!r}: expected a number")


def check_target(target: float | None, score: Score) -> None:
    """UserError unless a user's target, if there is one, can be a value of the runs' score."""
    most = score.largest
    if target is not None and not (0 < target <= most and target < math.inf):
        kind = "an accuracy" if score is ACCURACY else f"a value of {score.title}"
        such = f"up to {most:g}, such as 0.9" + " for 90 %" * (score is ACCURACY)
        such = such if most < math.inf else "above 0"
        raise UserError(f"--target {target:g}: expected {kind} {such}")


# ---------------------------------------------------------------------- outcome
def outcome(
    metrics_rows: Sequence[Mapping[str, Any]],
    target: float | None,
    score: Score = ACCURACY,
    end_s: float | None = None,
    version_s: float | None = None,
) -> dict[str, Any]:
    """Return accuracies (0 to 1), emulated seconds to the target, and test losses.

    The losses are those of the first, worst and last model. A missing or non-finite value is None.
    ``score``: what ``target`` refers to. If that is not the accuracy, there are its values, too.
    ``end_s``: the emulated second at which the run ended, or its latest one so far; None is that of
    the last evaluation. ``version_s``: when the last model was published, if that is known.
    """
    window = convergence_window(metrics_rows, end_s)
    stands = window is not None and version_s is not None and version_s <= window[0]
    accuracies, evaluated = evaluations(metrics_rows), evaluations(metrics_rows, score.name)
    of_metric: dict[str, Any] = {}
    if score is not ACCURACY:
        of_metric = {
            "metric": score.name,
            **_values(metrics_rows, score, window, stands),
            f"target_{score.name}": target,
        }
    return {
        **_values(metrics_rows, ACCURACY, window, stands),
        "convergence_window_s": window,
        "stability": stability([value for _, value in accuracies[-STABILITY_EVALUATIONS:]]),
        "target_accuracy": target if score is ACCURACY else None,
        **of_metric,
        "time_to_target_s": to_target(evaluated, target, score),
        **_losses(metrics_rows),
    }


def _values(
    metrics_rows: Iterable[Mapping[str, Any]],
    score: Score,
    window: Sequence[float] | None,
    stands: bool,
) -> dict[str, float | None]:
    """The last score, the mean over the window, and the best one.

    If the score was not finite any more at the end, an older one, of a better model, does not stand
    for it; nor if there was only the last model in the window (``stands``).
    """
    scored = [(t, value) for t, value, _ in _scored(metrics_rows, score.name)]
    evaluated = [(t, value) for t, value in scored if value is not None]
    behind = next((count for count, (_, value) in enumerate(scored[::-1]) if value is not None), 0)
    held = window is not None and (not behind or scored[-behind][0] >= window[1])
    final = scored[-1][1] if scored else None
    mean = time_average(evaluated, *window) if window and held else None
    return {
        f"final_{score.name}": final,
        f"convergence_{score.name}": final if stands else mean,
        f"best_{score.name}": score.best(value for _, value in evaluated),
    }


def _losses(metrics_rows: Iterable[Mapping[str, Any]]) -> dict[str, float | None]:
    """The test losses of the first, worst and last model; {} without any."""
    rows = [
        (number(row["emulated_s"]) or 0.0, number(row["test_loss"]))
        for row in metrics_rows
        if number(row.get("accuracy")) is not None and row.get("test_loss")
    ]
    if not rows:
        return {}
    losses = [loss for _, loss in sorted(rows, key=lambda pair: pair[0])]
    finite = [loss for loss in losses if loss is not None]
    return {
        "initial_loss": losses[0],
        "highest_loss": max(finite) if len(finite) == len(losses) else None,
        "final_loss": losses[-1],
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


def time_average(evaluated: Evaluations, begin_s: float, end_s: float) -> float | None:
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
    weighted = (length * value for length, (_, value) in zip(lengths, inside))
    return math.fsum(weighted) / math.fsum(lengths)


def stability(accuracies: Sequence[float]) -> float | None:
    """Return the standard deviation of the decimal logarithms of the last accuracies.

    0 means perfectly stable (WKAFL, arXiv 2203.01214, 6.1.3; the paper does not name the base).
    None for fewer than STABILITY_EVALUATIONS, or if one accuracy is 0.
    """
    if len(accuracies) < STABILITY_EVALUATIONS or min(accuracies) <= 0:
        return None
    return pstdev(math.log10(accuracy) for accuracy in accuracies)


def staleness_stats(histogram: Mapping[str, int]) -> tuple[float | None, int | None]:
    """Return mean and largest staleness of a histogram such as {"0": 12, "1": 5}."""
    updates = sum(histogram.values())
    if not updates:
        return None, None
    mean = sum(int(gap) * n for gap, n in histogram.items()) / updates
    return mean, max(int(gap) for gap, n in histogram.items() if n)


def counters(
    events: Iterable[Mapping[str, Any]], links: Iterable[Mapping[str, str]] = ()
) -> dict[str, Any]:
    """Return the counters of summary.json from the files of an unfinished run."""
    counted, emulated_s = Counters(), 0.0
    for event in events:
        emulated_s = event.get("t", emulated_s)
        counted.take(event)
    for row in links:
        counted.link(row["direction"], int(row["bytes"]))
    head = {
        "versions": counted.versions,
        "version_s": counted.version_s,
        "emulated_s": emulated_s,
    }
    return {**head, **counted.of_updates(), **counted.of_run()}


def scores_not_finite(metrics_rows: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """Return score -> the most evaluations in a row in which it was NaN or infinite, if above 1.

    Evaluations are taken in order of emulated time. Empty cells are not counted.
    """
    rows = sorted(metrics_rows, key=lambda row: number(row.get("emulated_s")) or 0.0)
    counts = {}
    for name in rows[0] if rows else ():
        longest = now = 0
        for row in rows:
            now = now + 1 if _is_not_finite(row.get(name)) else 0
            longest = max(longest, now)
        if longest > 1:
            counts[name] = longest
    return counts


def _is_not_finite(text: Any) -> bool:
    try:
        return not math.isfinite(float(text))
    except (TypeError, ValueError):
        return False  # an empty cell, or a text


# ---------------------------------------------------------------------- verdict
def verdict(facts: Facts) -> str:
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


def one_line(summary: Facts, name: str) -> str:
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
    mark, finished = verdict(summary), summary["finished"]
    end = f"{mark} ({finished})"
    if finished in BROKEN_OFF:
        end = interruption(finished) + (f" ({mark} so far)" if mark != VIRTUAL else "")
    again = f", resumed {'once' if resumed == 1 else f'{resumed} times'}" if resumed else ""
    return f"{name}: {summary['versions']} versions, {times}{accuracy}{again}, {end}{besides}"


def interruption(finished: str | None, after: str = "") -> str:
    """Return "interrupted after 2.5 emulated s: launcher gone"; ``finished`` is the end reason."""
    return f"{INTERRUPTED}{after}" + ("" if finished == INTERRUPTED else f": {finished}")


# ---------------------------------------------------------------------- warnings
SHOWN_EDGES = 5
FAR_ABOVE = 2.0  # multiple of the first model's test loss
USELESS, MANY_USELESS = "useless message", 100  # its kind in the verdict's ``wire``
MARGIN = 0.05  # of accuracy above guessing


def warnings(facts: Facts) -> list[str]:
    """Return the ``warnings`` of summary.json: one sentence about each problem of a run.

    ``facts``: its other values; after a crash, those from the other files.
    """
    return list(chain(_of_tasks(facts), _of_scores(facts), _of_edges(facts)))


def _of_tasks(facts: Facts) -> Iterator[str]:
    """Yield what went wrong with tasks and updates."""
    if not facts["versions"] and facts.get("finished") not in (None, INTERRUPTED, "launcher gone"):
        yield "no new model was made: the last model is the initial model"
    discards, received = facts["updates_discarded"], facts["updates_received"]
    if 2 * (count := sum(discards.values())) > received:
        share = f"all {received}" if count == received else f"{count} of {received}"
        yield f"{share} updates were discarded: {most_frequent(discards)}"
    if by_edge := facts.get("training_failed"):
        first = facts["training_failed_first"]
        yield f"training failed in {_tasks(by_edge)}, first: {first}"
    if by_edge := facts.get("tasks_timed_out"):
        yield f"{_tasks(by_edge)} timed out"
    yield from _unused(facts)
    groups = facts.get("tasks_at_once", {})
    if failed := groups.get("one_by_one"):  # they are right, but cost twice
        count = sum(failed.values())
        yield (
            f"{count} of {count + sum(groups['together'].values())} groups of tasks"
            f" (training.tasks_at_once) were trained again one by one: {most_frequent(failed)}"
        )


def _of_scores(facts: Facts) -> Iterator[str]:
    """Yield what went wrong with models and their evaluation, and jobs."""
    if (sentence := diverged(facts)) is not None:
        yield sentence
    in_a_row = facts.get("scores_not_finite")
    if in_a_row and facts.get("diverged_at_version") is None:  # else ``diverged`` says it
        counts = ", ".join(f"{name} in {count}" for name, count in in_a_row.items())
        yield f"scores are not finite (NaN or infinite) in evaluations in a row: {counts}"
    if failed := facts.get("jobs_failed"):
        counts = ", ".join(f"{reason}: {count}" for reason, count in failed.items())
        yield f"failed server jobs: {counts}"
    if contradictions := facts.get("dissemination", {}).get("contradictions"):
        yield f"fresher models: {'; '.join(contradictions)}"
    if skipped := facts.get("evaluations_skipped"):
        count = sum(skipped.values())
        were = "s were" if count > 1 else " was"
        yield f"{count} evaluation{were} skipped: {most_frequent(skipped)}"


def _of_edges(facts: Facts) -> Iterator[str]:
    """Yield what went wrong with edges, and rows that ``record.keep`` has deleted."""
    if missing := facts.get("edges_missing"):
        yield f"started without {_edges(missing)}"
    if lost := facts.get("edges_lost"):
        yield f"lost and not rejoined at the end: {_edges(lost)}"
    if capped := facts.get("numbers_capped"):
        yield (
            f"{_edges(list(capped))} reported more samples than possible: {sum(capped.values())}"
            " numbers were capped"
        )
    fidelity = facts.get("fidelity", {})
    if excluded := fidelity.get("quarantined"):
        reason = next(iter(excluded.values()))
        yield f"excluded for what it sent: {_edges(list(excluded))}: {reason}"
    useless = {  # more than one second allows
        kind.removeprefix(USELESS).strip("( )"): count
        for kind, count in fidelity.get("wire", {}).items()
        if kind.startswith(USELESS) and count >= MANY_USELESS
    }
    if useless:
        yield f"{_edges(list(useless))} sent {sum(useless.values())} messages that changed nothing"
    if deleted := facts.get("parts_deleted"):
        names = ", ".join(f"{count} of {name}" for name, count in deleted.items())
        yield (
            f"old parts were deleted (record.keep): {names}; what is made from their rows is"
            " partial"
        )


def _unused(facts: Facts) -> Iterator[str]:
    """Yield the edges that contributed nothing to any model, or in less than half of their tasks.

    An edge that had no task, or whose only task had not ended, is not among them. If no update at
    all was used, other warnings say so.
    """
    unused = facts.get("edges_unused", {}) if facts.get("updates_applied", True) else {}
    groups: dict[tuple[str, str], list[str]] = {}
    for edge, counts in unused.items():
        amount = "nothing" if counts["unused"] == counts["tasks"] else "little"
        groups.setdefault((f"contributed {amount}", counts["reason"]), []).append(edge)
    sentences = []
    for (kind, reason), edges in sorted(groups.items()):
        tasks, count = (sum(unused[edge][key] for edge in edges) for key in ("tasks", "unused"))
        sentences.append(
            f"{_edges(edges)} {kind}: {count} of {tasks} task{'s' if tasks > 1 else ''} had no use,"
            f" mostly because of: {reason}"
        )
    if sentences:
        yield "; ".join(sentences)


def diverged(facts: Facts) -> str | None:
    """Warn if a model or loss is not finite, or if the loss rose and the result is guessing.

    A loss that is not finite does not say that the training diverged if the model is finite.
    In the last case the test loss rose above FAR_ABOVE times the first model's, is above the
    first model's at the end, and the last accuracy is at most MARGIN above guessing. The first
    model's loss is about ln(classes), and guessing has the accuracy 1 / classes.
    """
    version, accuracy = facts.get("diverged_at_version"), facts.get("final_accuracy")
    if version is not None:
        return (
            f"diverged: version {version} is not finite (NaN or infinite), so its accuracy is"
            " meaningless"
        )
    if "final_loss" not in facts or not facts["versions"]:
        return None
    first, last, highest = (facts[f"{which}_loss"] for which in ("initial", "final", "highest"))
    if last is None and first is None:
        return (
            "the test loss of the first model is not finite already: expected another cause than"
            " the training, such as the model, the loss or the test data"
        )
    if last is None:
        return (
            "the last model's test loss is not finite, although its weights are: an overflow in the"
            " model or the loss"
        )
    if first is None or last <= first:
        return None
    if accuracy is not None and accuracy > math.exp(-first) + MARGIN:
        return None
    if highest is not None and highest <= FAR_ABOVE * first:
        return None
    rose = "infinity" if highest is None else f"{highest:.3g}"
    return (
        f"diverged: the test loss rose from {first:.3g} to {rose}, and the last model, with"
        f" {last:.3g}, is no better than guessing"
    )


def most_frequent(by_reason: Mapping[str, int]) -> str:
    """Return the most frequent reason, with its count if there are others.

    For example "wrong length (20 times; 1 other reason)".
    """
    reason, count = max(by_reason.items(), key=lambda item: item[1])
    others = len(by_reason) - 1
    if not others:
        return reason
    return f"{reason} ({count} times; {others} other reason{'s' if others > 1 else ''})"


def _tasks(by_edge: Mapping[str, int]) -> str:
    count = sum(by_edge.values())
    return f"{count} task{'s' if count > 1 else ''} of {_edges(list(by_edge))}"


def _edges(names: Sequence[str]) -> str:
    return (
        f"{len(names)} edge{'s' if len(names) > 1 else ''}"
        f" ({', '.join(names[:SHOWN_EDGES])}{' ...' if len(names) > SHOWN_EDGES else ''})"
    )
