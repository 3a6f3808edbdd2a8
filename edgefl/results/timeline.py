"""What each edge does over time, from the rows of a run's files as they are written.

A transfer's row comes when it has ended, and its file may be behind or ahead of the events by some
rows. So transfers that have ended come from links.csv, and those that go on from the events.
"""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from edgefl.errors import undamaged
from edgefl.protocol.messages import FRESH
from edgefl.record.files import ALL_EDGES, EVENTS, LINKS, SLOTS
from edgefl.results.intervals import (
    AWAY,
    COMPUTE,
    DOWNLINK,
    FAULT,
    LINK_LANES,
    MOVING,
    UPLINK,
    Gap,
    Instant,
    Lane,
    Slice,
    Windows,
    latest,
)
from edgefl.results.summary import number
from edgefl.results.tail import iter_csv, iter_events

LASTING = "kill"  # the only fault without a length that lasts: until the edge is back
# what an edge does -> its lane; "asked" is told apart from "wait" because its end comes late
DOING = {
    "idle": COMPUTE,
    "training": COMPUTE,
    "asked": COMPUTE,
    "receive": DOWNLINK,
    "wait": UPLINK,
    "send": UPLINK,
}


@dataclass(slots=True)
class _Edge:
    doing: str | None = None  # a key of DOING; None: unknown, or its process is down
    since_s: float = 0.0
    task: int | None = None
    away_s: float | None = None  # since when it is lost
    moved: bool = False  # its transfer has a row: only the event about its end is still to come
    known: bool = False  # whether the rows tell its task; not if their first part was deleted
    given: deque[tuple[float, int]] = field(default_factory=deque)  # (t, task)
    ready: deque[tuple[float, int]] = field(default_factory=deque)
    # blocked for a fresher model until it arrived, which only its row tells: (from, to, task)
    unanswered: list[tuple[float, float, int | None]] = field(default_factory=list)


