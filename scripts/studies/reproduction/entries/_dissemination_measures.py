"""Numbers of runs whose devices ask for fresher models: how much merging and staleness did.

"Mid-run" is from 40 to 60 % of the emulated time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from statistics import median
from typing import Any

from edgefl.record.files import EVENTS
from edgefl.reports.dissemination import reported, updates
from edgefl.results.tail import read_events
from edgefl.sweep.metrics import facts_of
from reproduction.entry import Measure

MID = 0.4, 0.6  # shares of the emulated time
MB = 1e6
CONTROLS = ("lambda", "sigma", "iota")


# ------------------------------------------------------------------ from the updates
def beta_mid(run: Path) -> float | None:
    """Return the median weight of a merged model at mid-run; None if no device merged."""
    return _median(event["numbers"]["beta"] for event in mid(run) if event["numbers"].get("merged"))


def alpha_mid(run: Path) -> float | None:
    """Return the median weight of an arriving model at mid-run; None if it is not reported."""
    return _median(said["alpha"] for said in map(reported, mid(run)) if "alpha" in said)


def staleness_share_mid(run: Path) -> float | None:
    """Return the median share of xi (eq. 2) at mid-run that depends on staleness.

    The rest is iota. None for a fixed weight.
    """
    found = [said for said in map(reported, mid(run)) if said.get("xi")]
    return _median(max(0.0, 1 - said["iota"] / said["xi"]) for said in found)


def controls_moved(run: Path) -> float | None:
    """Return the largest change of lambda, sigma or iota since the first update; None: fixed."""
    told = [said for event in arrived(run) if "xi" in (said := reported(event))]
    if not told:
        return None
    return max(abs(said[name] - told[0][name]) for said in told for name in CONTROLS)


def request_share(run: Path) -> float | None:
    """Return the mean share of the task that was done at a merge; None if no device merged."""
    shares = [
        event["numbers"]["merge_step"] / event["numbers"]["steps"]
        for event in arrived(run)
        if event["numbers"].get("merged") and event["numbers"].get("steps")
    ]
    return sum(shares) / len(shares) if shares else None


# ------------------------------------------------------------------ from the summary
def staleness_median(run: Path) -> float | None:
    """Return the median gap of the applied updates, in versions."""
    counts: Mapping[str, int] = facts_of(run)["staleness"]
    return _median(int(gap) for gap, count in counts.items() for _ in range(count))


def staleness_before(run: Path) -> float | None:
    """Return the mean gap of merged updates, from the model that their training started with."""
    return _of_section(run, "staleness_before", "mean")


def staleness_after(run: Path) -> float | None:
    """Return the mean gap of merged updates, from the model that they merged."""
    return _of_section(run, "staleness_after", "mean")


def refresh_point_mean(run: Path) -> float | None:
    """Return the mean refresh point of the requests, in finished epochs."""
    points: Mapping[str, int] = (facts_of(run).get("dissemination") or {}).get("refresh_points", {})
    total = sum(points.values())
    return sum(int(at) * count for at, count in points.items()) / total if total else None


def newer_share(run: Path) -> float | None:
    """Return the share of the requests that found a newer model."""
    section = facts_of(run).get("dissemination") or {}
    return section["newer"] / section["requests"] if section.get("requests") else None


def waiting_mean_s(run: Path) -> float | None:
    """Return the mean emulated time from a request to its model."""
    return (facts_of(run).get("dissemination") or {}).get("waiting_mean_s")


def down_MB(run: Path) -> float | None:
    """Return what was sent down, in MB."""
    return float(facts_of(run)["bytes_down"]) / MB


def extra_down_MB(run: Path) -> float | None:
    """Return the MB of fresh models and their notes in the downlink; 0 without requests."""
    section = facts_of(run).get("dissemination") or {}
    return float(section.get("extra_bytes_down", 0)) / MB


MEASURES: Mapping[str, Measure] = {
    measure.__name__: measure
    for measure in (
        beta_mid,
        alpha_mid,
        staleness_share_mid,
        controls_moved,
        request_share,
        staleness_median,
        staleness_before,
        staleness_after,
        refresh_point_mean,
        newer_share,
        waiting_mean_s,
        down_MB,
        extra_down_MB,
    )
}


# ------------------------------------------------------------------ helpers
def mid(run: Path) -> list[Mapping[str, Any]]:
    """Return the updates that arrived at mid-run."""
    end_s = facts_of(run)["emulated_s"]
    low, high = (share * end_s for share in MID)
    return [event for event in arrived(run) if low <= event["t"] <= high]


@lru_cache(maxsize=2)  # the measures of one run are read one after another
def arrived(run: Path) -> Sequence[Mapping[str, Any]]:
    """Return the updates of a finished run that carry numbers."""
    return updates(read_events(run / EVENTS))


def _median(values: Iterable[float]) -> float | None:
    given = list(values)
    return float(median(given)) if given else None


def _of_section(run: Path, *keys: str) -> float | None:
    found: Any = facts_of(run).get("dissemination")
    for key in keys:
        found = (found or {}).get(key)
    return found
