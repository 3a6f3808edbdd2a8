"""How the server steps of one run weighed their K gradients, computed from its events.

Weighted staleness, aggregated and predominant gradients are defined in WKAFL, arXiv 2203.01214,
section 4.1. The rows are those of events.jsonl.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any

MARK = "weighted_staleness"  # marks the report of a step
SHARE = "share"  # in the report of one gradient, see ``report_shares``

Row = Mapping[str, Any]
Shares = Mapping[str, float]  # of a step: edge -> p_i


def section(found: Sequence[tuple[int, Mapping[str, float]]]) -> dict[str, Any] | None:
    """Return the "aggregation" of summary.json from a run's ``steps``, or None without steps.

    tau_ave: mean over the steps of sum p_i tau_i, tau in versions; n_ave: mean number of gradients
    with p_i >= p_max / mu; predominant: number of steps by number of gradients with p_i > 0.1;
    clipped_share: share of all gradients, None for a scheme that does not clip.
    """
    if not found:
        return None
    gradients = sum(step["gradients"] for _, step in found)
    return {
        "steps": len(found),
        "gradients": int(gradients),
        "tau_ave": fmean(step[MARK] for _, step in found),
        "n_ave": fmean(step["aggregated"] for _, step in found),
        "predominant": predominant([step for _, step in found]),
        "selected_ave": (
            fmean(step["selected"] for _, step in found)
            if all("selected" in step for _, step in found)
            else None
        ),
        "clipped_share": (
            sum(step["clipped"] for _, step in found) / gradients
            if all("clipped" in step for _, step in found)
            else None
        ),
        "stage_two_version": next(
            (version for version, step in found if step.get("stage") == 2), None
        ),
    }


def steps(events: Iterable[Row]) -> list[tuple[int, dict[str, float]]]:
    """Return for each step (version before the step, numbers reported about it)."""
    return [
        (event["version"], decision["values"])
        for event in events
        for decision in event.get("decisions", ())
        if decision["do"] == "report" and MARK in decision["values"]
    ]


def shares(events: Iterable[Row]) -> list[dict[str, float]]:
    """Return for each step the share of each edge's gradient; [] without ``report_shares``."""
    found = (
        {
            decision["edge"]: decision["values"][SHARE]
            for decision in event.get("decisions", ())
            if decision["do"] == "report" and SHARE in decision["values"]
        }
        for event in events
    )
    return [each for each in found if each]


def of_shares(
    found: Sequence[Shares], held: Mapping[str, Mapping[str, float]]
) -> dict[str, float | None]:
    """Return what only the shares of all gradients tell; {} without any.

    effective_ave: mean over the steps of (sum p_i)^2 / sum p_i^2, the number of equally weighed
    gradients with the same variance of their mean; largest_label_ave: mean over the steps of the
    largest sum over i of p_i h_i(label), with h = ``held``: edge -> label -> its share of the
    edge's samples. None without ``held``.
    """
    if not found:
        return {}
    return {
        "effective_ave": fmean(effective(list(step.values())) for step in found),
        "largest_label_ave": fmean(largest_label(step, held) for step in found) if held else None,
    }


def effective(weights: Sequence[float]) -> float:
    """Return (sum p)^2 / sum p^2: K for equal weights, 1 if one has all; 0 if all are 0."""
    squares = sum(weight * weight for weight in weights)
    return sum(weights) ** 2 / squares if squares else 0.0


def largest_label(step: Shares, held: Mapping[str, Mapping[str, float]]) -> float:
    """Return the largest share of one label in a step."""
    of_label: dict[str, float] = {}
    for edge, share in step.items():
        for label, part in held[edge].items():
            of_label[label] = of_label.get(label, 0.0) + share * part
    return max(of_label.values(), default=0.0)


def labels_held(rows: Iterable[Mapping[str, str]]) -> dict[str, dict[str, float]]:
    """Return edge -> label -> share of its samples, from the rows of edges.csv."""
    found = {}
    for row in rows:
        counts = {key: int(value) for key, value in row.items() if key.startswith("label_")}
        total = sum(counts.values())
        found[row["edge"]] = {key: count / total for key, count in counts.items() if count}
    return found


def predominant(reported: Iterable[Mapping[str, float]]) -> dict[str, int]:
    """Return the number of steps by their number of predominant gradients (figure 2a)."""
    counts = Counter(int(step["predominant"]) for step in reported)
    return {str(count): counts[count] for count in sorted(counts)}
