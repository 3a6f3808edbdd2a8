"""The progress of a run, its pace, and the live display of both in a terminal.

``Progress`` and ``Pace`` are derived from rows and do no input or output. ``LiveView`` only reads
the run directory, so it can run in a separate process that does not disturb pacing.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from rich.console import (
    Console,
    ConsoleOptions,
    Group,
    JustifyMethod,
    RenderableType,
    RenderResult,
)
from rich.table import Table
from rich.text import Text

from edgefl.config.experiment import Stop
from edgefl.config.scores import ACCURACY, Score
from edgefl.errors import listed
from edgefl.record.counters import Counters
from edgefl.record.files import EVENTS, HOSTS, LINKS, METRICS
from edgefl.results.read import (
    MISSING,
    EventColumns,
    TableColumns,
    TableTail,
    Tail,
    Texts,
    number,
    parsed_events,
)
from edgefl.results.run_files import title

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
    slow_paths: dict[str, tuple[int, int]] = field(default_factory=dict)  # edge -> measured, needed
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

    def take_events(
        self,
        events: EventColumns,
        usual: np.ndarray | None = None,
        take: Callable[[Mapping[str, Any]], None] | None = None,
    ) -> None:
        """Take lines of events.jsonl in order; in each, the event before its decisions.

        ``usual``: see ``usual_rows``. ``take`` gets all others, and gives them to ``take_row``.
        """
        if usual is None or take is None:
            usual, take = usual_rows(events, updates_too=True), self.take_row
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
                    self.counters.published(one, float(now_s[place]))
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
            # edges that come back have later rows, too, if the run ended after its latest row
            if (now_s[works] > self.waits_at_s).any():
                self.waits_at_s = None
        self._advance(now_s[-1])

    def take_row(self, row: Mapping[str, Any]) -> None:
        """Take one line, out of the usual course; see ``take_events``."""
        self.counters.take(row)
        self._take_state(row)

    def _take_state(self, row: Mapping[str, Any]) -> None:
        """Take what a row tells about what edges do, and nothing else."""
        self._advance(row.get("t"))
        if "fact" in row:
            self._take_fact(row)
        elif "event" in row:
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
        elif fact == "session_ended":
            self.slow_paths.pop(event["edge"], None)  # the next session measures it again
            if self.edges.get(event["edge"], LEFT).state == "joined":
                self._set(event["edge"], "awaited", None)
        elif fact == "wire_error":
            self.wire_errors += 1
        elif fact == "slow_path":
            self.slow_paths[event["edge"]] = event["measured_bit_s"], event["needed_bit_s"]
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


# ---------------------------------------------------------------------- pace
WINDOW_S = 30.0  # the pace is measured over this time, because it changes as devices come and go
BAR = 20


class Point(NamedTuple):
    """The progress of a run at a wall time."""

    wall_s: float
    emulated_s: float
    versions: int
    updates: int  # received and not discarded


class Pace:
    """The pace from points that are added in order of time; ``line`` shows it to a person."""

    def __init__(self, stop: Stop, started_s: float) -> None:
        self.stop = stop
        self._points: deque[Point] = deque([Point(started_s, 0.0, 0, 0)])

    def start(self, point: Point) -> None:
        """Begin here: what a resumed run did before says nothing about its pace now."""
        self._points = deque([point])

    def take(self, point: Point) -> None:
        """Add a point and drop those older than the window, except the latest of them."""
        self._points.append(point)
        while len(self._points) > 2 and self._points[1].wall_s <= point.wall_s - WINDOW_S:
            self._points.popleft()

    @property
    def updates_per_s(self) -> float:
        """Updates received and not discarded, per wall second."""
        first, last = self._points[0], self._points[-1]
        return (last.updates - first.updates) / max(last.wall_s - first.wall_s, 1e-9)

    @property
    def left_s(self) -> float | None:
        """Wall seconds until the first stop condition at this pace; None without progress."""
        first, last = self._points[0], self._points[-1]
        spent_s = last.wall_s - first.wall_s
        left = [
            max(goal - now, 0.0) / (now - before) * spent_s
            for goal, now, before in (
                (self.stop.emulated_s, last.emulated_s, first.emulated_s),
                (self.stop.versions, last.versions, first.versions),
                (self.stop.updates, last.updates, first.updates),
            )
            if goal is not None and now > before
        ]
        return min(left, default=None)

    @property
    def share(self) -> float:
        """Share of the run that is done, 0 to 1, by the nearest stop condition."""
        last = self._points[-1]
        shares = [
            now / goal
            for goal, now in (
                (self.stop.emulated_s, last.emulated_s),
                (self.stop.versions, last.versions),
                (self.stop.updates, last.updates),
            )
            if goal is not None
        ]
        return min(max(shares, default=0.0), 1.0)

    def bar(self) -> str:
        """Return the share as a bar and as a percentage: "━━━━━━━━━━──────────  50%"."""
        done = round(BAR * self.share)
        return f"{'━' * done}{'─' * (BAR - done)} {self.share:4.0%}"

    def line(self) -> str:
        """Return "123.4 of 1000 s emulated, version 12, 345 updates (23.1/s), 0:01:23 left"."""
        now, left_s = self._points[-1], self.left_s
        parts = [
            f"{now.emulated_s:.1f}{_of(self.stop.emulated_s)} s emulated",
            f"version {now.versions}{_of(self.stop.versions)}",
            f"{now.updates}{_of(self.stop.updates)} updates ({self.updates_per_s:.1f}/s)",
            *([] if left_s is None else [f"{clock(left_s)} left"]),
        ]
        return ", ".join(parts)


def _of(goal: float | None) -> str:
    return "" if goal is None else f" of {goal:g}" if goal < 1e6 else f" of {goal:.0f}"


def clock(seconds: float) -> str:
    """Format seconds as "0:01:23"."""
    minutes, whole = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02d}:{whole:02d}"


# ---------------------------------------------------------------------- the terminal
COLOURS = {
    "lost": "red",
    "sending": "cyan",
    "training": "green",
    "receiving": "blue",
    "idle": "dim",
    "joined": "green",
    "awaited": "yellow",
}


class LiveView:
    """The display of one run; call ``update`` a few times per second and show its result.

    ``edges``: the expected ids, shown before they join. ``speed``: emulated seconds per second of
    the caller's clock. The caller passes its clock as ``clock_s``, so that emulated time advances
    while the run writes nothing. ``stop``: the run's end, for the time left. ``places``: the host
    of each edge, as the user names it. ``score``: what is shown of evaluations. ``resumed``: the
    rows that are there at first are of a run that was broken off, and goes on when its edges come
    back. ``join_timeout_s``: how long the run waits for edges before it begins or goes on.
    ``join``: the command that starts an edge, without the edge's id; "" if that is not the user's
    task.
    """

    def __init__(
        self,
        run_dir: Path,
        edges: list[str] | None = None,
        speed: float = 1.0,
        stop: Stop | None = None,
        places: Mapping[str, str] | None = None,
        score: Score = ACCURACY,
        resumed: bool = False,
        join_timeout_s: float | None = None,
        join: str = "",
    ) -> None:
        self._join_timeout_s, self._join = join_timeout_s, join
        self.pace = None if stop is None else Pace(stop, 0.0)
        self._began, self._resumed = False, resumed
        self._waits_since_s: float | None = None
        self.progress = Progress(
            edges={edge: EdgeStatus() for edge in edges or ()},
            places=places or {},
            score=score,
        )
        self._speed, self._written_s, self._read_at_s = speed, 0.0, 0.0
        self._name = title(run_dir)
        self._events, self._texts = Tail(run_dir / EVENTS), Texts()
        self._links = TableTail(run_dir / LINKS)
        self._metrics = TableTail(run_dir / METRICS)
        self._hosts = TableTail(run_dir / HOSTS)

    @property
    def finished(self) -> bool:
        """Whether the run has written its last line."""
        return self.progress.finished is not None

    def update(self, clock_s: float = 0.0) -> RenderableType:
        """Read new rows and return the screen, which adapts to the terminal's height."""
        self.read(clock_s)
        return _Screen(self._name, self.progress, self.pace, self._waits(clock_s))

    def read(self, clock_s: float = 0.0) -> None:
        """Read new rows of the run directory."""
        progress = self.progress
        progress.take_events(parsed_events(self._events.read_bytes(), self._texts))
        progress.take_links(self._links.read_columns())
        progress.take_metrics(self._metrics.read_new())
        progress.take_hosts(self._hosts.read_new())
        if self._resumed:
            progress.resumes()
            self._resumed = False
        if progress.emulated_s > self._written_s:
            self._written_s, self._read_at_s = progress.emulated_s, clock_s
        stands = progress.waits_at_s is not None  # the clock of a run that waits to go on
        if not progress.waits:
            self._waits_since_s = None
        elif self._waits_since_s is None:
            self._waits_since_s = clock_s
        runs = self._written_s > 0 and not self.finished and not stands
        if stands:
            self._read_at_s = clock_s
        progress.quiet_s = (clock_s - self._read_at_s) * self._speed if runs else 0.0
        if self.pace is not None and (runs or stands):
            self._step(self.pace, clock_s)
            self._began = runs

    def _step(self, pace: Pace, clock_s: float) -> None:
        """Add a point to the pace, which begins with the first rows of a clock that runs."""
        found = self.progress
        point = Point(clock_s, found.now_s, found.version, found.counters.updates_applied)
        if self._began:
            pace.take(point)
        else:
            pace.start(point)

    def _waits(self, clock_s: float) -> str:
        """Say how long the run has waited for which edges, if nothing can happen without them.

        Also say what ends that: the edges' start, or the time.
        """
        progress = self.progress
        if not progress.waits or self._waits_since_s is None:
            return ""
        missing = progress.missing
        counted = f"{len(progress.edges) - len(missing)} of {len(progress.edges)} connected"
        if missing:
            counted += f", missing: {listed(missing)}"
        if progress.begun and progress.waits_at_s is None:
            waited_s, bound = progress.lost_s / self._speed, ""
            counted += "; the run's clock goes on without them"
        else:
            waited_s, bound = clock_s - self._waits_since_s, ""
            if self._join_timeout_s is not None:
                bound = f" ({self._join_timeout_s:g} s at most)"
        again = " to come back" if progress.waits_at_s is not None else ""
        text = f"waiting for edges{again} for {waited_s:.0f} s{bound}: {counted}"
        if self._join and missing:
            text += f"; start those that do not run: {self._join} --id {missing[0]}"
        return text

    def plain(self, clock_s: float = 0.0) -> str:
        """Read new rows and return one line of text, for output that is not a terminal."""
        self.read(clock_s)
        waits = self._waits(clock_s)
        states = ", ".join(f"{n} {state}" for state, n in self.progress.states().items())
        return "  ".join(
            part
            for part in (
                self._name,
                waits,  # first, and without a time left: it must not look like progress
                *_facts(self.progress),
                "" if waits else _left(self.pace),
                *_traffic(self.progress),
                *_hosts(self.progress),
                *_troubles(self.progress),
                states,
            )
            if part
        )


