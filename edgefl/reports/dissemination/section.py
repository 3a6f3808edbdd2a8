"""Cost and effect of asking for fresher models during training, computed from one run's files.

Timely dissemination: FedASMU and FedSSMU, arXiv 2507.06031, section 4. The rows are those of
events.jsonl and links.csv.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean, median
from typing import Any

from edgefl.protocol.codec import encode_note
from edgefl.protocol.messages import DROPPED, FRESH, FreshRequest, NothingNewer
from edgefl.results.summary import number

NEGLIGIBLE_BETA = 0.1  # below it a merge keeps more than 90 % of the edge's own model
MARK = "fresh_requested"  # the event that a device asks

Row = Mapping[str, Any]
Moment = tuple[float, float]  # begin and end in emulated s


def section(
    events: Sequence[Row], links: Sequence[Row], emulated_s: float
) -> dict[str, Any] | None:
    """Return the "dissemination" of summary.json, or None if no device asked.

    Staleness is that of merged updates at their arrival, in versions (FedSSMU: in aggregations of
    the round): of the model that the training started from ("before") and of the merged model
    ("after"). Merging is partial, so the update's own staleness lies in between.
    """
    asked = _requests(events)
    if not asked:
        return None
    merged = [event for event in updates(events) if event["numbers"].get("merged")]
    betas = [event["numbers"]["beta"] for event in merged if "beta" in event["numbers"]]
    extra_down, extra_up = _extra_bytes(events, links)
    waits = _waits(asked, links)
    beta = median(betas) if betas else None
    return {
        "requests": len(asked),
        "newer": sum(event["fresh"] is not None for event in asked.values()),
        "merges": len(merged),
        "too_late": sum(bool(event["numbers"].get("too_late")) for event in updates(events)),
        "waiting_total_s": math.fsum(waits),
        "waiting_mean_s": fmean(waits) if waits else None,
        "refresh_points": _histogram(refresh_points(events)),
        "extra_bytes_down": extra_down,
        "extra_bytes_up": extra_up,
        "use_up": link_use(events, links, "up", emulated_s),
        "use_down": link_use(events, links, "down", emulated_s),
        "staleness_before": _middle([_gap(event) for event in merged]),
        "staleness_after": _middle(
            [
                _gap(event) - _fresher_by(event)
                for event in merged
                if "fresh_version" in event["numbers"]
            ]
        ),
        "beta_median": beta,
        "note": negligible(beta),
    }


def negligible(beta_median: float | None) -> str | None:
    """Return a line that says that merging changed almost nothing, or None."""
    return (
        None
        if beta_median is None or beta_median >= NEGLIGIBLE_BETA
        else f"merging was negligible (median beta {beta_median:.2g})"
    )


def updates(events: Iterable[Row]) -> list[Row]:
    """Return the updates that the strategy got and that carry numbers."""
    return [
        event
        for event in events
        if event.get("event") == "update_arrived" and isinstance(event.get("numbers"), dict)
    ]


def refresh_points(events: Iterable[Row]) -> list[int]:
    """Return the refresh points of the updates whose device asked for a fresher model."""
    return [
        int(event["numbers"]["refresh_point"])
        for event in updates(events)
        if event["numbers"].get("asked")
        and number(event["numbers"].get("refresh_point")) is not None
    ]


def reported(event: Row) -> dict[str, float]:
    """Return the numbers that the strategy reported about an update."""
    return {
        name: value
        for decision in event.get("decisions", ())
        if decision["do"] == "report"
        for name, value in decision["values"].items()
    }


def _gap(update: Row) -> float:
    """Return the gap that the strategy reported, else the versions since the update's base."""
    return reported(update).get("gap", update["version"] - update["base_version"])


def _fresher_by(update: Row) -> float:
    return update["numbers"]["fresh_version"] - update["base_version"]


def _requests(events: Iterable[Row]) -> dict[int, dict[str, Any]]:
    """Return for each task its request: edge, time, and version of the model sent.

    The version is None if there was no newer model or no answer. A request that is repeated in a
    new session counts once, from its first time.
    """
    asked: dict[int, dict[str, Any]] = {}
    for event in events:
        if event.get("event") != MARK:
            continue
        request = asked.setdefault(
            event["task"], {"edge": event["edge"], "t": event["t"], "fresh": None}
        )
        for decision in event.get("decisions", ()):
            if decision["do"] == "send_fresh" and decision.get("version") is not None:
                request["fresh"] = decision["version"]
    return asked


def _waits(asked: Mapping[int, Row], links: Iterable[Row]) -> list[float]:
    """Return the emulated seconds from each request's arrival to its model's arrival on the edge.

    The answer "nothing newer" only takes the latency and is left out.
    """
    arrivals: dict[str, list[tuple[float, float, str]]] = defaultdict(list)
    for row in links:
        if row["kind"] in (FRESH, DROPPED):
            arrivals[row["edge"]].append(
                (float(row["offered_s"]), float(row["finished_s"]), row["kind"])
            )
    for moments in arrivals.values():
        moments.sort()
    waits = []
    for request in sorted(asked.values(), key=lambda request: request["t"]):
        moments = arrivals[request["edge"]]
        place = bisect_left(moments, (request["t"] - 1e-9,))
        if request["fresh"] is not None and place < len(
            moments
        ):  # otherwise the run or the edge ended first
            _, finished_s, kind = moments.pop(place)
            waits += [finished_s - request["t"]] if kind == FRESH else []
    return waits


def _extra_bytes(events: Iterable[Row], links: Iterable[Row]) -> tuple[int, int]:
    """Return the (down, up) bytes that a scheme without requests would not send.

    Down: fresh models and "nothing newer". Up: requests.
    """
    down = sum(int(row["bytes"]) for row in links if row["kind"] in (FRESH, DROPPED))
    up = 0
    for event in events:
        if event.get("event") != MARK:
            continue
        up += len(
            encode_note(
                FreshRequest(
                    event["task"], event["base_version"], event["step"], event.get("until_ns", 0)
                )
            )
        )
        answers = [
            decision for decision in event.get("decisions", ()) if decision["do"] == "send_fresh"
        ]
        down += sum(
            len(encode_note(NothingNewer(event["task"])))
            for answer in answers
            if answer.get("version") is None
        )
    return down, up


def link_use(
    events: Iterable[Row], links: Iterable[Row], direction: str, emulated_s: float
) -> float | None:
    """Return the share of the run in which a link was busy, averaged over the edges.

    A link is busy from the offer of a transfer to its end. None for a run without edges or time.
    """
    edges = {event["edge"] for event in events if event.get("event") == "edge_joined"}
    moments: dict[str, list[Moment]] = defaultdict(list)
    for row in links:
        if row["direction"] == direction:
            moments[row["edge"]].append((float(row["offered_s"]), float(row["finished_s"])))
    if not edges or emulated_s <= 0:
        return None
    return math.fsum(_covered(sorted(each)) for each in moments.values()) / (
        emulated_s * len(edges)
    )


def _covered(moments: Iterable[Moment]) -> float:
    """Return the length of the union of spans, sorted by their begin."""
    total, reached = 0.0, -math.inf
    for begin, end in moments:
        total += max(0.0, end - max(begin, reached))
        reached = max(reached, end)
    return total


def _histogram(values: Iterable[Any]) -> dict[str, int]:
    counts = Counter(int(value) for value in values if number(value) is not None)
    return {str(value): counts[value] for value in sorted(counts)}


def _middle(values: Sequence[float]) -> dict[str, float] | None:
    return {"mean": fmean(values), "median": float(median(values))} if values else None
