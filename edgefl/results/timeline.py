"""What each edge does over time, from the rows of a run's files as they are written.

A transfer's row comes when it has ended, and its file may be behind or ahead of the events by some
rows. So transfers that have ended come from links.csv, and those that go on from the events.

Rows come as columns (``edgefl.results.columns``), edges and kinds as numbers of ``texts``. What an
edge does follows from all that came before, so this goes row by row, over numbers only; all else is
done for many rows at once.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from edgefl.errors import undamaged
from edgefl.protocol.messages import FRESH
from edgefl.record.files import ALL_EDGES, EVENTS, LINKS, SLOTS
from edgefl.results.columns import (
    MISSING,
    EventColumns,
    TableColumns,
    Texts,
    read_events,
    read_table,
    spread,
)
from edgefl.results.intervals import (
    AWAY,
    COMPUTE,
    DOWNLINK,
    FAULT,
    GAP_TYPES,
    INSTANT_TYPES,
    LANES,
    LINK_LANES,
    MOVING,
    SLICE_TYPES,
    UPLINK,
    Gap,
    GapColumns,
    History,
    Instant,
    InstantColumns,
    Lane,
    Slice,
    SliceColumns,
    Windows,
    fit,
    joined,
    packed,
)
from edgefl.results.summary import number

LASTING = "kill"  # the only fault without a length that lasts: until the edge is back
PLACES = {lane: place for place, lane in enumerate(LANES)}
AT_ONCE = 50_000  # acts; an edge does the usual if it does so in all of them


class Doing(IntEnum):
    """What an edge does. ASKED is told apart from a wait because its end comes late."""

    UNKNOWN = 0  # or its process is down
    IDLE = 1
    TRAINING = 2
    ASKED = 3
    RECEIVING = 4
    WAITING = 5
    SENDING = 6


# the lane and the kind of a slice
SHOWN = {
    Doing.UNKNOWN: (COMPUTE, "idle"),  # never shown
    Doing.IDLE: (COMPUTE, "idle"),
    Doing.TRAINING: (COMPUTE, "training"),
    Doing.ASKED: (COMPUTE, "wait"),
    Doing.RECEIVING: (DOWNLINK, "receive"),
    Doing.WAITING: (UPLINK, "wait"),
    Doing.SENDING: (UPLINK, "send"),
}
IN_TRANSFER = {DOWNLINK: Doing.RECEIVING, UPLINK: Doing.SENDING}


class Act(IntEnum):
    """What a row says about an edge or an update, by facts, events and decisions."""

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


# What an edge does after an act about the task that it has; other acts need a closer look.
THEN_DOES = {
    Act.ASSIGNED: Doing.RECEIVING,
    Act.STARTED: Doing.TRAINING,
    Act.SENDS: Doing.SENDING,
    Act.WAITS: Doing.WAITING,
    Act.GRANTED: Doing.SENDING,
    Act.ARRIVED: Doing.IDLE,
    Act.JOINED: Doing.IDLE,
}
NOT_ON_EDGES = (Act.NONE, Act.PUBLISHED, Act.DISCARDED, Act.TIMED_OUT)

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


class _Acts(NamedTuple):
    """Acts in their order. ``place``: of the row or the decision, for what else is in it."""

    act: np.ndarray
    edge: np.ndarray
    task: np.ndarray
    t_s: np.ndarray
    place: np.ndarray


@dataclass(slots=True)
class _Edge:
    doing: Doing = Doing.UNKNOWN
    since_s: float = 0.0
    task: int = MISSING
    away_s: float | None = None  # since when it is lost
    moved: bool = False  # its transfer has a row: only the event about its end is still to come
    known: bool = False  # whether the rows tell its task; not if their first part was deleted
    given: History = field(default_factory=History)
    ready: History = field(default_factory=History)
    # blocked for a fresher model until it arrived, which only its row tells: (from, to, task)
    unanswered: list[tuple[float, float, int]] = field(default_factory=list)

    @property
    def is_new(self) -> bool:
        return not (self.doing or self.known) and self.away_s is None and self.task == MISSING


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
        self._slices: list[Sequence[np.ndarray]] = []
        self._instants: list[Sequence[np.ndarray]] = []
        self._gaps: list[Sequence[np.ndarray]] = []
        self._new: list[tuple[Any, ...]] = []  # slices that are not in columns yet
        self._order: list[float] = []  # the places of the acts that end them
        self._edges: dict[int, _Edge] = {}
        self._lanes: defaultdict[tuple[int, str], Lane] = defaultdict(lambda: Lane(keep))
        self._waiting: dict[int, int] = {}  # tasks whose update the strategy holds -> edge
        self._faults: dict[tuple[int, int], tuple[float, float]] = {}  # (edge, kind): from, to
        self._held: list[Sequence[np.ndarray]] = []  # rows of links ahead of the events
        self._broadcasts: list[tuple[float, tuple[int, ...]]] = []  # the latest ``keep``
        self._windows = Windows()
        self._begun = False
        text = self.texts.number
        self._shown = {doing: (PLACES[at], text(kind)) for doing, (at, kind) in SHOWN.items()}

    # ------------------------------------------------------------------ what is there
    @property
    def edges(self) -> list[str]:
        """The ids of all edges, sorted."""
        names = self.texts.all
        return sorted(names[edge] for edge in self._edges)

    @property
    def slices(self) -> list[Slice]:
        return self.slice_columns().unpacked(self.texts)

    @property
    def instants(self) -> list[Instant]:
        return self.instant_columns().unpacked(self.texts)

    @property
    def staleness(self) -> list[Gap]:
        """The staleness of updates that were not discarded on arrival."""
        return self.gap_columns().unpacked(self.texts)

    def slice_columns(self) -> SliceColumns:
        """What has ended."""
        self._slices = [joined(self._slices, SLICE_TYPES)]
        return SliceColumns(*self._slices[0])

    def instant_columns(self) -> InstantColumns:
        self._instants = [joined(self._instants, INSTANT_TYPES)]
        return InstantColumns(*self._instants[0])

    def gap_columns(self) -> GapColumns:
        self._gaps = [joined(self._gaps, GAP_TYPES)]
        return GapColumns(*self._gaps[0])

    def drain(
        self,
    ) -> tuple[SliceColumns, InstantColumns, GapColumns, list[tuple[float, int]]]:
        """Return slices, instants, gaps and versions, and forget them."""
        found = self.slice_columns(), self.instant_columns(), self.gap_columns(), self.versions
        self._slices, self._instants, self._gaps, self.versions = [], [], [], []
        return found

    def open_columns(self) -> SliceColumns:
        """Return what goes on; its end is NaN."""
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
        return SliceColumns(*packed(found, SLICE_TYPES))

    def open_slices(self) -> list[Slice]:
        """Return what goes on; ``end_s`` is None."""
        return self.open_columns().unpacked(self.texts)

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
        self._end_faults(self.emulated_s, now_s[:0])
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
        self._held.append([each[there] for each in (*columns, ended_s, direction)])
        self._match(self.emulated_s)

    def no_more_rows(self) -> None:
        """The files end here: what waits for other rows is taken as it is."""
        ends = [float(part[5].max()) for part in self._held if len(part[5])]
        self.emulated_s = max([self.emulated_s, *ends])
        self._match(math.inf)
        for name, edge in self._edges.items():
            for begin_s, end_s, task in edge.unanswered:
                self._add(name, Doing.ASKED, begin_s, end_s, task)
            edge.unanswered.clear()
        self._pack()

    def _pack(self) -> None:
        self._slices.append(packed(self._new, SLICE_TYPES))
        self._new, self._order = [], []

    # ------------------------------------------------------------------ links
    def _match(self, until_s: float) -> None:
        """Turn transfers that have ended by then into slices."""
        if not self._held:
            return
        held = [np.concatenate(each) for each in zip(*self._held)]
        due = held[5] <= until_s
        self._held = [[each[~due] for each in held]]
        due &= ~(np.isnan(held[3]) | np.isnan(held[4]))  # without bytes or a beginning
        places = np.flatnonzero(due)
        places = places[np.argsort(held[5][places], kind="stable")]
        if len(places):
            self._transfers(*(each[places] for each in held))

    def _transfers(
        self,
        edge: np.ndarray,
        lane: np.ndarray,
        fresh: np.ndarray,
        size: np.ndarray,
        offered_s: np.ndarray,
        ended_s: np.ndarray,
        direction: np.ndarray,
    ) -> None:
        """Add the slices of transfers that have ended, in the order of their ends."""
        size = size.astype(np.int64)
        # parts of transfers: in slots of a channel; else each transfer is one part
        of = np.arange(len(edge))
        moves, from_s, to_s, share = np.ones(len(edge), bool), offered_s, ended_s, size
        if self._windows:
            rows = zip(*(x.tolist() for x in (edge, direction, offered_s, ended_s, size)))
            parts = [self._windows.parts((e, way), *times) for e, way, *times in rows]
            of = np.repeat(of, [*map(len, parts)])
            columns = packed([each for of_one in parts for each in of_one], PART_TYPES)
            moves, from_s, to_s, share = columns
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
        slices = (edge[of], lane[of], kind, from_s, to_s, task[of], share)
        self._slices.append([each[kept] for each in slices])
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
            own = self._edge(int(edge[places[0]]))
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
        kind = np.full(len(edge), self.texts.number("fresh"))
        self._instants.append((edge, kind, ended_s, task, np.full(len(edge), MISSING)))
        slices, at = self._slices.pop(), 0
        for name, end_s, place in zip(edge.tolist(), ended_s.tolist(), last.tolist()):
            self._answered(name, self._edges[name], end_s)
            if self._new:  # behind the slices of the model's transfer
                self._slices.append([each[at:place] for each in slices])
                self._pack()
                at = place
        self._slices.append([each[at:] for each in slices])

    def _answered(self, name: int, edge: _Edge, at_s: float) -> None:
        """A fresher model has arrived; an edge that did nothing but wait for it goes on."""
        for waited in edge.unanswered:
            begin_s, end_s, task = waited
            if begin_s <= at_s:
                edge.unanswered.remove(waited)
                at_s = min(at_s, end_s)
                self._add(name, Doing.ASKED, begin_s, at_s, task)
                self._add(name, Doing.TRAINING, at_s, end_s, task)
                return
        if edge.doing is Doing.ASKED and edge.since_s <= at_s:
            self._add(name, Doing.ASKED, edge.since_s, at_s, edge.task)
            edge.doing, edge.since_s = Doing.TRAINING, at_s

    # ------------------------------------------------------------------ from rows to acts
    def _acts(self, events: EventColumns, now_s: np.ndarray) -> _Acts:
        """What the rows say, in order: the event, the updates that it discards, other decisions."""
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
        return _Acts(
            np.concatenate([of_rows[told], of_decisions[of]])[order],
            np.concatenate([row_edge[told], edge])[order],
            np.concatenate([row_task[told], task])[order],
            np.concatenate([now_s[told], now_s[in_row[of]]])[order],
            np.concatenate([told, of])[order],
        )

    def _table(self, acts: dict[str, Act]) -> np.ndarray:
        """The act of each text; NONE of MISSING, which takes the last place."""
        places = [self.texts.number(name) for name in acts]
        found = np.full(len(self.texts) + 1, Act.NONE, np.int64)
        found[places] = [*acts.values()]
        return found

    def _named(self, edges: np.ndarray) -> np.ndarray:
        return np.where(edges == MISSING, self.texts.number(""), edges)

    def _gaps_of(self, events: EventColumns, now_s: np.ndarray) -> Sequence[np.ndarray]:
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
        return now_s[arrived], self._named(rows.texts_of("edge"))[arrived], version - base

    def _broadcasts_of(
        self, events: EventColumns, now_s: np.ndarray
    ) -> list[tuple[float, tuple[int, ...]]]:
        decisions = events.decisions
        if "broadcast" not in decisions.names:
            return []
        assigned = decisions.texts_of("do") == self.texts.number("assign")
        filled = np.array([bool(each) for each in decisions.values("broadcast")], bool)
        places = np.flatnonzero(assigned & filled)
        lengths, edges = decisions.lists("edges", places)
        each = np.split(edges, np.cumsum(lengths)[:-1]) if len(places) else []
        times = now_s[events.decided_in[places]].tolist()
        return [(t_s, tuple(those.tolist())) for t_s, those in zip(times, each)]

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
    def _run(self, acts: _Acts, events: EventColumns) -> None:
        """Take acts: those of edges that do the usual all at once, others one by one."""
        order, instants = self._updates(acts, events)
        lazy, others = _Lazy(events), list[tuple[Any, ...]]()
        for first in range(0, len(acts.act), AT_ONCE):
            block = _Acts(*(each[first : first + AT_ONCE] for each in acts))
            slices, ends, unusual = self._usual(block)
            others += self._one_by_one(block, unusual, lazy, first)
            self._merge(slices, ends)
        both = joined([instants, packed([x[1:] for x in others], INSTANT_TYPES)], INSTANT_TYPES)
        place = np.argsort(np.concatenate([order, [x[0] for x in others]]), kind="stable")
        self._instants.append([each[place] for each in both])

    def _merge(self, slices: Sequence[np.ndarray], order: np.ndarray) -> None:
        """Add slices and those of ``_new`` by the acts that they end with."""
        both = joined([slices, packed(self._new, SLICE_TYPES)], SLICE_TYPES)
        place = np.argsort(np.concatenate([order, self._order]), kind="stable")
        self._slices.append([each[place] for each in both])
        self._new, self._order = [], []

    def _updates(
        self, acts: _Acts, events: EventColumns
    ) -> tuple[np.ndarray, Sequence[np.ndarray]]:
        """Follow the updates that the strategy holds; return the places of instants, and these."""
        places = np.flatnonzero(np.isin(acts.act, (Act.ARRIVED, Act.PUBLISHED, Act.DISCARDED)))
        own = _Acts(*(each[places] for each in acts))
        arrived = own.act == Act.ARRIVED
        tasks = {*own.task[arrived].tolist()}
        plain = not (own.act == Act.DISCARDED).any() and "made_of" not in events.decisions.names
        if plain and len(tasks) == arrived.sum() and tasks.isdisjoint(self._waiting):
            order, instants = self._merged(own, events)
            return places[order], instants
        lazy, waiting, found = _Lazy(events), self._waiting, list[tuple[Any, ...]]()
        merge, discard = self.texts.number("merge"), self.texts.number("discard")
        for at, act, name, task, now_s, place in zip(
            places.tolist(), *(each.tolist() for each in own)
        ):
            if act == Act.ARRIVED:
                waiting[task] = name
            elif act == Act.PUBLISHED:
                version = self.version = lazy.version(place)
                self.versions.append((now_s, version))
                for each in lazy.made_of(place, waiting):
                    if (of := waiting.pop(each, None)) is not None:
                        found.append((at, of, merge, now_s, each, version))
            elif (of := waiting.pop(task, None)) is not None:
                found.append((at, of, discard, now_s, task, MISSING))
        return np.array([x[0] for x in found]), packed([x[1:] for x in found], INSTANT_TYPES)

    def _merged(self, acts: _Acts, events: EventColumns) -> tuple[np.ndarray, Sequence[np.ndarray]]:
        """As ``_updates``, where each update is merged by the next model."""
        published = np.flatnonzero(acts.act == Act.PUBLISHED)
        arrived = np.flatnonzero(acts.act == Act.ARRIVED)
        version = events.decisions.whole("version")[acts.place[published]]
        if len(published):
            self.version = int(version[-1])
            self.versions += zip(acts.t_s[published].tolist(), version.tolist())
        held = len(self._waiting)
        task = np.concatenate([[*self._waiting], acts.task[arrived]]).astype(np.int64)
        edge = np.concatenate([[*self._waiting.values()], acts.edge[arrived]]).astype(np.int64)
        model = np.concatenate([np.zeros(held, np.int64), np.searchsorted(published, arrived)])
        merged = model < len(published)
        self._waiting = dict(zip(task[~merged].tolist(), edge[~merged].tolist()))
        model = model[merged]
        kind = np.full(len(model), self.texts.number("merge"))
        at = published[model]
        return at, (edge[merged], kind, acts.t_s[at], task[merged], version[model])

    def _usual(self, acts: _Acts) -> tuple[Sequence[np.ndarray], np.ndarray, np.ndarray]:
        """Take the acts of edges all of whose acts are usual: about the task that the edge has.

        Return slices, the places of the acts that end them, and which acts are left.
        """
        places = np.flatnonzero(ON_EDGES[acts.act])
        for name in dict.fromkeys(acts.edge[places[acts.act[places] != Act.FAULT]].tolist()):
            self._edge(name)  # in the order in which the rows name them
        places = places[np.argsort(acts.edge[places], kind="stable")]
        act, edge, task, t_s, _ = (each[places] for each in acts)
        first = np.flatnonzero(np.diff(edge, prepend=MISSING))  # of each edge
        last = np.append(first[1:], len(edge))[: len(first)] - 1
        names = edge[first].tolist()
        # what the edge did before each act
        own = [self._edges.get(name) or _Edge() for name in names]
        doing, of = THEN[act], np.where(KEEPS_TASK[act], task, MISSING)
        before = _after(doing, first, [each.doing for each in own])
        task_before = _after(of, first, [each.task for each in own])
        since_s = _after(t_s, first, [each.since_s for each in own])
        known = (before != Doing.ASKED) & (before != Doing.UNKNOWN)
        usual = known & (task_before == task) & (doing != Doing.UNKNOWN)
        usual[act == Act.GRANTED] &= before[act == Act.GRANTED] == Doing.WAITING
        assigned = act == Act.ASSIGNED
        usual[assigned] = before[assigned] != Doing.ASKED
        usual[act == Act.JOINED] = False
        new = np.array([each.is_new and not self._faults for each in own], bool)
        usual[first[new]] = act[first[new]] == Act.JOINED
        group = np.repeat(np.arange(len(first)), last + 1 - first)
        edges_usual = np.bincount(group[~usual], minlength=len(first)) == 0
        usual = edges_usual[group]
        self._remember(np.flatnonzero(usual), act, edge, task, t_s)
        for place in np.flatnonzero(edges_usual).tolist():
            state, at = self._edge(names[place]), last[place]
            state.doing, state.task = Doing(int(doing[at])), int(of[at])
            state.since_s, state.known, state.moved = float(t_s[at]), True, False
        ended = usual & (t_s > since_s)
        ended &= (before == Doing.IDLE) | (before == Doing.TRAINING) | (act == Act.GRANTED)
        lanes, kinds = (np.array(each) for each in zip(*map(self._shown.__getitem__, Doing)))
        none = np.full(len(act), MISSING)
        columns = (edge, lanes[before], kinds[before], since_s, t_s, task_before, none)
        left = np.ones(len(acts.act), bool)
        left[places[usual]] = False
        return [each[ended] for each in columns], places[ended], left

    def _remember(
        self,
        usual: np.ndarray,
        act: np.ndarray,
        edge: np.ndarray,
        task: np.ndarray,
        t_s: np.ndarray,
    ) -> None:
        """Note when edges got tasks, and when updates were ready or allowed to go."""
        granted = usual[act[usual] == Act.GRANTED]
        ready_s = t_s.copy()
        in_block = granted[np.isin(granted - 1, usual) & (edge[granted - 1] == edge[granted])]
        ready_s[in_block - 1] = t_s[in_block]
        for each in np.setdiff1d(granted, in_block).tolist():
            self._edge(int(edge[each])).ready.later(float(t_s[each]))
        ready = np.isin(act[usual], (Act.SENDS, Act.WAITS)) & (task[usual] != MISSING)
        for places, times, is_ready in (
            (usual[act[usual] == Act.ASSIGNED], t_s, False),
            (usual[ready], ready_s, True),
        ):
            for those in np.split(places, np.flatnonzero(np.diff(edge[places])) + 1):
                if len(those):
                    state = self._edge(int(edge[those[0]]))
                    (state.ready if is_ready else state.given).extend(times[those], task[those])

    def _one_by_one(
        self, acts: _Acts, left: np.ndarray, lazy: _Lazy, before: int
    ) -> list[tuple[Any, ...]]:
        """Take the acts that are ``left``; return instants after their places."""
        instants: list[tuple[Any, ...]] = []
        text, do, over = self.texts.number, self._do, self._over
        instant = {
            Act.REFUSED: text("discard"),
            Act.FAILED: text("failed"),
            Act.TIMED_OUT: text("timeout"),
        }
        places = np.flatnonzero(left & (acts.act != Act.PUBLISHED) & (acts.act != Act.DISCARDED))
        rows = zip(places.tolist(), *(each[places].tolist() for each in acts))
        for at, act, name, task, now_s, place in rows:
            if self._faults:
                self._end_faults(now_s, acts.t_s)
            if act == Act.ASSIGNED:
                do(name, Doing.RECEIVING, task, now_s)
                self._edges[name].given.add(now_s, task)
            elif act in (Act.STARTED, Act.SENDS, Act.WAITS):
                edge = self._edge(name)
                if edge.task == task or not edge.known:
                    do(name, Doing(int(THEN[act])), task, now_s)
                    if act != Act.STARTED and task != MISSING:
                        edge.ready.add(now_s, task)
            elif act == Act.ARRIVED:
                over(name, task, now_s, True)
            elif act == Act.CLOSED:
                over(name, task, now_s, False)
            elif act == Act.GRANTED:
                self._granted(name, task, now_s)
            elif act in instant:
                instants.append((before + at, name, instant[act], now_s, task, MISSING))
                if act != Act.TIMED_OUT:
                    over(name, task, now_s, True)
            elif act == Act.JOINED:
                self._joined(name, now_s)
            elif act == Act.LOST:
                self._edge(name).away_s = now_s
            elif act == Act.ASKED:
                if self._edge(name).task == task:
                    do(name, Doing.ASKED, task, now_s)
            elif act == Act.NOTHING_NEWER:
                edge = self._edge(name)
                if edge.doing is Doing.ASKED:
                    self._add(name, Doing.ASKED, edge.since_s, now_s)
                    edge.doing, edge.since_s = Doing.TRAINING, now_s
            elif act == Act.FAULT:
                kind, for_s = lazy.fault(place)
                if self._fault(name, kind, for_s, now_s):
                    instants.append((before + at, name, text(kind), now_s, task, MISSING))
            self._order += [at] * (len(self._new) - len(self._order))
        return instants

    def _edge(self, name: int) -> _Edge:
        found = self._edges.get(name)
        if found is None:
            histories = History(self._keep), History(self._keep)
            found = self._edges[name] = _Edge(given=histories[0], ready=histories[1])
        return found

    def _add(
        self, name: int, doing: Doing, begin_s: float, end_s: float, task: int = MISSING
    ) -> None:
        if end_s > begin_s:
            lane, kind = self._shown[doing]
            self._new.append((name, lane, kind, begin_s, end_s, task, MISSING))

    def _do(self, name: int, doing: Doing, task: int, now_s: float, ends_well: bool = True) -> None:
        """From now on the edge does this. ``ends_well``: a transfer was not broken off."""
        edge = self._edges.get(name) or self._edge(name)
        before = edge.doing
        if before == Doing.TRAINING or before == Doing.IDLE:
            self._add(name, before, edge.since_s, now_s, edge.task)
        elif before == Doing.ASKED:
            edge.unanswered.append((edge.since_s, now_s, edge.task))
            if self._keep is not None and len(edge.unanswered) > self._keep:
                begin_s, end_s, of = edge.unanswered.pop(0)
                self._add(name, before, begin_s, end_s, of)
        elif before and not (ends_well or edge.moved):
            self._add(name, before, edge.since_s, now_s, edge.task)
            self._lanes[name, SHOWN[before][0]].cut(edge.since_s, now_s)
        edge.doing, edge.since_s, edge.task, edge.known = doing, now_s, task, True
        edge.moved = False

    def _over(self, name: int, task: int, now_s: float, ends_well: bool) -> None:
        """The edge has no task any more, unless this is about another one."""
        edge = self._edge(name)
        if not edge.doing and edge.known:
            edge.task = MISSING  # its process is down
        elif edge.task == task or not edge.known:
            self._do(name, Doing.IDLE, MISSING, now_s, ends_well)

    def _joined(self, name: int, now_s: float) -> None:
        edge = self._edge(name)
        if edge.away_s is not None:
            self._whole(name, AWAY, self.texts.number("lost"), edge.away_s, now_s)
            edge.away_s = None
        self._end_fault(name, self.texts.number(LASTING), now_s)
        if not edge.doing:
            idle = edge.task == MISSING
            self._do(name, Doing.IDLE if idle else Doing.RECEIVING, edge.task, now_s)

    def _granted(self, name: int, task: int, now_s: float) -> None:
        edge = self._edge(name)
        if edge.task == task and edge.doing is Doing.WAITING:
            self._add(name, Doing.WAITING, edge.since_s, now_s, task)
            edge.doing, edge.since_s = Doing.SENDING, now_s
            edge.ready.later(now_s)  # the rest of the wait, if any, is in the transfer's row

    # ------------------------------------------------------------------ faults
    def _fault(self, name: int, kind: str, for_s: float | None, now_s: float) -> bool:
        """Take a fault; return whether it takes no time."""
        short = for_s is None and kind != LASTING
        if not short:
            key = name, self.texts.number(kind)
            begin_s, end_s = self._faults.get(key, (now_s, 0.0))
            lasts_s = math.inf if for_s is None else for_s
            self._faults[key] = begin_s, max(end_s, now_s + lasts_s)
        if kind in (LASTING, "restart"):
            self._do(name, Doing.UNKNOWN, self._edge(name).task, now_s, ends_well=False)
        return short

    def _end_faults(self, now_s: float, times_s: np.ndarray) -> None:
        """End the faults that are over. Their slices belong before the first act behind them."""
        for (name, kind), (_, end_s) in [*self._faults.items()]:
            if end_s <= now_s:
                self._end_fault(name, kind, end_s)
                place = float(np.searchsorted(times_s, end_s)) - 0.5
                self._order += [place] * (len(self._new) - len(self._order))

    def _end_fault(self, name: int, kind: int, at_s: float) -> None:
        if (lasted := self._faults.pop((name, kind), None)) is not None:
            self._whole(name, FAULT, kind, lasted[0], at_s)

    def _whole(self, name: int, lane: str, kind: int, begin_s: float, end_s: float) -> None:
        if end_s > begin_s:
            self._new.append((name, PLACES[lane], kind, begin_s, end_s, MISSING, MISSING))


PART_TYPES = (bool, np.float64, np.float64, np.int64)


NO_ACTS = len(Act)
ON_EDGES = np.zeros(NO_ACTS, bool)
ON_EDGES[[act for act in Act if act not in NOT_ON_EDGES]] = True
THEN = np.zeros(NO_ACTS, np.int64)
THEN[[*THEN_DOES]] = [*THEN_DOES.values()]
KEEPS_TASK = np.isin(THEN, (Doing.RECEIVING, Doing.TRAINING, Doing.WAITING, Doing.SENDING))


def _after(values: np.ndarray, first: np.ndarray, known: Sequence[Any]) -> np.ndarray:
    """The value before each one; ``known``: before the ``first`` ones."""
    found = np.roll(values, 1)
    found[first] = known
    return found


class _Lazy:
    """What only some rows and decisions have, unpacked when it is first needed."""

    def __init__(self, events: EventColumns) -> None:
        self._events = events
        self._columns: dict[str, list[Any]] = {}

    def _of(self, name: str, values: Callable[[str], list[Any]]) -> list[Any]:
        if name not in self._columns:
            self._columns[name] = values(name)
        return self._columns[name]

    def version(self, decision: int) -> int:
        found: int = self._of("version", self._events.decisions.values)[decision]
        return found

    def made_of(self, decision: int, waiting: dict[int, int]) -> tuple[int, ...]:
        """The tasks of a published model: all that wait, if it does not say."""
        found = self._of("made_of", self._events.decisions.values)[decision]
        return tuple(found) if isinstance(found, list) else tuple(waiting)

    def fault(self, row: int) -> tuple[str, float | None]:
        rows = self._events.rows
        return str(self._of("kind", rows.values)[row]), number(self._of("for_s", rows.values)[row])


def _need(rows: np.ndarray, values: np.ndarray, name: str) -> None:
    """KeyError if one of these rows has no value."""
    if (values[rows] == MISSING).any():
        raise KeyError(name)


def of_run(run: Path) -> Timeline:
    """Return the timeline of a run directory, finished or not. UserError names a damaged row."""
    with undamaged(run):
        texts = Texts()
        events = read_events(run / EVENTS, texts)
        return of_columns(events, read_table(run / SLOTS, texts), read_table(run / LINKS, texts))


def of_columns(events: EventColumns, slots: TableColumns, links: TableColumns) -> Timeline:
    """Return the timeline of a run's rows, which have the same texts."""
    found = Timeline(texts=events.texts)
    found.take_events(events)
    found.take_slots(slots)
    found.take_links(links)
    found.no_more_rows()
    return found