class _Screen:
    def __init__(self, name: str, progress: Progress, pace: Pace | None, waits: str) -> None:
        self._name, self._progress, self._pace, self._waits = name, progress, pace, waits

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        title = Text.assemble((self._name, "bold"), "  ", "  ".join(_facts(self._progress)))
        if self._waits:
            title.append(f"\n{self._waits}", "yellow")
        if self._pace is not None:
            # without a time left while the run waits: it must not look like progress
            title.append(f"\n{self._pace.bar()}  {'' if self._waits else _left(self._pace)}")
        title.append("\n" + "  ".join([*_traffic(self._progress), *_hosts(self._progress)]))
        for line in _troubles(self._progress):
            title.append(f"\n{line}", "red")
        title_lines = len(title.wrap(console, options.max_width))
        yield title
        yield _table(self._progress, (options.height or console.height) - title_lines)


def _left(pace: Pace | None) -> str:
    left_s = None if pace is None else pace.left_s
    return "" if left_s is None else f"{clock(left_s)} left"


def _facts(progress: Progress) -> list[str]:
    accuracy = "-" if progress.accuracy is None else f"{progress.accuracy:.4f}"
    if progress.evaluated not in (None, progress.version):
        accuracy += f" (of version {progress.evaluated})"
    facts = [
        *([f"resumed after {progress.outage_s:.1f} s"] if progress.outage_s is not None else []),
        f"{progress.now_s:.1f} s emulated",
        f"version {progress.version}",
        f"{progress.score.title} {accuracy}",
        progress.updates,
    ]
    return facts if progress.finished is None else [*facts, f"finished: {progress.finished}"]


