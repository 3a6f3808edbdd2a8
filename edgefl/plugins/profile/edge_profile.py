"""The numbers of one edge for ``[links]`` and ``[devices]``, from what its runs measured.

The rate of a link is one number, or a trace where it varied. A busy period is cut into steps of
STEP_S (a shorter one is one step). The rate varied if there are LEAST_STEPS steps of LEAST_STEP_S
or longer, and the rates at 10 % and at 90 % of the busy time differ by more than VARIED_SHARE of
the one at 50 %. Otherwise it counts as constant: all bytes divided by all busy time, so the
transfers together take as long as they did.

The rest is the time of a task that rate, latency and training do not explain. A native run pays for
the testbed's own protocol, which an emulated run does not: the edge begins to train when the
coordinator has confirmed the download (a round trip), and begins to send when its update is granted
(another one). The work of the programs adds to it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import fmean, linear_regression, median

import numpy as np

from edgefl.protocol.messages import FRESH, TASK, UPDATE
from edgefl.results.families.native import SHORT_S, WAYS, Busy, MeasuredEdge, Span, spread

STEP_S = 1.0
LEAST_STEP_S = 0.05  # in a shorter time, the stamps of the two programs make the difference
LEAST_STEPS = 8
VARIED_SHARE = 0.25
LOW, MIDDLE, HIGH = 0.1, 0.5, 0.9  # shares of the busy time


@dataclass(frozen=True, slots=True)
class LinkRate:
    """A link's rate: ``bit_s``, or ``trace`` with rows (s, bit/s) if it varied.

    The last row of a trace has no rate: it ends the trace. ``low_bit_s`` and ``high_bit_s``: the
    rates at 10 % and 90 % of the busy time.
    """

    bit_s: float
    low_bit_s: float
    high_bit_s: float
    trace: tuple[tuple[float, float | None], ...] = ()


def link_rate(runs: Sequence[tuple[Sequence[Busy], float]]) -> LinkRate:
    """Return the rate of a link that was measured in ``runs``: (busy periods, length of the run).

    There is at least one busy period. A trace is that of the run with the most busy time, because
    two runs have no common time.
    """
    periods = [busy for of_run, _ in runs for busy in of_run]
    seconds = sum(max(busy.seconds, SHORT_S) for busy in periods)
    whole_bit_s = 8 * sum(busy.size_bytes for busy in periods) / seconds
    spans = [step for busy in periods for step in steps(busy)]
    low, high = (_at_share(spans, share) for share in (LOW, HIGH))
    if not varied(spans):
        return LinkRate(whole_bit_s, low, high)
    longest, until_s = max(runs, key=lambda run: sum(busy.seconds for busy in run[0]))
    return LinkRate(
        whole_bit_s, low, high, trace([step for busy in longest for step in steps(busy)], until_s)
    )


def steps(busy: Busy) -> list[Span]:
    """Join the steps of a busy period to steps of STEP_S or longer; the last one takes the rest."""
    found: list[Span] = []
    for step in busy.steps:
        if found and found[-1].ended_s - found[-1].began_s < STEP_S:
            last = found.pop()
            step = Span(last.began_s, step.ended_s, last.amount + step.amount)
        found.append(step)
    if len(found) > 1 and found[-1].ended_s - found[-1].began_s < STEP_S:
        rest, last = found.pop(), found.pop()
        found.append(Span(last.began_s, rest.ended_s, last.amount + rest.amount))
    return found


def varied(spans: Sequence[Span]) -> bool:
    """Whether the rate varied, by the rule of this module."""
    long = [span for span in spans if span.ended_s - span.began_s >= LEAST_STEP_S]
    if len(long) < LEAST_STEPS:
        return False
    low, middle, high = (_at_share(long, share) for share in (LOW, MIDDLE, HIGH))
    return high - low > VARIED_SHARE * middle


def trace(spans: Sequence[Span], until_s: float) -> tuple[tuple[float, float | None], ...]:
    """Return rows (s, bit/s) from 0 to ``until_s`` that pass through the measured ``spans``.

    Between two spans nothing was measured: each rate holds to the middle of the gap.
    """
    borders = [
        (before.ended_s + after.began_s) / 2 if before.ended_s < after.began_s else after.began_s
        for before, after in pairwise(spans)
    ]
    rows = [(at_s, 8 * span.per_s) for at_s, span in zip([0.0, *borders], spans, strict=True)]
    return (*rows, (max(until_s, spans[-1].ended_s), None))


def _at_share(spans: Sequence[Span], share: float) -> float:
    """The rate (bit/s) that is not exceeded in this share of the busy time."""
    sought_s = share * sum(span.ended_s - span.began_s for span in spans)
    passed_s = 0.0
    for span in sorted(spans, key=lambda span: span.per_s):
        passed_s += span.ended_s - span.began_s
        if passed_s >= sought_s:
            break
    return 8 * span.per_s


MOST_MEDIANS = 3


# The seconds of a transfer of links.csv on an emulated link: of its rate and its latency.
ModelSeconds = Callable[[Mapping[str, str]], float]


@dataclass(frozen=True, slots=True)
class Rest:
    """Means over tasks of what the model does not explain.

    ``down_s``: of the download. ``up_s``: from there to the end of the upload, without training.
    ``share``: of both together in a task's whole time; None without a whole task.
    """

    down_s: float
    up_s: float
    share: float | None


@dataclass(slots=True)
class MovedTask:
    """The rows of links.csv of one task."""

    down: Mapping[str, str]
    fresh: list[Mapping[str, str]] = field(default_factory=list)
    up: Mapping[str, str] | None = None


def tasks(rows: Sequence[Mapping[str, str]]) -> list[MovedTask]:
    """Return the whole tasks in one edge's rows of links.csv; an edge has one task at a time."""
    found: list[MovedTask] = []
    for row in sorted(rows, key=_offered_s):
        if row["kind"] == TASK:
            found.append(MovedTask(row))
        elif found and row["kind"] == FRESH:
            found[-1].fresh.append(row)
        elif found and row["kind"] == UPDATE and found[-1].up is None:
            found[-1].up = row
    # a task ends before the next one begins; otherwise rows are missing
    return [
        task
        for task, after in pairwise([*found, None])
        if task is not None
        and task.up is not None
        and (after is None or _finished_s(task.up) <= _offered_s(after.down))
    ]


