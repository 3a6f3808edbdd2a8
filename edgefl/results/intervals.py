"""What the edges of a run do, as intervals on lanes. All times are emulated seconds."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from edgefl.results.summary import number

COMPUTE, UPLINK, DOWNLINK, FAULT, AWAY = "compute", "uplink", "downlink", "fault", "away"
LANES = (COMPUTE, UPLINK, DOWNLINK, FAULT, AWAY)
LINK_LANES = {"up": UPLINK, "down": DOWNLINK}  # by the direction in links.csv
MOVING = {UPLINK: "send", DOWNLINK: "receive"}


class Slice(NamedTuple):
    """An edge does ``kind`` from ``begin_s`` to ``end_s``, on one of its lanes.

    compute: "training", "wait" (in a task, for a fresher model) or "idle" (without a task).
    uplink: "wait" (for the grant, or for the first slot) or "send"; downlink: "wait" or "receive".
    fault: the kind of an injected fault. away: "lost".

    ``end_s``: None while it goes on. ``task``: None if it is about none, or if it is unknown.
    ``size_bytes``: of a whole transfer; None for all else, and for a transfer that was broken off.
    """

    edge: str
    lane: str
    kind: str
    begin_s: float
    end_s: float | None
    task: int | None = None
    size_bytes: int | None = None


class Instant(NamedTuple):
    """Something that takes no time.

    ``kind``: "merge" (a published model contains the task's update; ``version`` is that model's),
    "fresh" (a fresher model has arrived at the edge), "discard", "failed" (the training), "timeout"
    or an injected fault that does not last ("restart", "duplicate", "corrupt").
    """

    edge: str
    kind: str
    t_s: float
    task: int | None = None
    version: int | None = None


class Gap(NamedTuple):
    """The staleness of an update when it arrived: versions published since its base."""

    t_s: float
    edge: str
    versions: int


class Lane:
    """The transfers of one edge in one direction, which do not overlap on their lane.

    An edge's transfers share its link. Where two of them overlap, the one that ends first has the
    lane, so the other one begins at its end.
    """

    def __init__(self, keep: int | None = None) -> None:
        self._last = (0.0, 0.0)
        self._cut: deque[tuple[float, float]] = deque(maxlen=keep)  # broken off: without a row

    def cut(self, begin_s: float, end_s: float) -> None:
        """Take the interval of a transfer that was broken off. These come in order of time."""
        self._cut.append((begin_s, end_s))

    def fit(self, begin_s: float, end_s: float) -> tuple[float, float]:
        """Return the part of an interval that is free, and occupy it; it may be empty.

        Call this in the order in which transfers end.
        """
        for at in range(bisect_right(self._cut, begin_s, key=lambda each: each[1]), len(self._cut)):
            if self._cut[at][0] >= end_s:
                break
            begin_s, end_s = _beside(self._cut[at], begin_s, end_s)
        begin_s, end_s = _beside(self._last, begin_s, end_s)
        self._last = max(self._last, (begin_s, end_s), key=lambda each: each[1])
        return begin_s, end_s


def _beside(other: tuple[float, float], begin_s: float, end_s: float) -> tuple[float, float]:
    """The part of an interval behind ``other``; the part before it if ``other`` ends later."""
    if other[1] <= end_s:
        return max(begin_s, other[1]), end_s
    end_s = min(end_s, other[0])
    return min(begin_s, end_s), end_s


def latest(
    history: deque[tuple[float, int]], until_s: float
) -> tuple[float, int] | tuple[None, None]:
    """The latest (t_s, task) up to a moment."""
    place = bisect_right(history, until_s, key=lambda each: each[0])
    return history[place - 1] if place else (None, None)


class Windows:
    """The slots of a TDMA channel in which transfers were served, from rows of slots.csv."""

    def __init__(self) -> None:
        self._by_link: dict[tuple[str, str], deque[tuple[float, float]]] = {}

    def take(self, rows: Iterable[Mapping[str, str]]) -> None:
        """Take rows of slots.csv, before those of links.csv about the same transfers."""
        for row in rows:
            begin_s, end_s = number(row.get("begins_s")), number(row.get("ends_s"))
            if begin_s is not None and end_s is not None:
                link = row.get("edge", ""), row.get("direction", "")
                self._by_link.setdefault(link, deque()).append((begin_s, end_s))

    def parts(
        self, link: tuple[str, str], moves: str, offered_s: float, ended_s: float
    ) -> Iterator[tuple[str, float, float]]:
        """Yield a transfer as (kind, from, to): "wait" before and between its slots, or ``moves``.

        ``link``: (edge, direction). A transfer without slots moves all the time. Ask for the
        transfers of a link in order of time; its slots until then are forgotten.
        """
        windows, own = self._by_link.get(link, deque()), []
        while windows and windows[0][0] < ended_s:
            own.append(windows.popleft())
        own = [each for each in own if each[0] >= offered_s]
        at_s = offered_s
        for begin_s, end_s in own[:-1]:
            yield from _waits(at_s, begin_s)
            at_s = min(end_s, ended_s)
            yield moves, begin_s, at_s
        begin_s = own[-1][0] if own else offered_s
        yield from _waits(at_s, begin_s)
        yield moves, begin_s, ended_s


def _waits(begin_s: float, end_s: float) -> list[tuple[str, float, float]]:
    return [("wait", begin_s, end_s)] if end_s > begin_s else []


def rates_bit_s(slices: Iterable[Slice]) -> dict[str, list[tuple[float, float]]]:
    """Return the rate on all uplinks and on all downlinks together, by lane.

    The points (t_s, bit/s) are in order of time; each rate holds until the next point. Each
    transfer counts with its mean rate over its interval.
    """
    steps: dict[str, defaultdict[float, float]] = {lane: defaultdict(float) for lane in MOVING}
    for each in slices:
        if each.kind != MOVING.get(each.lane) or each.size_bytes is None or each.end_s is None:
            continue
        if each.end_s > each.begin_s:
            rate = 8 * each.size_bytes / (each.end_s - each.begin_s)
            steps[each.lane][each.begin_s] += rate
            steps[each.lane][each.end_s] -= rate
    return {lane: _summed(changes) for lane, changes in steps.items()}


def _summed(changes: dict[float, float]) -> list[tuple[float, float]]:
    rate, peak, points = 0.0, 0.0, []
    for t_s, change in sorted(changes.items()):
        rate += change
        peak = max(peak, rate)
        points.append((t_s, rate if rate > 1e-9 * peak else 0.0))  # the rest is rounding
    return points