def _traffic(progress: Progress) -> list[str]:
    rates = progress.rates_bit_s().values()
    up, down = sum(up for up, _ in rates), sum(down for _, down in rates)
    facts = [
        f"up {human_rate(up)}, down {human_rate(down)} (transfers ended in the last"
        f" {RATE_WINDOW_S:g} s)"
    ]
    return [*facts, f"wire errors {progress.wire_errors}"] if progress.wire_errors else facts


def _hosts(progress: Progress) -> list[str]:
    """Return the state of the host, if all edges run on one."""
    if len(progress.hosts) != 1:
        return []
    (host,) = progress.hosts.values()
    degrees = f", {host.temperature_c} °C" if host.temperature_c else ""
    return [f"host cpu {host.cpu_percent} %{degrees}"] if host.cpu_percent else []


def _troubles(progress: Progress) -> list[str]:
    """Return lines about paths that are slower than their links, and about hosts whose processors
    are slowed down now.
    """
    slow = [f"{host.name} ({host.trouble})" for host in progress.hosts.values() if host.trouble]
    paths = [
        f"{edge} ({human_rate(measured)} of {human_rate(needed)})"
        for edge, (measured, needed) in progress.slow_paths.items()
    ]
    return [
        *([f"real paths slower than their links: {listed(paths)}"] if paths else []),
        *([f"slowed down: {listed(slow)}"] if slow else []),
    ]