class Timeline:
    """Slices, instants and counters of a run. Rows are taken as they come, in several calls.

    ``slices`` has what has ended, not in order; ``open_slices`` what goes on. On the lanes of an
    edge for computing and links, slices never overlap. All lists grow at their end only, and
    their reader may clear them. ``keep``: tasks per edge whose beginnings are kept to find the
    tasks of transfers; None: all.
    """

    def __init__(self, keep: int | None = None) -> None:
        self.slices: list[Slice] = []
        self.instants: list[Instant] = []
        self.versions: list[tuple[float, int]] = []  # (t_s, version) of each publication
        self.staleness: list[Gap] = []  # of updates that were not discarded on arrival
        self.emulated_s = 0.0  # of the latest event; after ``no_more_rows`` of the latest row
        self.version = 0
        self.finished: str | None = None  # the reason, after the run's end
        self._keep = keep
        self._edges: dict[str, _Edge] = {}
        self._lanes: defaultdict[tuple[str, str], Lane] = defaultdict(partial(Lane, keep))
        self._waiting: dict[int, str] = {}  # tasks whose update the strategy holds -> edge
        self._faults: dict[tuple[str, str], tuple[float, float]] = {}  # (edge, kind): from, to
        self._held: list[tuple[float, Mapping[str, str]]] = []  # rows of links ahead of the events
        self._broadcasts: deque[tuple[float, tuple[str, ...]]] = deque(maxlen=keep)
        self._windows = Windows()
        self._begun = False

    # ------------------------------------------------------------------ what is there
    @property
    def edges(self) -> list[str]:
        """The ids of all edges, sorted."""
        return sorted(self._edges)

    def open_slices(self) -> list[Slice]:
        """Return what goes on; ``end_s`` is None."""
        found = [
            Slice(name, FAULT, kind, begin_s, None)
            for (name, kind), (begin_s, _) in self._faults.items()
        ]
        for name, edge in self._edges.items():
            if edge.doing is not None and not edge.moved:
                kind = "wait" if edge.doing == "asked" else edge.doing
                found.append(Slice(name, DOING[edge.doing], kind, edge.since_s, None, edge.task))
            if edge.away_s is not None:
                found.append(Slice(name, AWAY, "lost", edge.away_s, None))
        return found

    # ------------------------------------------------------------------ rows
    def take_events(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Take lines of events.jsonl, in order."""
        for row in rows:
            self.emulated_s = max(self.emulated_s, number(row.get("t")) or 0.0)
            self._end_faults()
            if "fact" in row:
                self._fact(row["fact"], row)
            elif "event" in row:
                self._event(row["event"], row)
        self._match(self.emulated_s)

    def take_slots(self, rows: Iterable[Mapping[str, str]]) -> None:
        """Take rows of slots.csv, before the rows of links.csv about the same transfers."""
        self._windows.take(rows)

    def take_links(self, rows: Iterable[Mapping[str, str]]) -> None:
        """Take rows of links.csv. Those ahead of the events wait for them."""
        for row in rows:
            ended_s = number(row.get("finished_s"))
            if ended_s is not None and row.get("direction") in LINK_LANES:
                self._held.append((ended_s, row))
        self._match(self.emulated_s)

    def no_more_rows(self) -> None:
        """The files end here: what waits for other rows is taken as it is."""
        self.emulated_s = max([self.emulated_s, *(ended_s for ended_s, _ in self._held)])
        self._match(math.inf)
        for name, edge in self._edges.items():
            for waited in edge.unanswered:
                self._add(name, COMPUTE, "wait", *waited)
            edge.unanswered.clear()

    # ------------------------------------------------------------------ links
    def _match(self, until_s: float) -> None:
        due = sorted((each for each in self._held if each[0] <= until_s), key=lambda each: each[0])
        if due:
            self._held = [each for each in self._held if each[0] > until_s]
        for ended_s, row in due:
            name, direction, kind = row.get("edge", ""), row["direction"], row.get("kind", "")
            offered_s, size = number(row.get("offered_s")), number(row.get("bytes"))
            if offered_s is None or size is None:
                continue
            moves = MOVING[LINK_LANES[direction]]
            parts = [*self._windows.parts((name, direction), moves, offered_s, ended_s)]
            for each in self._receivers(offered_s) if name == ALL_EDGES else (name,):
                self._transfer(each, direction, kind, int(size), parts)

    def _receivers(self, offered_s: float) -> tuple[str, ...]:
        """The edges of the latest broadcast that was decided by then; of several, the first."""
        decided = [t_s for t_s, _ in self._broadcasts if t_s <= offered_s]
        for each in self._broadcasts:
            if decided and each[0] == decided[-1]:
                if len(decided) > 1 and decided[-2] == decided[-1]:
                    self._broadcasts.remove(each)
                return each[1]
        return ()

    def _transfer(
        self, name: str, direction: str, kind: str, size: int, parts: list[tuple[str, float, float]]
    ) -> None:
        """Add the slices of a transfer that has ended."""
        edge, lane = self._edge(name), LINK_LANES[direction]
        begin_s, end_s = parts[0][1], parts[-1][2]
        history = edge.ready if lane == UPLINK else edge.given
        t_s, task = latest(history, end_s)
        if lane == UPLINK and t_s is not None and t_s < begin_s:
            parts = [("wait", t_s, begin_s), *parts]
        moving = sum(to_s - from_s for what, from_s, to_s in parts if what != "wait")
        left = size
        for number_of, (what, from_s, to_s) in enumerate(parts, 1):
            share = 0 if what == "wait" else left
            if what != "wait" and number_of < len(parts):
                share = round(size * (to_s - from_s) / moving) if moving else 0
                left -= share
            fitted = self._lanes[name, lane].fit(from_s, to_s)
            if what != "wait" or fitted[1] > fitted[0]:
                moved = None if what == "wait" else share
                self.slices.append(Slice(name, lane, what, *fitted, task, moved))
        if edge.doing == MOVING[lane] and edge.task == task and kind != FRESH:
            edge.moved = True
        if kind == FRESH:
            self.instants.append(Instant(name, "fresh", end_s, task))
            self._answered(name, edge, end_s)

    def _answered(self, name: str, edge: _Edge, at_s: float) -> None:
        """A fresher model has arrived; an edge that did nothing but wait for it goes on."""
        for waited in edge.unanswered:
            begin_s, end_s, task = waited
            if begin_s <= at_s:
                edge.unanswered.remove(waited)
                at_s = min(at_s, end_s)
                self._add(name, COMPUTE, "wait", begin_s, at_s, task)
                self._add(name, COMPUTE, "training", at_s, end_s, task)
                return
        if edge.doing == "asked" and edge.since_s <= at_s:
            self._add(name, COMPUTE, "wait", edge.since_s, at_s, edge.task)
            edge.doing, edge.since_s = "training", at_s

    # ------------------------------------------------------------------ events
    def _edge(self, name: str) -> _Edge:
        return self._edges.setdefault(name, _Edge(since_s=self.emulated_s))

    def _add(
        self, name: str, lane: str, kind: str, begin_s: float, end_s: float, task: int | None = None
    ) -> None:
        if end_s > begin_s:
            self.slices.append(Slice(name, lane, kind, begin_s, end_s, task))

    def _do(self, name: str, doing: str | None, task: int | None, ends_well: bool = True) -> None:
        """From now on the edge does this. ``ends_well``: a transfer was not broken off."""
        edge, now_s = self._edge(name), self.emulated_s
        if edge.doing == "asked":
            edge.unanswered.append((edge.since_s, now_s, edge.task))
            if self._keep is not None and len(edge.unanswered) > self._keep:
                self._add(name, COMPUTE, "wait", *edge.unanswered.pop(0))
        elif edge.doing is not None:
            lane = DOING[edge.doing]
            if lane == COMPUTE:
                self._add(name, lane, edge.doing, edge.since_s, now_s, edge.task)
            elif not (ends_well or edge.moved):
                self._add(name, lane, edge.doing, edge.since_s, now_s, edge.task)
                self._lanes[name, lane].cut(edge.since_s, now_s)
        edge.doing, edge.since_s, edge.task, edge.known = doing, now_s, task, True
        edge.moved = False

    def _over(self, name: str, task: int | None, ends_well: bool) -> None:
        """The edge has no task any more, unless this is about another one."""
        edge = self._edge(name)
        if edge.doing is None and edge.known:
            edge.task = None  # its process is down
        elif edge.task == task or not edge.known:
            self._do(name, "idle", None, ends_well)

    def _instant(self, row: Mapping[str, Any], kind: str, version: int | None = None) -> None:
        name, task = str(row.get("edge", "")), row.get("task")
        self.instants.append(Instant(name, kind, self.emulated_s, task, version))

    def _fact(self, fact: str, row: Mapping[str, Any]) -> None:
        name, task = row.get("edge", ""), row.get("task")
        match fact:
            case "task_started":
                if self._edge(name).task == task or not self._edge(name).known:
                    self._do(name, "training", task)
            case "update_ready":
                self._ready(name, task, "send")
            case "discarded":  # the update has arrived
                self._instant(row, "discard")
                self._over(name, task, ends_well=True)
            case "training_failed":
                self._instant(row, "failed")
                self._over(name, task, ends_well=True)
            case "task_timed_out":
                self._instant(row, "timeout")
            case "fault":
                self._fault(str(row.get("kind")), row)
            case "finished":
                self.finished = str(row.get("reason", ""))
            case "resumed":
                self.finished = None

    def _event(self, kind: str, row: Mapping[str, Any]) -> None:
        name, task = row.get("edge", ""), row.get("task")
        if not self._begun:
            self._begun = True
            self.version = row.get("version", 0)
            self.versions.append((self.emulated_s, self.version))
        match kind:
            case "edge_joined":
                self._joined(name)
            case "edge_lost":
                self._edge(name).away_s = self.emulated_s
            case "update_ready":
                self._ready(name, task, "wait")
            case "update_arrived":
                self._waiting[row["task"]] = name
                self._over(name, task, ends_well=True)
            case "task_closed":
                self._over(name, task, ends_well=False)
            case "fresh_requested" if not row.get("until_ns"):
                if self._edge(name).task == task:
                    self._do(name, "asked", task)
        decisions = row.get("decisions", ())
        for decision in decisions:
            if decision["do"] == "discard" and decision["task"] in self._waiting:
                edge = self._waiting.pop(decision["task"])
                self._instant({"edge": edge, "task": decision["task"]}, "discard")
        if kind == "update_arrived" and row["task"] in self._waiting:
            gap = row["version"] - row["base_version"]
            self.staleness.append(Gap(self.emulated_s, name, gap))
        for decision in decisions:
            self._decision(decision)

    def _ready(self, name: str, task: int | None, doing: str) -> None:
        edge = self._edge(name)
        if edge.task == task or not edge.known:
            self._do(name, doing, task)
            self._remember(edge.ready, task)

    def _remember(self, history: deque[tuple[float, int]], task: int | None) -> None:
        if task is not None:
            history.append((self.emulated_s, task))
        while self._keep is not None and len(history) > self._keep:
            history.popleft()

    def _joined(self, name: str) -> None:
        edge = self._edge(name)
        if edge.away_s is not None:
            self._add(name, AWAY, "lost", edge.away_s, self.emulated_s)
            edge.away_s = None
        self._end_fault(name, LASTING, self.emulated_s)
        if edge.doing is None:
            self._do(name, "idle" if edge.task is None else "receive", edge.task)

    def _decision(self, decision: Mapping[str, Any]) -> None:
        match decision["do"]:
            case "assign":
                self._assign(decision)
            case "grant":
                if self._edge(decision["edge"]).task == decision["task"]:
                    self._granted(decision["edge"], decision["task"])
            case "send_fresh" if decision.get("version") is None:
                edge = self._edge(decision["edge"])
                if edge.doing == "asked":
                    self._add(decision["edge"], COMPUTE, "wait", edge.since_s, self.emulated_s)
                    edge.doing, edge.since_s = "training", self.emulated_s
            case "cancel":
                self._over(decision["edge"], decision["task"], ends_well=False)
            case "publish":
                self._publish(decision)

    def _assign(self, decision: Mapping[str, Any]) -> None:
        if decision.get("broadcast"):
            self._broadcasts.append((self.emulated_s, tuple(decision["edges"])))
        for name, task in zip(decision["edges"], decision["tasks"]):
            self._do(name, "receive", task)
            self._remember(self._edge(name).given, task)

    def _granted(self, name: str, task: int) -> None:
        edge, now_s = self._edge(name), self.emulated_s
        if edge.doing == "wait":
            self._add(name, UPLINK, "wait", edge.since_s, now_s, task)
            edge.doing, edge.since_s = "send", now_s
            edge.ready[-1] = (now_s, task)  # the rest of the wait, if any, is in the transfer's row

    def _publish(self, decision: Mapping[str, Any]) -> None:
        self.version = decision["version"]
        self.versions.append((self.emulated_s, self.version))
        for task in decision.get("made_of", tuple(self._waiting)):
            if (name := self._waiting.pop(task, None)) is not None:
                self._instant({"edge": name, "task": task}, "merge", self.version)

    # ------------------------------------------------------------------ faults
    def _fault(self, kind: str, row: Mapping[str, Any]) -> None:
        name, for_s, now_s = str(row.get("edge", "")), row.get("for_s"), self.emulated_s
        if for_s is None and kind != LASTING:
            self._instant(row, kind)
        else:
            begin_s, end_s = self._faults.get((name, kind), (now_s, 0.0))
            lasts_s = math.inf if for_s is None else float(for_s)
            self._faults[name, kind] = begin_s, max(end_s, now_s + lasts_s)
        if kind in (LASTING, "restart"):
            self._do(name, None, self._edge(name).task, ends_well=False)

    def _end_faults(self) -> None:
        for (name, kind), (_, end_s) in [*self._faults.items()]:
            if end_s <= self.emulated_s:
                self._end_fault(name, kind, end_s)

    def _end_fault(self, name: str, kind: str, at_s: float) -> None:
        if (lasted := self._faults.pop((name, kind), None)) is not None:
            self._add(name, FAULT, kind, lasted[0], at_s)


def of_run(run: Path) -> Timeline:
    """Return the timeline of a run directory, finished or not. UserError names a damaged row."""
    found = Timeline()
    with undamaged(run):
        found.take_events(iter_events(run / EVENTS))
        found.take_slots(iter_csv(run / SLOTS))
        found.take_links(iter_csv(run / LINKS))
        found.no_more_rows()
    return found
