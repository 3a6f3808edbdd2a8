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

Row = Mapping[str, Any]


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


def predominant(reported: Iterable[Mapping[str, float]]) -> dict[str, int]:
    """Return the number of steps by their number of predominant gradients (figure 2a)."""
    counts = Counter(int(step["predominant"]) for step in reported)
    return {str(count): counts[count] for count in sorted(counts)}