def beyond(
    task: MovedTask,
    training: Sequence[Span],
    requests_s: Sequence[float],
    model_s: ModelSeconds,
    latency_s: float,
) -> tuple[float, float, float]:
    """Return what the model does not explain of a task's download and of the rest, and its length.

    ``training``: measured spans of the edge; none for an emulated device, whose updates are ready
    in time. ``requests_s``: when the coordinator got requests for fresher models.
    """
    assert task.up is not None
    down_s = _seconds(task.down) - model_s(task.down)
    up_s = _seconds(task.up) - model_s(task.up)
    begin_s, end_s = _finished_s(task.down), _offered_s(task.up)
    trained = [span for span in training if begin_s < span.ended_s <= end_s]
    if trained:
        asked = sum(begin_s < at_s <= end_s for at_s in requests_s)
        # a request takes a latency; its answer is a transfer, or another latency
        waited_s = (2 * asked - len(task.fresh)) * latency_s + sum(
            model_s(row) for row in task.fresh
        )
        up_s += end_s - begin_s - waited_s - sum(span.ended_s - span.began_s for span in trained)
    return down_s, up_s, _finished_s(task.up) - _offered_s(task.down)


def rest_of(found: Sequence[tuple[float, float, float]]) -> Rest:
    """Return the means of what ``beyond`` has found of each task.

    Means, so that all tasks together have their time. A task longer than MOST_MEDIANS medians met
    an outage, which is no part of a link's usual behaviour; it does not count.
    """
    if not found:
        return Rest(0.0, 0.0, None)
    most_s = MOST_MEDIANS * median(whole_s for *_, whole_s in found)
    usual = [each for each in found if each[2] <= most_s]
    down_s, up_s, whole_s = (fmean(values) for values in zip(*usual))
    return Rest(down_s, up_s, (down_s + up_s) / whole_s if whole_s > 0 else None)


def _offered_s(row: Mapping[str, str]) -> float:
    return float(row["offered_s"])


def _finished_s(row: Mapping[str, str]) -> float:
    return float(row["finished_s"])


def _seconds(row: Mapping[str, str]) -> float:
    return _finished_s(row) - _offered_s(row)


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

    def model_s(row: Mapping[str, str]) -> float:
        return 8 * float(row["bytes"]) / rates[row["direction"]].bit_s + latency_s

    rest = rest_of(
        [
            beyond(task, each.training, run.requests_s.get(edge, ()), model_s, latency_s)
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
