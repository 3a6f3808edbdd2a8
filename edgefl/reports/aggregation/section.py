"""How steps made of K gradients weighed them in one run: pure functions from its events, or from
what was reported of its steps.

Weighted staleness, aggregated and predominant gradients: WKAFL, arXiv 2203.01214, section 4.1. The
rows are those of events.jsonl.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any

MARK = "weighted_staleness"  # a report with it is one of such a step

Row = Mapping[str, Any]


def section(found: Sequence[tuple[int, Mapping[str, float]]]) -> dict[str, Any] | None:
    """The "aggregation" of summary.json from a run's ``steps``, or None if there are none.

    tau_ave: mean over the steps of sum p_i tau_i, tau in versions; n_ave: mean number of gradients
    with p_i >= p_max / mu; predominant: steps by their number of gradients with p_i > 0.1;
    clipped_share: of all gradients, None for a scheme that does not clip.
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
    """(version before it, what was reported of it) of each step."""
    return [
        (event["version"], decision["values"])
        for event in events
        for decision in event.get("decisions", ())
        if decision["do"] == "report" and MARK in decision["values"]
    ]


def predominant(reported: Iterable[Mapping[str, float]]) -> dict[str, int]:
    """Number of predominant gradients -> in how many steps there were so many (figure 2a)."""
    counts = Counter(int(step["predominant"]) for step in reported)
    return {str(count): counts[count] for count in sorted(counts)}
