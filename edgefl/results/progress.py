"""The progress of a run, derived from rows of its files; does no input or output."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from edgefl.config.scores import ACCURACY, Score
from edgefl.record.counters import Counters
from edgefl.results.columns import MISSING, EventColumns, TableColumns
from edgefl.results.summary import number

STATES = ("lost", "sending", "training", "receiving", "idle", "joined", "awaited")
UNCONNECTED = ("lost", "awaited")
TAKE_TIME = ("task_started", "update_ready", "update_arrived")  # not while the clock stands still
RATE_WINDOW_S = 5.0


@dataclass(slots=True)
class EdgeStatus:
    """What one edge does, on which task, since which emulated second."""

    state: str = "awaited"
    task: int | None = None
    since_s: float = 0.0


@dataclass(slots=True)
class HostStatus:
    """The latest that an edge has reported about its host; "" if unknown."""

    name: str = ""
    cpu_percent: str = ""
    temperature_c: str = ""
    throttled: str = ""

    def take(self, row: Mapping[str, str]) -> None:
        """Take a row of hosts.csv; an empty field is no news."""
        self.name = row.get("host", "")
        self.cpu_percent = row.get("cpu_percent", "") or self.cpu_percent
        self.temperature_c = row.get("temperature_c", "") or self.temperature_c
        self.throttled = row.get("throttled", "") or self.throttled

    @property
    def trouble(self) -> str:
        """What slows the processor down now, for example "under-voltage, throttled"."""
        return "" if self.throttled == "no" else self.throttled.replace("+", ", ")


LEFT = EdgeStatus("lost")
UNKNOWN_HOST = HostStatus()


@dataclass(slots=True)
class Progress:
    """The progress of a run from its events, links and metrics as they are written."""

    edges: dict[str, EdgeStatus] = field(default_factory=dict)
    emulated_s: float = 0.0  # of the latest row
    quiet_s: float = 0.0  # emulated time since that row, if the reader has a clock
    counters: Counters = field(default_factory=Counters)
    hosts: dict[str, HostStatus] = field(default_factory=dict)  # by machine
    places: Mapping[str, str] = field(default_factory=dict)  # edge -> host, as the user names it
    machines: dict[str, str] = field(default_factory=dict)  # of the edges that have reported
    score: Score = ACCURACY  # that the run's target refers to
    accuracy: float | None = None  # or another score
    evaluated: int | None = None  # the version of ``accuracy``; evaluation may be behind the run
    wire_errors: int = 0
    finished: str | None = None  # the reason, after the run's end
    outage_s: float | None = None  # before the latest resumption
    # since which emulated second a resumed run, whose clock stands still, waits for its edges
    waits_at_s: float | None = None
    begun: bool = False  # the run's clock has run
    away: set[str] = field(default_factory=set)  # connected, but away by ``edges.availability``
    _evaluated_s: float = -1.0
    _transfers: deque[tuple[float, str, str, int]] = field(default_factory=deque)

    @property
    def version(self) -> int:
        return self.counters.versions

    @property
    def updates(self) -> str:
        """Counts of updates as text: "12 updates, 10 applied, 1 discarded"."""
        found, discarded = self.counters, self.counters.discards.total()
        updates = f"{found.updates_received} updates, {found.updates_applied} applied"
        return f"{updates}, {discarded} discarded" if discarded else updates

    @property
    def now_s(self) -> float:
        """The current emulated time in seconds."""
        return self.emulated_s + self.quiet_s

    def states(self) -> dict[str, int]:
        """Return the number of edges in each state, in the order of STATES, without zeros."""
        counts = Counter(status.state for status in self.edges.values())
        return {state: counts[state] for state in STATES if counts[state]}

    def resumes(self) -> None:
        """The rows so far are of a run that was broken off: it waits for its edges to come back."""
        self.waits_at_s = self.emulated_s
        for edge in self.edges:
            self._set(edge, "awaited", None)
        # neither these edges nor their hosts do anything now
        self.away.clear()
        self.hosts.clear()
        self._transfers.clear()

    @property
    def missing(self) -> list[str]:
        """The edges that are not connected, sorted."""
        return sorted(
            edge
            for edge, status in self.edges.items()
            if status.state in UNCONNECTED and edge not in self.away
        )

    @property
    def waits(self) -> bool:
        """Whether nothing can happen before edges connect."""
        if self.finished is not None or not self.edges:
            return False
        alone = len(self.missing) == len(self.edges)
        return self.waits_at_s is not None or not self.begun or alone

    @property
    def lost_s(self) -> float:
        """The emulated time since the latest loss of an edge that is still lost."""
        lost = [status.since_s for status in self.edges.values() if status.state == "lost"]
        return self.now_s - max(lost, default=self.now_s)

    def rates_bit_s(self) -> dict[str, tuple[float, float]]:
        """Return each edge's (up, down) rate over the last RATE_WINDOW_S emulated seconds.

        A transfer counts with all its bits when it ends.
        """
        since_s = max(0.0, self.now_s - RATE_WINDOW_S)
        sent: Counter[tuple[str, str]] = Counter()
        for ended_s, edge, direction, size_bytes in self._transfers:
            if ended_s > since_s:
                sent[edge, direction] += size_bytes
        over_s = self.now_s - since_s
        return {
            edge: (sent[edge, "up"] * 8 / over_s, sent[edge, "down"] * 8 / over_s)
            for edge, _ in sent
        }

    def take_events(self, events: Iterable[Mapping[str, Any]]) -> None:
        """Take lines of events.jsonl in order; in each, the event before its decisions."""
        for event in events:
            self._advance(event.get("t"))
            # edges that come back have later rows, too, if the run ended after its latest row
            if (
                self.waits_at_s is not None
                and self.emulated_s > self.waits_at_s
                and event.get("fact", event.get("event")) in TAKE_TIME
            ):
                self.waits_at_s = None
            self.counters.take(event)
            if "fact" in event:
                self._take_fact(event)
            elif "event" in event:
                self._take_event(event)
            for decision in event.get("decisions", ()):
                self._take_decision(decision)

    def take_many(
        self, events: EventColumns, usual: np.ndarray, take: Callable[[Mapping[str, Any]], None]
    ) -> None:
        """Take many lines of events.jsonl, as ``take_events`` does one by one.

        ``usual``: see ``usual_rows``. ``take`` gets all others, and gives them to ``take_events``.
        """
        if not events.count:
            return
        rows, texts = events.rows, events.texts
        names, number = texts.all, texts.number
        now_s = np.maximum.accumulate(np.maximum(np.nan_to_num(rows.floats("t")), self.emulated_s))
        edge, event = rows.texts_of("edge"), rows.texts_of("event")
        arrived = np.flatnonzero(usual & (event == number("update_arrived")))
        tasks = rows.whole("task")[arrived].tolist()
        edges = [names[each] for each in edge[arrived].tolist()]
        version = rows.whole("version")[arrived]
        gaps = (version - rows.whole("base_version")[arrived]).tolist()
        published = np.flatnonzero(events.decisions.texts_of("do") == number("publish"))
        published = published[usual[events.decided_in[published]]]
        versions: dict[int, list[int]] = {}
        made = events.decisions.whole("version")[published].tolist()
        for row, one in zip(events.decided_in[published].tolist(), made):
            versions.setdefault(row, []).append(one)
        needed = ~usual | _last_about_edges(events, usual)
        stops = np.union1d(np.flatnonzero(needed), [*versions]).astype(np.int64)
        counted = 0
        before = np.searchsorted(arrived, stops, side="right").tolist()
        for place, until in zip(stops.tolist(), before):
            if versions.get(place) or not usual[place]:
                some = slice(counted, until)
                if until > counted:
                    self.counters.arrived(tasks[some], edges[some], gaps[some])
                    counted = until
                for one in versions.get(place, ()):
                    self.counters.published(one)
            if needed[place]:
                row = events.row(place)
                if usual[place]:
                    self._take_state(row)
                else:
                    take(row)
        if len(arrived) > counted:
            self.counters.arrived(tasks[counted:], edges[counted:], gaps[counted:])
        self.counters.versions = max([self.counters.versions, *version[-1:].tolist()])
        self.begun = self.begun or bool((event[usual] != MISSING).any())
        if self.waits_at_s is not None:
            kinds = [number(kind) for kind in TAKE_TIME]
            works = np.isin(event, kinds) | np.isin(rows.texts_of("fact"), kinds)
            if (now_s[usual & works] > self.waits_at_s).any():
                self.waits_at_s = None
        self._advance(now_s[-1])

    def _take_state(self, row: Mapping[str, Any]) -> None:
        """Take what a row tells about what edges do, and nothing else."""
        self._advance(row.get("t"))
        if "fact" in row:
            self._take_fact(row)
        else:
            self._take_event(row)
        for decision in row.get("decisions", ()):
            self._take_decision(decision)

    def take_links(self, links: TableColumns) -> None:
        """Take rows of links.csv, which are finished transfers."""
        ended_s, size = links.get("finished_s"), links.get("bytes")
        ways = [links.texts.number(way) for way in ("up", "down")]
        there = ~(np.isnan(ended_s) | np.isnan(size)) & np.isin(links.get("direction"), ways)
        if there.any():
            self._advance(ended_s[there].max())
        there &= ended_s >= self.emulated_s - RATE_WINDOW_S
        names = links.texts.all
        edges, directions = (links.get(name)[there].tolist() for name in ("edge", "direction"))
        sizes = size[there].astype(np.int64).tolist()
        for at_s, edge, way, one in zip(ended_s[there].tolist(), edges, directions, sizes):
            self._transfers.append((at_s, names[edge], names[way], one))
        while self._transfers and self._transfers[0][0] < self.emulated_s - RATE_WINDOW_S:
            self._transfers.popleft()

    def take_metrics(self, rows: Iterable[Mapping[str, str]]) -> None:
        """Take rows of metrics.csv; ``accuracy`` is the score of the newest evaluated model."""
        for row in rows:
            evaluated_s, accuracy = number(row.get("emulated_s")), number(row.get(self.score.name))
            if (
                evaluated_s is not None
                and accuracy is not None
                and evaluated_s >= self._evaluated_s
            ):
                self._evaluated_s, self.accuracy, self.evaluated = (
                    evaluated_s,
                    accuracy,
                    int(number(row.get("version")) or 0),
                )

    def take_hosts(self, rows: Iterable[Mapping[str, str]]) -> None:
        """Take rows of hosts.csv."""
        for row in rows:
            machine = self.machines[row.get("edge", "")] = row.get("machine", "")
            self.hosts.setdefault(machine, HostStatus()).take(row)

    def host_of(self, edge: str) -> HostStatus:
        """Return what is known about the host of an edge."""
        return self.hosts.get(self.machines.get(edge, ""), UNKNOWN_HOST)

    def _advance(self, t: Any) -> None:
        self.emulated_s = max(self.emulated_s, number(t) or 0.0)

    def _set(self, edge: str, state: str, task: int | None) -> None:
        self.edges[edge] = EdgeStatus(state, task, self.emulated_s)

    def _works(self, edge: str, state: str, task: int) -> None:
        """Set the state, unless the edge is lost.

        An edge says early when its emulated device will be ready, and may be lost before that.
        """
        if self.edges.get(edge, EdgeStatus()).state != "lost":
            self._set(edge, state, task)

    def _take_fact(self, event: Mapping[str, Any]) -> None:
        fact = event["fact"]
        if fact == "task_started":
            self._works(event["edge"], "training", event["task"])
        elif fact == "update_ready":
            self._works(event["edge"], "sending", event["task"])
        elif fact == "edge_waits":  # for other edges, before the run begins
            self._set(event["edge"], "joined", None)
        elif fact == "session_ended" and self.edges.get(event["edge"], LEFT).state == "joined":
            self._set(event["edge"], "awaited", None)
        elif fact == "wire_error":
            self.wire_errors += 1
        elif fact == "edge_away":
            self.away.add(event["edge"])
        elif fact == "resumed":
            self.outage_s, self.finished = number(event.get("outage_s")), None
            self.waits_at_s = None
        elif fact == "finished":
            self.finished = str(event.get("reason", ""))

    def _take_event(self, event: Mapping[str, Any]) -> None:
        kind, edge = event["event"], event.get("edge")
        self.begun = True
        if edge is None:
            return
        if kind == "edge_joined":
            self.away.discard(edge)
            self._set(edge, "idle", None)
        elif kind == "edge_lost":
            before = self.edges.get(edge)
            # the task stays open for the grace time
            self._set(edge, "lost", before.task if before else None)
        elif kind == "update_ready":
            self._works(edge, "sending", event["task"])
        elif kind in ("update_arrived", "task_closed"):
            self._task_over(edge, event["task"])

    def _take_decision(self, decision: Mapping[str, Any]) -> None:
        kind = decision.get("do")
        if kind == "assign":
            for edge, task in zip(decision["edges"], decision["tasks"]):
                self._set(edge, "receiving", task)
        elif kind == "cancel":
            self._task_over(decision["edge"], decision["task"])

    def _task_over(self, edge: str, task: int) -> None:
        """Set the edge to idle, unless it is lost or already on another task."""
        status = self.edges.get(edge)
        if status is None or (status.state != "lost" and status.task in (task, None)):
            self._set(edge, "idle", None)


def usual_rows(events: EventColumns, updates_too: bool) -> np.ndarray:
    """Which rows tell the usual course of a task, on which nothing but new tasks and a model of all
    updates was decided. ``updates_too``: else an update that arrived is not among them.
    """
    rows, decisions, number = events.rows, events.decisions, events.texts.number
    fact, event, task = rows.texts_of("fact"), rows.texts_of("event"), rows.whole("task")
    arrived = event == number("update_arrived")
    found = np.isin(fact, [number("task_started"), number("update_ready")]) & (event == MISSING)
    found |= (event == number("update_ready")) & (fact == MISSING)
    if updates_too:
        known = (rows.whole("version") != MISSING) & (rows.whole("base_version") != MISSING)
        found |= arrived & known & (fact == MISSING)
    found &= (rows.texts_of("edge") != MISSING) & (task != MISSING)
    do = decisions.texts_of("do")
    usual = (do == number("assign")) & decisions.has_list("edges") & decisions.has_list("tasks")
    usual &= ~decisions.has("broadcast")
    published = (do == number("publish")) & (decisions.whole("version") != MISSING)
    usual |= published & ~decisions.has("made_of")
    found[events.decided_in[~usual]] = False
    return found


def _last_about_edges(events: EventColumns, usual: np.ndarray) -> np.ndarray:
    """The usual rows from which the state of an edge follows: for each edge the last one that says
    what it does whatever it did before, and those behind.
    """
    rows, texts = events.rows, events.texts
    arrived = rows.texts_of("event") == texts.number("update_arrived")
    edge = rows.texts_of("edge")
    places = np.flatnonzero(usual & ~arrived)
    last = np.full(len(texts), MISSING)
    np.maximum.at(last, edge[places], places)
    given = np.flatnonzero(events.decisions.texts_of("do") == texts.number("assign"))
    given = given[usual[events.decided_in[given]]]
    edges, _, lengths = events.assigned(given)
    in_row = np.repeat(events.decided_in[given], lengths)
    np.maximum.at(last, edges, in_row)
    found = usual & (np.arange(len(usual)) >= last[edge])
    found[in_row[in_row >= last[edges]]] = True
    return found
