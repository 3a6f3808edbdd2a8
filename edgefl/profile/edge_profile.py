"""The numbers of one edge for ``[links]`` and ``[devices]``, from what its runs measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import linear_regression, median

import numpy as np

from edgefl.profile.rates import LinkRate, link_rate
from edgefl.profile.rest import LinkModel, Rest, beyond, rest_of, tasks
from edgefl.results.measured import WAYS, MeasuredEdge, spread

LEAST_TRANSFERS, LEAST_PINGS, LEAST_TRAININGS = 3, 3, 3
# Jitter is written where the round trips show it clearly above the noise of the two programs.
LEAST_JITTER_PINGS, LEAST_JITTER_S, JITTER_SHARE = 8, 0.001, 0.1
LEAST_SIZE_SPREAD = 1.5  # sizes of trainings must differ by this factor to separate an overhead


@dataclass(frozen=True, slots=True)
class MeasuredRun:
    """What one run measured, by edge.

    ``links``: rows of links.csv. ``requests_s``: when an edge asked for fresher models.
    ``ended_s``: the run's length.
    """

    edges: Mapping[str, MeasuredEdge]
    links: Sequence[Mapping[str, str]]
    requests_s: Mapping[str, Sequence[float]]
    ended_s: float


@dataclass(frozen=True, slots=True)
class LinkProfile:
    """A native link: rate by direction, one-way latency and jitter.

    ``counts``: transfers by direction, and heartbeats as "pings" and "idle_pings". ``slower``: of a
    direction, the goodput while other edges moved at the same time, divided by that alone; if both
    are known. ``rest``: what the numbers do not explain. ``size_bytes``: median of a transfer, by
    direction.
    """

    rates: Mapping[str, LinkRate]
    latency_s: float
    jitter_s: float
    counts: Mapping[str, int]
    slower: Mapping[str, float]
    rest: Rest
    size_bytes: Mapping[str, float]

    def whole_share(self, way: str) -> float:
        """The wire's part of a transfer without its latency: wire time / (wire time + rest).

        The rate times this share gives transfers of the same size their whole time. At most 1.
        """
        wire_s = 8 * self.size_bytes[way] / self.rates[way].bit_s
        rest_s = self.rest.down_s if way == "down" else self.rest.up_s
        return wire_s / (wire_s + max(rest_s, 0.0)) if wire_s else 1.0


@dataclass(frozen=True, slots=True)
class DeviceProfile:
    """A native device.

    ``samples_per_s``: all samples divided by all time, so that the trainings together take as long
    as they did; then median, 5th and 95th percentile over trainings. ``samples``: mean of a
    training. ``overhead_s``: the part of a training that does not depend on its samples; None if
    the trainings are too alike to separate it.
    """

    samples_per_s: float
    median: float
    p5: float
    p95: float
    trainings: int
    samples: float
    overhead_s: float | None


def lacks(edge: str, runs: Sequence[MeasuredRun], links: bool, device: bool) -> list[str]:
    """Say what is missing for a profile of this edge's native ``links`` and ``device``."""
    known = [run.edges[edge] for run in runs if edge in run.edges]
    found = []
    if links:
        for way, name in (("down", "downloads"), ("up", "uploads")):
            found.append((sum(len(each.busy[way]) for each in known), LEAST_TRANSFERS, name))
        found.append((sum(len(each.rtts_s) for each in known), LEAST_PINGS, "heartbeats"))
    if device:
        found.append((sum(len(each.training) for each in known), LEAST_TRAININGS, "trainings"))
    return [f"{count} of {least} {name}" for count, least, name in found if count < least]


# ------------------------------------------------------------------ links
def link_profile(edge: str, runs: Sequence[MeasuredRun]) -> LinkProfile:
    """Return the profile of an edge's links; the runs lack nothing for it."""
    known = [(run, run.edges[edge]) for run in runs if edge in run.edges]
    rates = {
        way: link_rate([(each.busy[way], run.ended_s) for run, each in known if each.busy[way]])
        for way in WAYS
    }
    idle_s = [rtt_s for _, each in known for rtt_s in each.idle_rtts_s]
    all_s = [rtt_s for _, each in known for rtt_s in each.rtts_s]
    latency_s, jitter_s = one_way(idle_s, all_s)
    counts = {way: sum(len(each.busy[way]) for _, each in known) for way in WAYS}
    model = LinkModel({way: rate.bit_s for way, rate in rates.items()}, latency_s)
    rest = rest_of(
        [
            beyond(task, each.training, run.requests_s.get(edge, ()), model)
            for run, each in known
            for task in tasks([row for row in run.links if row["edge"] == edge])
        ]
    )
    return LinkProfile(
        rates,
        latency_s,
        jitter_s,
        counts | {"pings": len(all_s), "idle_pings": len(idle_s)},
        {way: ratio for way in WAYS if (ratio := _slower([each for _, each in known], way))},
        rest,
        {
            way: median([busy.size_bytes for _, each in known for busy in each.busy[way]])
            for way in WAYS
        },
    )


def one_way(idle_s: Sequence[float], all_s: Sequence[float]) -> tuple[float, float]:
    """Return the one-way latency and its standard deviation (0: none is visible), in s.

    Half of the median of the idle round trips. Without LEAST_PINGS of these, half of the shortest
    of all, because waiting behind a transfer can only make them longer. The deviation is half of
    what the middle 68 % of the idle round trips span, divided by the square root of 2, because a
    round trip has two random parts.
    """
    if len(idle_s) < LEAST_PINGS:
        return min(all_s) / 2, 0.0
    low, middle, high = np.percentile(idle_s, [16, 50, 84])
    latency_s, jitter_s = float(middle) / 2, float(high - low) / 2 / 2**0.5
    seen = (
        len(idle_s) >= LEAST_JITTER_PINGS
        and jitter_s >= LEAST_JITTER_S
        and jitter_s >= JITTER_SHARE * latency_s
    )
    return latency_s, jitter_s if seen else 0.0


def _slower(known: Sequence[MeasuredEdge], way: str) -> float | None:
    """Goodput with others (on average one or more) over goodput alone (less than a tenth)."""
    busy = [one for each in known for one in each.busy[way]]
    alone = [one.rate_bit_s for one in busy if one.others < 0.1]
    shared = [one.rate_bit_s for one in busy if one.others >= 1]
    enough = min(len(alone), len(shared)) >= LEAST_TRANSFERS
    return median(shared) / median(alone) if enough else None


# ------------------------------------------------------------------ devices
def device_profile(edge: str, runs: Sequence[MeasuredRun]) -> DeviceProfile:
    """Return the profile of an edge's device; the runs lack nothing for it."""
    parts = [part for run in runs if edge in run.edges for part in run.edges[edge].training]
    speed = spread([part.per_s for part in parts])
    seconds = sum(part.ended_s - part.began_s for part in parts)
    return DeviceProfile(
        sum(part.amount for part in parts) / seconds,
        speed["median"],
        speed["p5"],
        speed["p95"],
        len(parts),
        float(np.mean([part.amount for part in parts])),
        overhead_s([(part.amount, part.ended_s - part.began_s) for part in parts]),
    )


def overhead_s(parts: Sequence[tuple[float, float]]) -> float | None:
    """The time of a training of no samples, by a straight line through (samples, seconds).

    None if the sizes are too alike for a line. 0 if the line is below 0 there.
    """
    sizes, seconds = zip(*parts)
    if max(sizes) < LEAST_SIZE_SPREAD * min(sizes):
        return None
    return max(linear_regression(sizes, seconds).intercept, 0.0)
