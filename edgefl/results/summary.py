"""What a run came to: pure functions from its evaluations and its events."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from statistics import pstdev
from typing import Any

CONVERGENCE_EVALUATIONS = 10


def outcome(
    metrics_rows: Sequence[Mapping[str, Any]], target_accuracy: float | None
) -> dict[str, float | None]:
    """Accuracies (shares, not percent) and the emulated seconds to the target; None where there
    is nothing to tell.
    """
    evaluated = evaluations(metrics_rows)
    accuracies = [accuracy for _, accuracy in evaluated]
    last = accuracies[-CONVERGENCE_EVALUATIONS:]
    reached = (
        t
        for t, accuracy in evaluated
        if target_accuracy is not None and accuracy >= target_accuracy
    )
    return {
        "final_accuracy": accuracies[-1] if accuracies else None,
        "convergence_accuracy": math.fsum(last) / len(last) if last else None,
        "best_accuracy": max(accuracies, default=None),
        "stability": stability(last),
        "target_accuracy": target_accuracy,
        "time_to_target_s": next(reached, None),
    }


def stability(accuracies: Sequence[float]) -> float | None:
    """Standard deviation of the decimal logarithms: how much the last accuracies waver, 0 for not
    at all (WKAFL, arXiv 2203.01214, 6.1.3).

    The paper does not name the base. None for fewer than CONVERGENCE_EVALUATIONS, or where one is
    0.
    """
    if len(accuracies) < CONVERGENCE_EVALUATIONS or min(accuracies) <= 0:
        return None
    return pstdev(math.log10(accuracy) for accuracy in accuracies)


def one_line(summary: Mapping[str, Any], name: str) -> str:
    """A finished run for the terminal: "fedavg: 20 versions, 25.0 emulated s in 25.0 s, accuracy
    0.9361, faithful (emulated_s)".
    """
    accuracy = (
        "" if summary["final_accuracy"] is None else f", accuracy {summary['final_accuracy']:.4f}"
    )
    times = f"{summary['emulated_s']:.1f} emulated s in {summary['wall_s']:.1f} s"
    besides = "".join(f"; {remark}" for remark in remarks(summary))
    return (
        f"{name}: {summary['versions']} versions, {times}{accuracy},"
        f" {summary['fidelity']['verdict']} ({summary['finished']}){besides}"
    )


def remarks(summary: Mapping[str, Any]) -> list[str]:
    """What nobody should overlook who reads the numbers: a model that is none any more, jobs
    without a result, edges that were not there.
    """
    first, missing, lost = (
        summary.get("diverged_at_version"),
        summary.get("edges_missing"),
        summary.get("edges_lost"),
    )
    failed = ", ".join(
        f"{reason}: {count}" for reason, count in summary.get("jobs_failed", {}).items()
    )
    return [
        *(
            [
                f"diverged: version {first} is not finite (NaN or infinite), and its accuracy says"
                " nothing"
            ]
            if first is not None
            else []
        ),
        *([f"jobs of the server that failed: {failed}"] if failed else []),
        *([f"begun without {_edges(missing)}"] if missing else []),
        *([f"lost and not back at the end: {_edges(lost)}"] if lost else []),
    ]


def _edges(names: Sequence[str]) -> str:
    return (
        f"{len(names)} edge{'s' if len(names) > 1 else ''}"
        f" ({', '.join(names[:5])}{' ...' if len(names) > 5 else ''})"
    )


def evaluations(metrics_rows: Iterable[Mapping[str, Any]]) -> list[tuple[float, float]]:
    """(emulated_s, accuracy) in order of emulated time: evaluations run beside the run and may
    be written out of order.
    """
    found = []
    for row in metrics_rows:
        emulated_s, accuracy = number(row.get("emulated_s")), number(row.get("accuracy"))
        if emulated_s is not None and accuracy is not None:
            found.append((emulated_s, accuracy))
    return sorted(found, key=lambda pair: pair[0])


def number(text: Any) -> float | None:
    """A finite number from a CSV field or a JSON value; None for an empty or impossible one."""
    try:
        value = float(text)
    except (TypeError, ValueError):
        return None
    return value if math.isfinite(value) else None


def staleness_stats(histogram: Mapping[str, int]) -> tuple[float | None, int | None]:
    """Mean and largest staleness of {"0": 12, "1": 5}."""
    updates = sum(histogram.values())
    if not updates:
        return None, None
    return sum(int(gap) * n for gap, n in histogram.items()) / updates, max(
        int(gap) for gap, n in histogram.items() if n
    )


def counters(events: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """The counters of summary.json as far as the events of an unfinished run give them.

    An update counts as applied unless it was discarded; staleness is taken on arrival.
    """
    versions, emulated_s = 0, 0.0
    gaps: dict[Any, int] = {}
    discards: dict[Any, str] = {}
    diverged_at, missing, lost, failed = None, [], dict[str, bool](), Counter[str]()
    for event in events:
        emulated_s = event.get("t", emulated_s)
        versions = max(versions, event.get("version", 0))
        if event.get("event") == "update_arrived":
            gaps[event["task"]] = event["version"] - event["base_version"]
        if event.get("event") in ("edge_joined", "edge_lost"):
            lost[event["edge"]] = event["event"] == "edge_lost"
        if event.get("event") == "job_failed":
            failed[event["reason"]] += 1
        if event.get("fact") == "discarded":  # the strategy never saw it
            discards[event["task"]] = event["reason"]
        elif event.get("fact") == "diverged":
            diverged_at = event["version"]
        elif event.get("fact") == "edges_missing":
            missing = event["edges"]
        for decision in event.get("decisions", ()):
            if decision["do"] == "publish":
                versions = max(versions, decision["version"])
            elif decision["do"] == "discard":
                discards[decision["task"]] = decision["reason"]
    applied = {task: gap for task, gap in gaps.items() if task not in discards}
    return {
        "versions": versions,
        "updates_applied": len(applied),
        "updates_discarded": dict(Counter(discards.values())),
        "staleness": {str(gap): n for gap, n in sorted(Counter(applied.values()).items())},
        "emulated_s": emulated_s,
        **({} if diverged_at is None else {"diverged_at_version": diverged_at}),
        **({"jobs_failed": dict(failed)} if failed else {}),
        **({"edges_missing": missing} if missing else {}),
        **(
            {"edges_lost": gone}
            if (gone := sorted(edge for edge, is_lost in lost.items() if is_lost))
            else {}
        ),
    }
