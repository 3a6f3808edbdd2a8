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
from collections.abc import Sequence
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
    without_collection,
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


class Doing(IntEnum):
    """What an edge does. ASKED is told apart from a wait because its end comes late."""

    UNKNOWN = 0  # or its process is down
    IDLE = 1
    TRAINING = 2
    ASKED = 3
    RECEIVING = 4
    WAITING = 5
    SENDING = 6


UNKNOWN, IDLE, TRAINING, ASKED, RECEIVING, WAITING, SENDING = Doing

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
    name: int
    given: History
    ready: History
    doing: Doing = UNKNOWN
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
        self._slices: list[Sequence[np.ndarray]] = []
        self._instants: list[Sequence[np.ndarray]] = []
        self._gaps: list[Sequence[np.ndarray]] = []
        # slices and instants that are not in columns yet
        self._new: list[tuple[Any, ...]] = []
        self._new_instants: list[tuple[Any, ...]] = []
        self._edges = _Edges(keep)
        self._lanes: defaultdict[tuple[int, str], Lane] = defaultdict(lambda: Lane(keep))
        self._waiting: dict[int, int] = {}  # tasks whose update the strategy holds -> edge
        self._faults: dict[tuple[int, int], tuple[float, float]] = {}  # (edge, kind): from, to
        self._held: list[Sequence[np.ndarray]] = []  # rows of links ahead of the events
        self._broadcasts: list[tuple[float, tuple[int, ...]]] = []  # the latest ``keep``
        self._windows = Windows()
        self._begun = False
        text = self.texts.number
        self._shown = [(PLACES[at], text(kind)) for at, kind in SHOWN.values()]  # by Doing
        self._take = {
            Act.STARTED: self._started,
            Act.SENDS: self._sends,
            Act.ARRIVED: self._arrived,
            Act.ASSIGNED: self._assigned,
            Act.WAITS: self._waits,
            Act.GRANTED: self._granted,
            Act.CLOSED: self._closed,
            Act.JOINED: self._joined,
            Act.LOST: self._lost,
            Act.ASKED: self._asked,
            Act.NOTHING_NEWER: self._nothing_newer,
            Act.REFUSED: self._refused,
            Act.FAILED: self._failed,
            Act.TIMED_OUT: self._timed_out,
        }

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

    def slice_columns(self) -> SliceColumns:
        """What has ended."""
        self._slices = [joined(self._slices, SLICE_TYPES)]
        return SliceColumns(*self._slices[0])

    def instant_columns(self) -> InstantColumns:
        self._instants = [joined(self._instants, INSTANT_TYPES)]
        return InstantColumns(*self._instants[0])

    def gap_columns(self) -> GapColumns:
        """The staleness of updates that were not discarded on arrival."""
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
        self._held.append([each[there] for each in (*columns, ended_s, direction)])
        self._match(self.emulated_s)

    def no_more_rows(self) -> None:
        """The files end here: what waits for other rows is taken as it is."""
        ends = [float(part[5].max()) for part in self._held if len(part[5])]
        self.emulated_s = max([self.emulated_s, *ends])
        self._match(math.inf)
        for name, edge in self._edges.items():
            for begin_s, end_s, task in edge.unanswered:
                self._add(name, ASKED, begin_s, end_s, task)
            edge.unanswered.clear()
        self._pack()

    def _pack(self) -> None:
        self._slices.append(packed(self._new, SLICE_TYPES))
        self._instants.append(packed(self._new_instants, INSTANT_TYPES))
        self._new, self._new_instants = [], []

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
                self._add(name, ASKED, begin_s, at_s, task)
                self._add(name, TRAINING, at_s, end_s, task)
                return
        if edge.doing is ASKED and edge.since_s <= at_s:
            self._add(name, ASKED, edge.since_s, at_s, edge.task)
            edge.doing, edge.since_s = TRAINING, at_s

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
        """Take acts one after the other: what an edge does follows from all that came before."""
        rows, decisions = events.rows, events.decisions
        has_faults = (acts.act == Act.FAULT).any()
        kinds, lengths_s = (rows.values(x) if has_faults else [] for x in ("kind", "for_s"))
        version = decisions.whole("version").tolist()
        made_of = decisions.values("made_of") if "made_of" in decisions.names else version
        edges, faults, take = self._edges, self._faults, self._take
        with without_collection():
            for act, name, task, now_s, place in zip(*(each.tolist() for each in acts)):
                if faults:
                    self._end_faults(now_s)
                if act in take:
                    take[act](edges[name], task, now_s)
                elif act == Act.PUBLISHED:
                    self._published(version[place], made_of[place], now_s)
                elif act == Act.DISCARDED:
                    if (of := self._waiting.pop(task, None)) is not None:
                        self._instant(of, "discard", now_s, task)
                else:
                    self._fault(name, str(kinds[place]), number(lengths_s[place]), now_s, task)

    def _assigned(self, edge: _Edge, task: int, now_s: float) -> None:
        self._do(edge, RECEIVING, task, now_s)
        edge.given.add(now_s, task)

    def _started(self, edge: _Edge, task: int, now_s: float) -> None:
        if edge.task == task or not edge.known:
            self._do(edge, TRAINING, task, now_s)

    def _sends(self, edge: _Edge, task: int, now_s: float, doing: Doing = SENDING) -> None:
        if edge.task == task or not edge.known:
            self._do(edge, doing, task, now_s)
            if task != MISSING:
                edge.ready.add(now_s, task)

    def _waits(self, edge: _Edge, task: int, now_s: float) -> None:
        self._sends(edge, task, now_s, WAITING)

    def _arrived(self, edge: _Edge, task: int, now_s: float) -> None:
        self._waiting[task] = edge.name
        self._over(edge, task, now_s)

    def _published(self, version: int, made_of: Any, now_s: float) -> None:
        """A model contains the updates of the tasks ``made_of``; no list: of all that wait."""
        self.version = version
        self.versions.append((now_s, version))
        for task in made_of if isinstance(made_of, list) else [*self._waiting]:
            if (name := self._waiting.pop(task, None)) is not None:
                self._instant(name, "merge", now_s, task, version)

    def _refused(self, edge: _Edge, task: int, now_s: float) -> None:
        self._instant(edge.name, "discard", now_s, task)
        self._over(edge, task, now_s)

    def _failed(self, edge: _Edge, task: int, now_s: float) -> None:
        self._instant(edge.name, "failed", now_s, task)
        self._over(edge, task, now_s)

    def _timed_out(self, edge: _Edge, task: int, now_s: float) -> None:
        self._instant(edge.name, "timeout", now_s, task)

    def _closed(self, edge: _Edge, task: int, now_s: float) -> None:
        self._over(edge, task, now_s, ends_well=False)

    def _lost(self, edge: _Edge, task: int, now_s: float) -> None:
        edge.away_s = now_s

    def _asked(self, edge: _Edge, task: int, now_s: float) -> None:
        if edge.task == task:
            self._do(edge, ASKED, task, now_s)

    def _nothing_newer(self, edge: _Edge, task: int, now_s: float) -> None:
        if edge.doing is ASKED:
            self._add(edge.name, ASKED, edge.since_s, now_s)
            edge.doing, edge.since_s = TRAINING, now_s

    def _instant(
        self, name: int, kind: str, now_s: float, task: int, version: int = MISSING
    ) -> None:
        self._new_instants.append((name, self.texts.number(kind), now_s, task, version))

    def _add(
        self, name: int, doing: Doing, begin_s: float, end_s: float, task: int = MISSING
    ) -> None:
        if end_s > begin_s:
            lane, kind = self._shown[doing]
            self._new.append((name, lane, kind, begin_s, end_s, task, MISSING))

    def _do(
        self, edge: _Edge, doing: Doing, task: int, now_s: float, ends_well: bool = True
    ) -> None:
        """From now on the edge does this. ``ends_well``: a transfer was not broken off."""
        before, since_s = edge.doing, edge.since_s
        if before is TRAINING or before is IDLE:
            self._add(edge.name, before, since_s, now_s, edge.task)
        elif before is ASKED:
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

    def _joined(self, edge: _Edge, task: int, now_s: float) -> None:
        if edge.away_s is not None:
            self._whole(edge.name, AWAY, self.texts.number("lost"), edge.away_s, now_s)
            edge.away_s = None
        self._end_fault(edge.name, self.texts.number(LASTING), now_s)
        if not edge.doing:
            idle = edge.task == MISSING
            self._do(edge, IDLE if idle else RECEIVING, edge.task, now_s)

    def _granted(self, edge: _Edge, task: int, now_s: float) -> None:
        if edge.task == task and edge.doing is WAITING:
            self._add(edge.name, WAITING, edge.since_s, now_s, task)
            edge.doing, edge.since_s = SENDING, now_s
            edge.ready.later(now_s)  # the rest of the wait, if any, is in the transfer's row

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


PART_TYPES = (bool, np.float64, np.float64, np.int64)


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
