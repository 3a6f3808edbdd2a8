"""What the edges of a run do, as intervals on lanes. All times are emulated seconds."""

from __future__ import annotations

import math
from array import array
from bisect import bisect_right
from collections import defaultdict, deque
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from edgefl.results.columns import MISSING, TableColumns, Texts

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


class SliceColumns(NamedTuple):
    """Slices as columns: ``edge`` and ``kind`` are numbers of the timeline's texts, ``lane`` is
    the place in LANES. An end that is not known is NaN; MISSING stands for no task and no size.
    """

    edge: np.ndarray
    lane: np.ndarray
    kind: np.ndarray
    begin_s: np.ndarray
    end_s: np.ndarray
    task: np.ndarray
    size_bytes: np.ndarray

    def unpacked(self, texts: Texts) -> list[Slice]:
        names = texts.all
        return [
            Slice(
                *(names[edge], LANES[lane], names[kind], begin_s),
                *(None if math.isnan(end_s) else end_s, _known(task), _known(size)),
            )
            for edge, lane, kind, begin_s, end_s, task, size in zip(*(x.tolist() for x in self))
        ]


class InstantColumns(NamedTuple):
    """Instants as columns, as in SliceColumns; MISSING stands for no task and no version."""

    edge: np.ndarray
    kind: np.ndarray
    t_s: np.ndarray
    task: np.ndarray
    version: np.ndarray

    def unpacked(self, texts: Texts) -> list[Instant]:
        names = texts.all
        return [
            Instant(names[edge], names[kind], t_s, _known(task), _known(version))
            for edge, kind, t_s, task, version in zip(*(each.tolist() for each in self))
        ]


class GapColumns(NamedTuple):
    """The staleness of updates when they arrived, as in SliceColumns: versions since their base."""

    t_s: np.ndarray
    edge: np.ndarray
    versions: np.ndarray


SLICE_TYPES = (np.int32, np.int8, np.int32, np.float64, np.float64, np.int64, np.int64)
INSTANT_TYPES = (np.int32, np.int32, np.float64, np.int64, np.int64)
GAP_TYPES = (np.float64, np.int32, np.int64)


def packed(rows: Sequence[tuple[Any, ...]], types: Sequence[type]) -> list[np.ndarray]:
    """Return rows, all as long as ``types``, as columns of these types."""
    if not rows:
        return [np.zeros(0, kind) for kind in types]
    return [np.array(column, kind) for column, kind in zip(zip(*rows), types)]


def joined(parts: Sequence[Sequence[np.ndarray]], types: Sequence[type]) -> list[np.ndarray]:
    """Return the rows of several columns in one."""
    return [np.concatenate(each) for each in zip(packed((), types), *parts)]


def _known(value: int) -> int | None:
    return None if value == MISSING else value


class Lane:
    """The transfers of one edge in one direction, which do not overlap on their lane.

    An edge's transfers share its link. Where two of them overlap, the one that ends first has the
    lane, so the other one begins at its end.
    """

    def __init__(self, keep: int | None = None) -> None:
        self.last = (0.0, 0.0)
        self._cut: deque[tuple[float, float]] = deque(maxlen=keep)  # broken off: without a row

    def cut(self, begin_s: float, end_s: float) -> None:
        """Take the interval of a transfer that was broken off. These come in order of time."""
        self._cut.append((begin_s, end_s))

    @property
    def is_cut(self) -> bool:
        return bool(self._cut)

    def fit(self, begin_s: float, end_s: float) -> tuple[float, float]:
        """Return the part of an interval that is free, and occupy it; it may be empty.

        Call this in the order in which transfers end.
        """
        for at in range(bisect_right(self._cut, begin_s, key=lambda each: each[1]), len(self._cut)):
            if self._cut[at][0] >= end_s:
                break
            begin_s, end_s = _beside(self._cut[at], begin_s, end_s)
        begin_s, end_s = _beside(self.last, begin_s, end_s)
        self.last = max(self.last, (begin_s, end_s), key=lambda each: each[1])
        return begin_s, end_s