def _table(progress: Progress, height: int) -> RenderableType:
    """Return a table of all edges, or counts and the busiest edges if not all fit."""
    spare = 2  # the table's heading and the cursor's line
    ids = sorted(progress.edges)
    if len(ids) + spare <= height:
        return _rows(progress, ids)
    counts = Text(f"{len(ids)} edges: ", no_wrap=True, overflow="ellipsis")
    counts.append_text(
        Text(", ").join(
            Text(f"{n} {state}", style=COLOURS[state]) for state, n in progress.states().items()
        )
    )
    ids.sort(key=lambda edge: STATES.index(progress.edges[edge].state))
    room = max(0, height - spare - 1)
    return Group(counts, _rows(progress, sorted(ids[:room]))) if room else counts


def _rows(progress: Progress, ids: list[str]) -> Table:
    shown = Table(box=None, padding=(0, 2, 0, 0), show_edge=False, header_style="dim")
    several = len(progress.hosts) > 1 or bool(progress.places)
    of_hosts = ("host", "cpu %", "°C") if several else ()
    for heading in ("edge", "doing", "task", "since, s", "up", "down", *of_hosts):
        justify: JustifyMethod = "left" if heading in ("edge", "doing", "host") else "right"
        shown.add_column(heading, justify=justify, no_wrap=True)
    rates = progress.rates_bit_s()
    for edge in ids:
        status = progress.edges[edge]
        task = "" if status.task is None else str(status.task)
        shown.add_row(
            edge,
            Text(status.state, style=COLOURS[status.state]),
            task,
            f"{status.since_s:.1f}",
            *map(human_rate, rates.get(edge, (0.0, 0.0))),
            *(_host_cells(progress, edge) if several else ()),
        )
    return shown


def _host_cells(progress: Progress, edge: str) -> tuple[Text, ...]:
    host = progress.host_of(edge)
    name, style = progress.places.get(edge, host.name), "red" if host.trouble else ""
    return tuple(Text(text, style) for text in (name, host.cpu_percent, host.temperature_c))


def human_rate(rate_bit_s: float) -> str:
    """Format a rate in bit/s: 2500000 -> "2.50 Mbit/s"."""
    for unit in ("bit/s", "kbit/s", "Mbit/s"):  # noqa: B007  # it is used behind the loop
        if rate_bit_s < 999.5:
            break
        rate_bit_s /= 1000
    else:
        unit = "Gbit/s"
    digits = 0 if rate_bit_s >= 99.95 or rate_bit_s == 0 else 1 if rate_bit_s >= 9.995 else 2
    return f"{rate_bit_s:.{digits}f} {unit}"
