"""What each edge does over time, from the rows of a run's files as they are written.

A transfer's row comes when it has ended, and its file may be behind or ahead of the events by some
rows. So transfers that have ended come from links.csv, and those that go on from the events.

Rows come as columns (``edgefl.results.read``), edges and kinds as numbers of ``texts``. What an
edge does follows from all that came before: where tasks take their usual course, many rows are
taken at once, others one by one, over numbers only. All else is done for many rows at once.
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from edgefl.errors import undamaged
from edgefl.protocol.messages import FRESH
from edgefl.record.files import ALL_EDGES, EVENTS, LINKS, SLOTS
from edgefl.results.read import (
    MISSING,
    EventColumns,
    TableColumns,
    Texts,
    as_rows,
    columns_of,
    event_columns,
    number,
    read_table,
    spread,
    tuples,
    without_collection,
)

# ---------------------------------------------------------------------- slices and instants
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


# The same as rows of numpy: ``edge`` and ``kind`` are numbers of the timeline's texts, ``lane`` is
# the place in LANES. An end that is not known is NaN; MISSING stands for no task, size or version.
SLICES = np.dtype(
    [
        *(("edge", "i4"), ("lane", "i1"), ("kind", "i4"), ("begin_s", "f8"), ("end_s", "f8")),
        *(("task", "i8"), ("size_bytes", "i8")),
    ],
    align=True,
)
INSTANTS = np.dtype(
    [("edge", "i4"), ("kind", "i4"), ("t_s", "f8"), ("task", "i8"), ("version", "i8")],
    align=True,
)
# the staleness of updates when they arrived: versions since their base
GAPS = np.dtype([("t_s", "f8"), ("edge", "i4"), ("versions", "i8")], align=True)
# rows of links.csv: transfers that have ended
MOVED = np.dtype(
    [
        *(("edge", "i4"), ("lane", "i1"), ("fresh", "?"), ("bytes", "f8"), ("offered_s", "f8")),
        *(("ended_s", "f8"), ("direction", "i4")),
    ],
    align=True,
)
# Parts of a transfer, and what rows say (``Act``). ``place``: of the row or the decision, for what
# else is in it.
PARTS = np.dtype([("moves", "?"), ("from_s", "f8"), ("to_s", "f8"), ("bytes", "i8")], align=True)
ACTS = np.dtype(
    [("act", "i8"), ("edge", "i4"), ("task", "i8"), ("t_s", "f8"), ("place", "i8")], align=True
)


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
    for place, lane in enumerate(lanes):
        first, last = borders[place], borders[place + 1] - 1
        if lane.is_cut or place in one_by_one:
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
        self._forget()

    def extend(self, times_s: np.ndarray, tasks: np.ndarray) -> None:
        self._times.frombytes(times_s.tobytes())
        self._tasks.frombytes(tasks.tobytes())
        self._forget()

    def _forget(self) -> None:
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


def rates_bit_s(
    slices: Iterable[Slice], repeated: Iterable[Slice] = ()
) -> dict[str, list[tuple[float, float]]]:
    """Return the rate on all uplinks and on all downlinks together, by lane.

    The points (t_s, bit/s) are in order of time; each rate holds until the next point. Each
    transfer counts with its mean rate over its interval. ``repeated``: of the timeline, so that a
    broadcast counts once.
    """
    steps: dict[str, defaultdict[float, float]] = {lane: defaultdict(float) for lane in MOVING}
    again = Counter(repeated)
    for each in slices:
        if again[each] > 0:
            again[each] -= 1
            continue
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


# ---------------------------------------------------------------------- the timeline of a run
LASTING = "kill"  # the only fault without a length that lasts: until the edge is back
PLACES = {lane: place for place, lane in enumerate(LANES)}


# What an edge does; UNKNOWN, too, if its process is down. ASKED is told apart from a wait because
# its end comes late.
UNKNOWN, IDLE, TRAINING, ASKED, RECEIVING, WAITING, SENDING = range(7)

# the lane and the kind of a slice
SHOWN = {
    UNKNOWN: (COMPUTE, "idle"),  # never shown
    IDLE: (COMPUTE, "idle"),
    TRAINING: (COMPUTE, "training"),
    ASKED: (COMPUTE, "wait"),
    RECEIVING: (DOWNLINK, "receive"),
    WAITING: (UPLINK, "wait"),
    SENDING: (UPLINK, "send"),
}
IN_TRANSFER = {DOWNLINK: RECEIVING, UPLINK: SENDING}


class Act:
    """What a row says about an edge or an update, by facts, events and decisions.

    Plain numbers, since the members of an enum take long to look up.
    """

    NONE = 0
    STARTED = 1
    SENDS = 2
    ARRIVED = 3
    ASSIGNED = 4
    WAITS = 5
    PUBLISHED = 6
    DISCARDED = 7
    GRANTED = 8
    CLOSED = 9
    JOINED = 10
    LOST = 11
    ASKED = 12
    NOTHING_NEWER = 13
    REFUSED = 14
    FAILED = 15
    TIMED_OUT = 16
    FAULT = 17


ACTS_AT_ONCE = 8192
# What an edge does after the acts of a task's usual course.
AFTER = {
    Act.ASSIGNED: RECEIVING,
    Act.STARTED: TRAINING,
    Act.SENDS: SENDING,
    Act.ARRIVED: IDLE,
}
FACTS = {
    "task_started": Act.STARTED,
    "update_ready": Act.SENDS,
    "discarded": Act.REFUSED,  # the update has arrived
    "training_failed": Act.FAILED,
    "task_timed_out": Act.TIMED_OUT,
    "fault": Act.FAULT,
}
EVENT_ACTS = {
    "edge_joined": Act.JOINED,
    "edge_lost": Act.LOST,
    "update_ready": Act.WAITS,
    "update_arrived": Act.ARRIVED,
    "task_closed": Act.CLOSED,
    "fresh_requested": Act.ASKED,
}
DECISIONS = {
    "assign": Act.ASSIGNED,
    "discard": Act.DISCARDED,
    "grant": Act.GRANTED,
    "send_fresh": Act.NOTHING_NEWER,
    "cancel": Act.CLOSED,
    "publish": Act.PUBLISHED,
}
NEEDED = {  # what a decision must have
    Act.DISCARDED: ("task",),
    Act.GRANTED: ("edge", "task"),
    Act.NOTHING_NEWER: ("edge",),
    Act.CLOSED: ("edge", "task"),
    Act.PUBLISHED: ("version",),
}


@dataclass(slots=True)
class _Edge:
    name: int
    given: History
    ready: History
    doing: int = UNKNOWN
    since_s: float = 0.0
    task: int = MISSING
    away_s: float | None = None  # since when it is lost
    moved: bool = False  # its transfer has a row: only the event about its end is still to come
    known: bool = False  # whether the rows tell its task; not if their first part was deleted
    # blocked for a fresher model until it arrived, which only its row tells: (from, to, task)
    unanswered: list[tuple[float, float, int]] = field(default_factory=list)


class _Edges(dict[int, _Edge]):
    """The edges by their numbers; an unknown one is added."""

    def __init__(self, keep: int | None) -> None:
        self._keep = keep

    def __missing__(self, name: int) -> _Edge:
        found = self[name] = _Edge(name, History(self._keep), History(self._keep))
        return found


class Timeline:
    """Slices, instants and counters of a run. Rows are taken as they come, in several calls.

    ``slices`` has what has ended, not in order; ``open_slices`` what goes on. On the lanes of an
    edge for computing and links, slices never overlap. All grow at their end only, and ``drain``
    empties them. ``keep``: at least so many beginnings of tasks are kept of each edge to find the
    tasks of transfers; None: all. ``texts``: those of the columns that it is given.
    """

    def __init__(self, keep: int | None = None, texts: Texts | None = None) -> None:
        self.texts = Texts() if texts is None else texts
        self.versions: list[tuple[float, int]] = []  # (t_s, version) of each publication
        self.emulated_s = 0.0  # of the latest event; after ``no_more_rows`` of the latest row
        self.version = 0
        self._keep = keep
        self._slices, self._instants, self._gaps = _nothing()
        self._repeated: list[np.ndarray] = []
        # slices and instants that are not in columns yet
        self._new: list[tuple[Any, ...]] = []
        self._new_instants: list[tuple[Any, ...]] = []
        self._edges = _Edges(keep)
        self._lanes: defaultdict[tuple[int, str], Lane] = defaultdict(lambda: Lane(keep))
        self._waiting: dict[int, int] = {}  # tasks whose update the strategy holds -> edge
        self._faults: dict[tuple[int, int], tuple[float, float]] = {}  # (edge, kind): from, to
        self._held = np.zeros(0, MOVED)  # rows of links ahead of the events
        self._broadcasts: list[tuple[float, tuple[int, ...]]] = []  # the latest ``keep``
        self._windows = Windows()
        self._begun = False
        text = self.texts.number
        self._shown = [(PLACES[at], text(kind)) for at, kind in SHOWN.values()]  # by Doing

    # ------------------------------------------------------------------ what is there
    @property
    def edges(self) -> list[str]:
        """The ids of all edges, sorted."""
        names = self.texts.all
        return sorted(names[edge] for edge in self._edges)

    @property
    def slices(self) -> list[Slice]:
        return self._named_slices(self.slice_rows())

    @property
    def instants(self) -> list[Instant]:
        names = self.texts.all
        return [
            Instant(names[edge], names[kind], t_s, _known(task), _known(version))
            for edge, kind, t_s, task, version in tuples(self.instant_rows())
        ]

    def _named_slices(self, rows: np.ndarray) -> list[Slice]:
        names = self.texts.all
        return [
            Slice(
                *(names[edge], LANES[lane], names[kind], begin_s),
                *(None if math.isnan(end_s) else end_s, _known(task), _known(size)),
            )
            for edge, lane, kind, begin_s, end_s, task, size in tuples(rows)
        ]

    @property
    def repeated(self) -> list[Slice]:
        """The slices of broadcasts at all their receivers but the first one."""
        return self._named_slices(np.concatenate([np.zeros(0, SLICES), *self._repeated]))

    def slice_rows(self, and_open: bool = False) -> np.ndarray:
        """What has ended, as SLICES; ``and_open``: also what goes on, without an end."""
        self._slices = [np.concatenate(self._slices)]
        return np.concatenate([*self._slices, *([self.open_rows()] if and_open else [])])

    def instant_rows(self) -> np.ndarray:
        """The instants as INSTANTS."""
        self._instants = [np.concatenate(self._instants)]
        return self._instants[0]

    def gap_rows(self) -> np.ndarray:
        """The staleness of updates that were not discarded on arrival, as GAPS."""
        self._gaps = [np.concatenate(self._gaps)]
        return self._gaps[0]

    def drain(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, list[tuple[float, int]]]:
        """Return slices, instants, gaps and versions, and forget them."""
        found = self.slice_rows(), self.instant_rows(), self.gap_rows(), self.versions
        self._slices, self._instants, self._gaps = _nothing()
        self._repeated, self.versions = [], []
        return found

    def open_rows(self) -> np.ndarray:
        """Return what goes on, as SLICES; its end is NaN."""
        found: list[tuple[Any, ...]] = [
            (name, PLACES[FAULT], kind, begin_s, math.nan, MISSING, MISSING)
            for (name, kind), (begin_s, _) in self._faults.items()
        ]
        lost = self.texts.number("lost")
        for name, edge in self._edges.items():
            if edge.doing and not edge.moved:
                shown = self._shown[edge.doing]
                found.append((name, *shown, edge.since_s, math.nan, edge.task, MISSING))
            if edge.away_s is not None:
                found.append((name, PLACES[AWAY], lost, edge.away_s, math.nan, MISSING, MISSING))
        return np.array(found, SLICES)

    def open_slices(self) -> list[Slice]:
        """Return what goes on; ``end_s`` is None."""
        return self._named_slices(self.open_rows())

    # ------------------------------------------------------------------ rows
    def take_events(self, events: EventColumns) -> None:
        """Take lines of events.jsonl, in order.

        KeyError if a row lacks what rows of its kind have; then nothing was taken.
        """
        if not events.count:
            return
        now_s = np.nan_to_num(events.rows.floats("t"))
        now_s = np.maximum.accumulate(np.maximum(now_s, self.emulated_s))
        acts = self._acts(events, now_s)
        gaps = self._gaps_of(events, now_s)
        broadcasts = self._broadcasts_of(events, now_s)
        self._begin(events, now_s)
        self._gaps.append(gaps)
        self._broadcasts += broadcasts
        if self._keep is not None:
            del self._broadcasts[: -self._keep]
        self._run(acts, events)
        self.emulated_s = float(now_s[-1])
        self._end_faults(self.emulated_s)
        self._pack()
        self._match(self.emulated_s)

    def take_slots(self, rows: TableColumns) -> None:
        """Take rows of slots.csv, before the rows of links.csv about the same transfers."""
        self._windows.take(rows)

    def take_links(self, rows: TableColumns) -> None:
        """Take rows of links.csv. Those ahead of the events wait for them."""
        ended_s, direction = rows.get("finished_s"), rows.get("direction")
        lanes = np.full(rows.count, MISSING, np.int8)
        for way, lane in LINK_LANES.items():
            lanes[direction == self.texts.number(way)] = PLACES[lane]
        there = ~np.isnan(ended_s) & (lanes != MISSING)
        fresh = rows.get("kind") == self.texts.number(FRESH)
        columns = (rows.get("edge"), lanes, fresh, rows.get("bytes"), rows.get("offered_s"))
        moved = as_rows(MOVED, *columns, ended_s, direction).compress(there)
        self._held = np.concatenate([self._held, moved])
        self._match(self.emulated_s)

    def no_more_rows(self) -> None:
        """The files end here: what waits for other rows is taken as it is."""
        self.emulated_s = max(self.emulated_s, float(self._held["ended_s"].max(initial=0.0)))
        self._match(math.inf)
        for name, edge in self._edges.items():
            for begin_s, end_s, task in edge.unanswered:
                self._add(name, ASKED, begin_s, end_s, task)
            edge.unanswered.clear()
        self._pack()

    def _pack(self) -> None:
        self._slices.append(np.array(self._new, SLICES))
        self._instants.append(np.array(self._new_instants, INSTANTS))
        self._new, self._new_instants = [], []

    # ------------------------------------------------------------------ links
    def _match(self, until_s: float) -> None:
        """Turn transfers that have ended by then into slices."""
        is_due = self._held["ended_s"] <= until_s
        due, self._held = self._held.compress(is_due), self._held.compress(~is_due)
        due = due.compress(~(np.isnan(due["bytes"]) | np.isnan(due["offered_s"])))
        if len(due):
            self._transfers(due.take(np.argsort(due["ended_s"], kind="stable")))

    def _transfers(self, moved: np.ndarray) -> None:
        """Add the slices of transfers that have ended, in the order of their ends."""
        edge, lane, fresh, size, offered_s, ended_s, _ = columns_of(moved)
        size = size.astype(np.int64)
        # parts of transfers: in slots of a channel; else each transfer is one part
        of = np.arange(len(edge))
        moves, from_s, to_s, share = np.ones(len(edge), bool), offered_s, ended_s, size
        if self._windows:
            rows = zip(*(x.tolist() for x in (edge, moved["direction"], offered_s, ended_s, size)))
            parts = [self._windows.parts((e, way), *times) for e, way, *times in rows]
            of = np.repeat(of, [*map(len, parts)])
            columns = np.array([*chain.from_iterable(parts)], PARTS)
            moves, from_s, to_s, share = columns_of(columns)
        again = np.zeros(len(edge), bool)
        everyone = self.texts.number(ALL_EDGES)
        if (edge == everyone).any():
            receivers = [
                self._receivers(at_s) if each == everyone else (each,)
                for each, at_s in zip(edge.tolist(), offered_s.tolist())
            ]
            lengths = np.array([*map(len, receivers)])
            firsts = np.searchsorted(of, np.arange(len(edge)))
            counts = np.bincount(of, minlength=len(edge))
            transfer = np.repeat(np.arange(len(edge)), lengths)
            places = spread(firsts[transfer], counts[transfer])
            of = np.repeat(np.arange(len(transfer)), counts[transfer])
            again = np.append(False, transfer[1:] == transfer[:-1])[: len(transfer)]
            moves, from_s, to_s, share = (x[places] for x in (moves, from_s, to_s, share))
            edge = np.array([each for those in receivers for each in those], np.int64)
            lane, fresh, offered_s, ended_s = (
                each[transfer] for each in (lane, fresh, offered_s, ended_s)
            )
            if not len(edge):
                return
        task, known_s = self._tasks_of(edge, lane, ended_s)
        waited = np.flatnonzero((lane == PLACES[UPLINK]) & (known_s < offered_s))
        if len(waited):  # from the moment at which the update was ready
            order = np.argsort(np.concatenate([2 * of + 1, 2 * waited]), kind="stable")
            of = np.concatenate([of, waited])[order]
            moves = np.concatenate([moves, np.zeros(len(waited), bool)])[order]
            from_s = np.concatenate([from_s, known_s[waited]])[order]
            to_s = np.concatenate([to_s, offered_s[waited]])[order]
            share = np.concatenate([share, np.full(len(waited), MISSING)])[order]
        lanes, of_lanes = np.unique(edge * len(LANES) + lane, return_inverse=True)
        own = [self._lanes[each // len(LANES), LANES[each % len(LANES)]] for each in lanes.tolist()]
        from_s, to_s = fit(own, of_lanes[of], from_s, to_s)
        kinds = np.zeros(len(LANES), np.int32)
        for at, what in MOVING.items():
            kinds[PLACES[at]] = self.texts.number(what)
        kind = np.where(moves, kinds[lane[of]], self.texts.number("wait"))
        kept = moves | (to_s > from_s)
        slices = as_rows(SLICES, edge[of], lane[of], kind, from_s, to_s, task[of], share)
        self._slices.append(slices.compress(kept))
        if again.any():
            self._repeated.append(slices.compress(kept & again[of]))
        self._moved(edge[~fresh], lane[~fresh], task[~fresh])
        if fresh.any():
            last = np.cumsum(np.bincount(of[kept], minlength=len(edge)))
            self._fresh(edge[fresh], ended_s[fresh], task[fresh], last[fresh])

    def _receivers(self, offered_s: float) -> tuple[int, ...]:
        """The edges of the latest broadcast that was decided by then; of several, the first."""
        moment = itemgetter(0)
        end = bisect_right(self._broadcasts, offered_s, key=moment)
        if not end:
            return ()
        first = bisect_left(self._broadcasts, moment(self._broadcasts[end - 1]), key=moment)
        edges = self._broadcasts[first][1]
        if end - first > 1:
            del self._broadcasts[first]
        return edges

    def _tasks_of(
        self, edge: np.ndarray, lane: np.ndarray, ended_s: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """The task of each transfer, and when it was given, or its update was ready."""
        task, known_s = np.full(len(edge), MISSING), np.full(len(edge), np.nan)
        up = lane == PLACES[UPLINK]
        order = np.lexsort((up, edge))
        keys = 2 * edge[order].astype(np.int64) + up[order]
        for places in np.split(order, np.flatnonzero(np.diff(keys)) + 1):
            own = self._edges[int(edge[places[0]])]
            history = own.ready if up[places[0]] else own.given
            known_s[places], task[places] = history.latest(ended_s[places])
        return task, known_s

    def _moved(self, edge: np.ndarray, lane: np.ndarray, task: np.ndarray) -> None:
        """Note the edges whose transfer that goes on, as far as events tell, has ended."""
        there, of = np.unique(edge, return_inverse=True)
        edges = [self._edges[each] for each in there.tolist()]
        doing = np.array([each.doing for each in edges], np.int64)
        tasks = np.array([each.task for each in edges], np.int64)
        in_transfer = np.zeros(len(LANES), np.int64)
        for at, what in IN_TRANSFER.items():
            in_transfer[PLACES[at]] = what
        ended = (doing[of] == in_transfer[lane]) & (tasks[of] == task)
        for place in np.unique(of[ended]).tolist():
            edges[place].moved = True

    def _fresh(
        self, edge: np.ndarray, ended_s: np.ndarray, task: np.ndarray, last: np.ndarray
    ) -> None:
        """Fresher models have arrived. ``last``: how many of the latest slices were before."""
        self._instants.append(
            as_rows(INSTANTS, edge, self.texts.number("fresh"), ended_s, task, MISSING)
        )
        slices, at = self._slices.pop(), 0
        for name, end_s, place in zip(edge.tolist(), ended_s.tolist(), last.tolist()):
            self._answered(name, self._edges[name], end_s)
            if self._new:  # behind the slices of the model's transfer
                self._slices.append(slices[at:place])
                self._pack()
                at = place
        self._slices.append(slices[at:])

    def _answered(self, name: int, edge: _Edge, at_s: float) -> None:
        """A fresher model has arrived; an edge that did nothing but wait for it goes on."""
        for waited in edge.unanswered:
            begin_s, end_s, task = waited
            if begin_s <= at_s:
                edge.unanswered.remove(waited)
                at_s = min(at_s, end_s)
                self._add(name, ASKED, begin_s, at_s, task)
                self._add(name, TRAINING, at_s, end_s, task)
                return
        if edge.doing == ASKED and edge.since_s <= at_s:
            self._add(name, ASKED, edge.since_s, at_s, edge.task)
            edge.doing, edge.since_s = TRAINING, at_s

    # ------------------------------------------------------------------ from rows to acts
    def _acts(self, events: EventColumns, now_s: np.ndarray) -> np.ndarray:
        """What the rows say, as ACTS: the event, what it discards, other decisions."""
        rows, decisions, in_row = events.rows, events.decisions, events.decided_in
        fact, event = rows.texts_of("fact"), rows.texts_of("event")
        of_facts, of_events = self._table(FACTS), self._table(EVENT_ACTS)
        of_rows = np.where(fact != MISSING, of_facts[fact], of_events[event])
        waits = of_rows == Act.ASKED
        of_rows[waits & (np.nan_to_num(rows.floats("until_ns")) != 0)] = Act.NONE  # it trains on
        row_task = rows.whole("task")
        _need(of_rows == Act.ARRIVED, row_task, "task")
        decided = (fact == MISSING) & (event != MISSING)
        do = decisions.texts_of("do")
        _need(decided[in_row], do, "do")
        of_decisions = np.where(decided[in_row], self._table(DECISIONS)[do], Act.NONE)
        task, version = decisions.whole("task"), decisions.whole("version")
        edge = self._named(decisions.texts_of("edge"))
        newer = (of_decisions == Act.NOTHING_NEWER) & (version != MISSING)
        of_decisions[newer] = Act.NONE
        columns = {"edge": decisions.texts_of("edge"), "task": task, "version": version}
        for act, names in NEEDED.items():
            for name in names:
                _need(of_decisions == act, columns[name], name)
        assigned = np.flatnonzero(of_decisions == Act.ASSIGNED)
        to_edges, given, lengths = events.assigned(assigned)
        counts = (of_decisions != Act.NONE).astype(np.int64)
        counts[assigned] = lengths
        of = np.repeat(np.arange(len(do)), counts)
        edge, task = edge[of], task[of]
        edge[of_decisions[of] == Act.ASSIGNED] = to_edges
        task[of_decisions[of] == Act.ASSIGNED] = given
        told = np.flatnonzero(of_rows != Act.NONE)
        stage = np.where(of_decisions[of] == Act.DISCARDED, 1, 2)
        order = np.argsort(np.concatenate([3 * told, 3 * in_row[of] + stage]), kind="stable")
        row_edge = self._named(rows.texts_of("edge"))
        said = as_rows(ACTS, of_rows[told], row_edge[told], row_task[told], now_s[told], told)
        chosen = as_rows(ACTS, of_decisions[of], edge, task, now_s[in_row[of]], of)
        return np.concatenate([said, chosen]).take(order)  # much faster than [order]

    def _table(self, acts: dict[str, int]) -> np.ndarray:
        """The act of each text; NONE of MISSING, which takes the last place."""
        places = [self.texts.number(name) for name in acts]
        found = np.full(len(self.texts) + 1, Act.NONE, np.int64)
        found[places] = [*acts.values()]
        return found

    def _named(self, edges: np.ndarray) -> np.ndarray:
        return np.where(edges == MISSING, self.texts.number(""), edges)

    def _gaps_of(self, events: EventColumns, now_s: np.ndarray) -> np.ndarray:
        """The staleness of updates that the strategy does not discard on their arrival."""
        rows, decisions = events.rows, events.decisions
        arrived = np.flatnonzero(rows.texts_of("event") == self.texts.number("update_arrived"))
        discards = np.flatnonzero(decisions.texts_of("do") == self.texts.number("discard"))
        if len(discards):
            task = rows.whole("task")
            in_row = events.decided_in[discards]
            own = in_row[decisions.whole("task")[discards] == task[in_row]]
            arrived = np.setdiff1d(arrived, own)
        version, base = rows.whole("version")[arrived], rows.whole("base_version")[arrived]
        for name, values in (("version", version), ("base_version", base)):
            _need(np.ones(len(values), bool), values, name)
        edge = self._named(rows.texts_of("edge"))[arrived]
        return as_rows(GAPS, now_s[arrived], edge, version - base)

    def _broadcasts_of(
        self, events: EventColumns, now_s: np.ndarray
    ) -> list[tuple[float, tuple[int, ...]]]:
        decisions = events.decisions
        if "broadcast" not in decisions.names:
            return []
        sending = [self.texts.number(each) for each in ("assign", "push")]
        slots = decisions.values("broadcast")
        filled = np.array([bool(each) for each in slots], bool)
        places = np.flatnonzero(np.isin(decisions.texts_of("do"), sending) & filled)
        lengths, edges = decisions.lists("edges", places)
        each = np.split(edges, np.cumsum(lengths)[:-1]) if len(places) else []
        times = now_s[events.decided_in[places]].tolist()
        found: dict[tuple[float, str], list[int]] = {}
        for t_s, place, those in zip(times, places.tolist(), each):
            # a task and a push in the same slots are one transmission
            found.setdefault((t_s, str(slots[place])), []).extend(those.tolist())
        return [(t_s, tuple(those)) for (t_s, _), those in found.items()]

    def _begin(self, events: EventColumns, now_s: np.ndarray) -> None:
        """The first event, not a fact, tells the version with which the rows begin."""
        if self._begun:
            return
        first = np.flatnonzero(events.rows.has("event") & ~events.rows.has("fact"))[:1]
        for row in first.tolist():
            self._begun = True
            self.version = max(int(events.rows.whole("version")[row]), 0)
            self.versions.append((float(now_s[row]), self.version))

    # ------------------------------------------------------------------ acts
    def _run(self, acts: np.ndarray, events: EventColumns) -> None:
        rows, decisions = events.rows, events.decisions
        has_faults = (acts["act"] == Act.FAULT).any()
        faults = [rows.values(x) if has_faults else [] for x in ("kind", "for_s")]
        version, lists = decisions.whole("version"), decisions.has_list("made_of")
        made_of = decisions.values("made_of") if lists.any() else []
        versions = version.tolist()
        with without_collection():
            for first in range(0, len(acts), ACTS_AT_ONCE):
                some = acts[first : first + ACTS_AT_ONCE]
                published = some["act"] == Act.PUBLISHED
                of_all = not lists[some["place"][published]].any()
                if not (of_all and self._take_usual(some, published, version)):
                    self._one_by_one(some, versions, made_of, faults)

    def _take_usual(self, acts: np.ndarray, published: np.ndarray, version: np.ndarray) -> bool:
        """Take acts at once; False if one is not of the usual course: then none was taken.

        In the usual course an edge gets a task, trains, sends and has sent, and a published model
        contains all updates that wait. ``version``: of each decision.
        """
        if self._faults or not (published | np.isin(acts["act"], [*AFTER])).all():
            return False
        order = np.argsort(acts["edge"], kind="stable")
        order = order[~published[order]]
        act, name, task, now_s, _ = columns_of(acts.take(order))
        names, firsts = np.unique(name, return_index=True)
        edges = [self._edges[each] for each in names.tolist()]
        after, has = np.zeros(len(act), np.int64), np.where(act == Act.ARRIVED, MISSING, task)
        for each, doing in AFTER.items():
            after[act == each] = doing
        before, had, since_s = (np.roll(each, 1) for each in (after, has, now_s))
        before[firsts], had[firsts] = [e.doing for e in edges], [e.task for e in edges]
        since_s[firsts] = [e.since_s for e in edges]
        goes_on = (had == task) & (task != MISSING) & (before != UNKNOWN)
        if not (goes_on | (act == Act.ASSIGNED)).all() or (before == ASKED).any():
            return False
        ends = np.flatnonzero(((before == TRAINING) | (before == IDLE)) & (now_s > since_s))
        ends = ends[np.argsort(order[ends])]  # in the order of the rows
        lane, kind = np.array(self._shown)[before[ends]].T
        times = since_s[ends], now_s[ends]
        self._slices.append(as_rows(SLICES, name[ends], lane, kind, *times, had[ends], MISSING))
        for begin, end, edge in zip(firsts.tolist(), [*firsts[1:].tolist(), len(act)], edges):
            edge.doing, edge.since_s = int(after[end - 1]), float(now_s[end - 1])
            edge.task, edge.known, edge.moved = int(has[end - 1]), True, False
            for history, kind_of in ((edge.given, Act.ASSIGNED), (edge.ready, Act.SENDS)):
                own = begin + np.flatnonzero(act[begin:end] == kind_of)
                history.extend(now_s[own], task[own])
        self._merge(acts, np.flatnonzero(published), version)
        return True

    def _merge(self, acts: np.ndarray, published: np.ndarray, version: np.ndarray) -> None:
        """Add what the models contain: each has the updates that came since the model before it.

        ``published``: their places in ``acts``.
        """
        arrived = np.flatnonzero(acts["act"] == Act.ARRIVED)
        earlier = len(self._waiting)
        task = np.concatenate([np.array([*self._waiting], np.int64), acts["task"][arrived]])
        name = np.concatenate(
            [np.array([*self._waiting.values()], np.int32), acts["edge"][arrived]]
        )
        model = np.concatenate([np.zeros(earlier, np.int64), published.searchsorted(arrived)])
        merged = model < len(published)
        self._waiting = dict(zip(task[~merged].tolist(), name[~merged].tolist()))
        of, kind = model[merged], self.texts.number("merge")
        t_s, made = acts["t_s"][published], version[acts["place"][published]]
        self._instants.append(
            as_rows(INSTANTS, name[merged], kind, t_s[of], task[merged], made[of])
        )
        self.versions += zip(t_s.tolist(), made.tolist())
        self.version = self.versions[-1][1] if len(published) else self.version

    def _one_by_one(
        self,
        acts: np.ndarray,
        version: Sequence[int],
        made_of: Sequence[Any],
        faults: Sequence[Sequence[Any]],
    ) -> None:
        """Take acts one after the other. ``made_of``: of each decision, or empty; ``faults``: the
        kinds and the lengths of each row's fault, or empty.
        """
        for act, name, task, now_s, place in tuples(acts):
            if self._faults:
                self._end_faults(now_s)
            if act == Act.PUBLISHED:
                self._published(version[place], made_of[place] if made_of else None, now_s)
            elif act == Act.DISCARDED:
                if (of := self._waiting.pop(task, None)) is not None:
                    self._instant(of, "discard", now_s, task)
            elif act == Act.FAULT:
                kind, for_s = str(faults[0][place]), number(faults[1][place])
                self._fault(name, kind, for_s, now_s, task)
            else:
                self._about(self._edges[name], act, task, now_s)
        self._pack()

    def _about(self, edge: _Edge, act: int, task: int, now_s: float) -> None:
        """Take an act about an edge."""
        has_it = edge.task == task or not edge.known
        match act:
            case Act.ASSIGNED:
                self._do(edge, RECEIVING, task, now_s)
                edge.given.add(now_s, task)
            case Act.STARTED if has_it:
                self._do(edge, TRAINING, task, now_s)
            case Act.SENDS | Act.WAITS if has_it:
                self._do(edge, SENDING if act == Act.SENDS else WAITING, task, now_s)
                if task != MISSING:
                    edge.ready.add(now_s, task)
            case Act.ARRIVED:
                self._waiting[task] = edge.name
                self._over(edge, task, now_s)
            case Act.REFUSED | Act.FAILED:
                kind = "discard" if act == Act.REFUSED else "failed"
                self._instant(edge.name, kind, now_s, task)
                self._over(edge, task, now_s)
            case Act.TIMED_OUT:
                self._instant(edge.name, "timeout", now_s, task)
            case Act.CLOSED:
                self._over(edge, task, now_s, ends_well=False)
            case Act.JOINED:
                self._joined(edge, now_s)
            case Act.LOST:
                edge.away_s = now_s
            case Act.ASKED if edge.task == task:
                self._do(edge, ASKED, task, now_s)
            case Act.NOTHING_NEWER if edge.doing == ASKED:
                self._add(edge.name, ASKED, edge.since_s, now_s)
                edge.doing, edge.since_s = TRAINING, now_s
            case Act.GRANTED if edge.task == task and edge.doing == WAITING:
                self._add(edge.name, WAITING, edge.since_s, now_s, task)
                edge.doing, edge.since_s = SENDING, now_s
                edge.ready.later(now_s)  # the rest of the wait, if any, is in the transfer's row

    def _published(self, version: int, made_of: Any, now_s: float) -> None:
        """A model contains the updates of the tasks ``made_of``; no list: of all that wait."""
        self.version = version
        self.versions.append((now_s, version))
        for task in made_of if isinstance(made_of, list) else [*self._waiting]:
            if (name := self._waiting.pop(task, None)) is not None:
                self._instant(name, "merge", now_s, task, version)

    def _instant(
        self, name: int, kind: str, now_s: float, task: int, version: int = MISSING
    ) -> None:
        self._new_instants.append((name, self.texts.number(kind), now_s, task, version))

    def _add(
        self, name: int, doing: int, begin_s: float, end_s: float, task: int = MISSING
    ) -> None:
        if end_s > begin_s:
            lane, kind = self._shown[doing]
            self._new.append((name, lane, kind, begin_s, end_s, task, MISSING))

    def _do(self, edge: _Edge, doing: int, task: int, now_s: float, ends_well: bool = True) -> None:
        """From now on the edge does this. ``ends_well``: a transfer was not broken off."""
        before, since_s = edge.doing, edge.since_s
        if before in (TRAINING, IDLE):
            self._add(edge.name, before, since_s, now_s, edge.task)
        elif before == ASKED:
            edge.unanswered.append((since_s, now_s, edge.task))
            if self._keep is not None and len(edge.unanswered) > self._keep:
                begin_s, end_s, of = edge.unanswered.pop(0)
                self._add(edge.name, before, begin_s, end_s, of)
        elif not (ends_well or edge.moved) and before:
            self._add(edge.name, before, since_s, now_s, edge.task)
            self._lanes[edge.name, SHOWN[before][0]].cut(since_s, now_s)
        edge.doing, edge.since_s, edge.task, edge.known = doing, now_s, task, True
        edge.moved = False

    def _over(self, edge: _Edge, task: int, now_s: float, ends_well: bool = True) -> None:
        """The edge has no task any more, unless this is about another one."""
        if not edge.doing and edge.known:
            edge.task = MISSING  # its process is down
        elif edge.task == task or not edge.known:
            self._do(edge, IDLE, MISSING, now_s, ends_well)

    def _joined(self, edge: _Edge, now_s: float) -> None:
        if edge.away_s is not None:
            self._whole(edge.name, AWAY, self.texts.number("lost"), edge.away_s, now_s)
            edge.away_s = None
        self._end_fault(edge.name, self.texts.number(LASTING), now_s)
        if not edge.doing:
            idle = edge.task == MISSING
            self._do(edge, IDLE if idle else RECEIVING, edge.task, now_s)

    # ------------------------------------------------------------------ faults
    def _fault(self, name: int, kind: str, for_s: float | None, now_s: float, task: int) -> None:
        if for_s is None and kind != LASTING:
            self._instant(name, kind, now_s, task)
        else:
            key = name, self.texts.number(kind)
            begin_s, end_s = self._faults.get(key, (now_s, 0.0))
            lasts_s = math.inf if for_s is None else for_s
            self._faults[key] = begin_s, max(end_s, now_s + lasts_s)
        if kind in (LASTING, "restart"):
            edge = self._edges[name]
            self._do(edge, UNKNOWN, edge.task, now_s, ends_well=False)

    def _end_faults(self, now_s: float) -> None:
        """End the faults that are over."""
        for (name, kind), (_, end_s) in [*self._faults.items()]:
            if end_s <= now_s:
                self._end_fault(name, kind, end_s)

    def _end_fault(self, name: int, kind: int, at_s: float) -> None:
        if (lasted := self._faults.pop((name, kind), None)) is not None:
            self._whole(name, FAULT, kind, lasted[0], at_s)

    def _whole(self, name: int, lane: str, kind: int, begin_s: float, end_s: float) -> None:
        if end_s > begin_s:
            self._new.append((name, PLACES[lane], kind, begin_s, end_s, MISSING, MISSING))


def _nothing() -> tuple[list[np.ndarray], ...]:
    """No slices, no instants, no gaps."""
    return [np.zeros(0, SLICES)], [np.zeros(0, INSTANTS)], [np.zeros(0, GAPS)]


def _need(rows: np.ndarray, values: np.ndarray, name: str) -> None:
    """KeyError if one of these rows has no value."""
    if (values[rows] == MISSING).any():
        raise KeyError(name)


def of_run(run: Path) -> Timeline:
    """Return the timeline of a run directory, finished or not. UserError names a damaged row."""
    with undamaged(run):
        texts = Texts()
        events = event_columns(run / EVENTS, texts)
        return of_columns(events, read_table(run / SLOTS, texts), read_table(run / LINKS, texts))


def of_columns(events: EventColumns, slots: TableColumns, links: TableColumns) -> Timeline:
    """Return the timeline of a run's rows, which have the same texts."""
    found = Timeline(texts=events.texts)
    found.take_events(events)
    found.take_slots(slots)
    found.take_links(links)
    found.no_more_rows()
    return found