def fit(
    lanes: Sequence[Lane], of: np.ndarray, begin_s: np.ndarray, end_s: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Fit many intervals at once, each into ``lanes[of]``, as ``Lane.fit`` does one by one."""
    order = np.argsort(of, kind="stable")
    begins, ends = begin_s[order], end_s[order]
    borders = np.searchsorted(of[order], np.arange(len(lanes) + 1))
    # A lane whose intervals come in the order of their ends: each begins behind the one before.
    before = np.concatenate([[0.0], ends[:-1]])
    before[borders[:-1]] = [lane.last[1] for lane in lanes]
    one_by_one = {*of[order][before > ends].tolist()}
    begins = np.maximum(begins, before)
    for number, lane in enumerate(lanes):
        first, last = borders[number], borders[number + 1] - 1
        if lane.is_cut or number in one_by_one:
            for at in range(first, last + 1):
                begins[at], ends[at] = lane.fit(begin_s[order[at]], ends[at])
            continue
        while last > first and ends[last - 1] == ends[last]:
            last -= 1
        lane.last = max(lane.last, (float(begins[last]), float(ends[last])), key=lambda x: x[1])
    back = np.empty_like(order)
    back[order] = np.arange(len(order))
    return begins[back], ends[back]


def _beside(other: tuple[float, float], begin_s: float, end_s: float) -> tuple[float, float]:
    """The part of an interval behind ``other``; the part before it if ``other`` ends later."""
    if other[1] <= end_s:
        return max(begin_s, other[1]), end_s
    end_s = min(end_s, other[0])
    return min(begin_s, end_s), end_s


class History:
    """The moments at which the tasks of an edge began: at least the latest ``keep``; None: all."""

    def __init__(self, keep: int | None = None) -> None:
        self._keep = keep
        self._times, self._tasks = array("d"), array("q")

    def __len__(self) -> int:
        return len(self._times)

    def add(self, t_s: float, task: int) -> None:
        self._times.append(t_s)
        self._tasks.append(task)
        if self._keep is not None and len(self._times) > 2 * self._keep:
            del self._times[: -self._keep], self._tasks[: -self._keep]

    def later(self, t_s: float) -> None:
        """Move the latest moment."""
        self._times[-1] = t_s

    def latest(self, until_s: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the latest moment up to each of these and its task; NaN, MISSING for none."""
        found = np.full(len(until_s), np.nan), np.full(len(until_s), MISSING)
        if len(self):
            times, tasks = np.frombuffer(self._times), np.frombuffer(self._tasks, np.int64)
            places = times.searchsorted(until_s, side="right") - 1
            there = places >= 0
            found[0][there], found[1][there] = times[places[there]], tasks[places[there]]
        return found


class Windows:
    """The slots of a TDMA channel in which transfers were served, from rows of slots.csv."""

    def __init__(self) -> None:
        self._by_link: dict[tuple[int, int], deque[tuple[float, float]]] = {}

    def __bool__(self) -> bool:
        return bool(self._by_link)

    def take(self, rows: TableColumns) -> None:
        """Take rows of slots.csv, before those of links.csv about the same transfers."""
        begins_s, ends_s = rows.get("begins_s"), rows.get("ends_s")
        there = ~(np.isnan(begins_s) | np.isnan(ends_s))
        links = (rows.get(name)[there].tolist() for name in ("edge", "direction"))
        windows = zip(begins_s[there].tolist(), ends_s[there].tolist())
        for link, window in zip(zip(*links), windows):
            self._by_link.setdefault(link, deque()).append(window)

    def parts(
        self, link: tuple[int, int], offered_s: float, ended_s: float, size_bytes: int
    ) -> list[tuple[bool, float, float, int]]:
        """Return a transfer as (moves, from, to, bytes): in its slots it moves, before and between
        them it waits, with MISSING bytes. The bytes are spread over the slots by their lengths.

        ``link``: the numbers of edge and direction. A transfer without slots moves all the time.
        Ask for the transfers of a link in order of time; its slots until then are forgotten.
        """
        windows, own = self._by_link.get(link, deque()), []
        while windows and windows[0][0] < ended_s:
            own.append(windows.popleft())
        own = [each for each in own if each[0] >= offered_s]
        found, at_s = [], offered_s
        for begin_s, end_s in own[:-1]:
            found += _waits(at_s, begin_s)
            at_s = min(end_s, ended_s)
            found.append((True, begin_s, at_s, 0))
        begin_s = own[-1][0] if own else offered_s
        found += [*_waits(at_s, begin_s), (True, begin_s, ended_s, 0)]
        return _with_bytes(found, size_bytes)


def _waits(begin_s: float, end_s: float) -> list[tuple[bool, float, float, int]]:
    return [(False, begin_s, end_s, MISSING)] if end_s > begin_s else []


def _with_bytes(
    parts: list[tuple[bool, float, float, int]], size_bytes: int
) -> list[tuple[bool, float, float, int]]:
    moving = sum(to_s - from_s for moves, from_s, to_s, _ in parts if moves)
    found, left = [], size_bytes
    for number_of, (moves, from_s, to_s, share) in enumerate(parts, 1):
        if moves:
            share = left
            if number_of < len(parts):
                share = round(size_bytes * (to_s - from_s) / moving) if moving else 0
                left -= share
        found.append((moves, from_s, to_s, share))
    return found


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
