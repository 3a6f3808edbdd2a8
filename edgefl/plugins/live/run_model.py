"""What the page shows of one run, from its config and its rows; does no input or output.

A reader has a ``Seen`` and gets what is new since. docs/reference/live.md describes the messages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from edgefl.config.experiment import Edges, Stop
from edgefl.config.scores import SCORES, Score, score_of, target_in
from edgefl.errors import listed, printable
from edgefl.plugins.live.series import (
    CapacityAt,
    LatestItems,
    LinkBins,
    Slices,
    ThinnedItems,
)
from edgefl.record import files
from edgefl.results.age import AgesNow
from edgefl.results.differences import in_short
from edgefl.results.families.dissemination import DEVICE, RequestsSoFar
from edgefl.results.families.slots import OF_ROUND
from edgefl.results.progress import EdgeStatus, Progress, usual_rows
from edgefl.results.read import MISSING, EventColumns, TableColumns, Texts, number, tuples
from edgefl.results.run_files import SEED
from edgefl.results.summary import BROKEN_OFF, INTERRUPTED, LIMITS, interruption, verdict
from edgefl.results.timeline import LANES, Timeline
from emulator.fidelity import Quantiles
from emulator.units import NS_PER_S

MS_PER_S = 1000.0


@dataclass(frozen=True, slots=True)
class RunFacts:
    """Facts about a run, as far as its config.toml is there and has them.

    ``speed``: emulated seconds per real second. ``slot_s``: of a TDMA channel, else None.
    ``config``: the part that the page gets.
    """

    experiment: str
    strategy: str
    seed: int | None
    clock: str
    edges: tuple[str, ...]
    speed: float
    slot_s: float | None
    score: Score
    target: float | None
    stop: Stop | None
    config: Mapping[str, Any]

    @classmethod
    def of(cls, run: Path, config: Mapping[str, Any]) -> RunFacts:
        """``config``: the tables of config.toml, whose values nothing has checked."""
        facts, medium = _table(config, "run"), _table(config, "medium")
        slot_ms = number(medium.get("slot_ms")) if medium.get("kind") == "tdma" else None
        speed, evaluation = number(config.get("speed")), _table(config, "evaluation")
        score = score_of(evaluation)
        strategy = run.parent.name if SEED.fullmatch(run.name) else run.name
        stop = _stop(_table(config, "stop"))
        return cls(
            experiment=str(config.get("name", "")),
            strategy=str(facts.get("strategy") or strategy),
            seed=int(found) if (found := number(config.get("seed"))) is not None else None,
            clock=str(facts.get("clock", "")),
            edges=_edges(_table(config, "edges")),
            speed=1.0 if speed is None else speed,
            slot_s=None if slot_ms is None else slot_ms / MS_PER_S,
            score=score,
            target=number(target_in(evaluation)),
            stop=stop,
            config={
                "setup": in_short(config),
                "groups": _groups(config.get("groups")),
                "score": score.title,
                "target": number(target_in(evaluation)),
                "stop": None if stop is None else stop.model_dump(),
                "medium": medium.get("kind"),
                "slot_s": None if slot_ms is None else slot_ms / MS_PER_S,
                "speed": 1.0 if speed is None else speed,
                "transfer_lag_ms": number(_table(config, "fidelity").get("transfer_lag_ms")),
            },
        )

    def reached(self, point: list[float | None]) -> tuple[float, float | None] | None:
        """Return when, and after how many bytes, if this evaluation has reached the target.

        ``point``: see ``metric_points``.
        """
        at_s, value, sent = point[1], point[5], point[6:]
        if at_s is None or value is None or self.target is None:
            return None
        if not self.score.reaches(value, self.target):
            return None
        return at_s, None if None in sent else sum(each or 0.0 for each in sent)


def _table(config: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = config.get(name)
    return found if isinstance(found, dict) else {}


def _groups(tables: Any) -> list[list[Any]]:
    """The name of each group and how many edges it has; the groups take the edges in order."""
    found = [
        [table.get("name"), table.get("count")]
        for table in (tables if isinstance(tables, list) else ())
        if isinstance(table, dict)
    ]
    whole = all(isinstance(name, str) and isinstance(count, int) for name, count in found)
    return found if whole else []


def _edges(table: Mapping[str, Any]) -> tuple[str, ...]:
    """The ids of all edges; () if the table is that of another version of edgefl."""
    try:
        return tuple(Edges(**table).ids()) if table else ()
    except ValueError:
        return ()


def _stop(table: Mapping[str, Any]) -> Stop | None:
    try:
        return Stop(**table) if table else None
    except ValueError:
        return None


INFO, GOOD, WARN, BAD = "info", "good", "warn", "bad"
LONGEST = 300  # characters of a line
# Facts that happen for every task: the timeline shows them.
QUIET = {"task_started", "update_ready", "edge_waits", "edge_host", "duplicate", "request_too_late"}
COLUMNS = ("t", "fact", "version")

Row = Mapping[str, Any]
Line = tuple[str, str]  # kind, text


class Log:
    """Turns rows into lines; it knows whether the run has begun."""

    def __init__(self) -> None:
        self._joined = 0
        self._began = False

    def lines(self, row: Row) -> Iterator[Line]:
        """Return the lines about one row, mostly none."""
        for kind, text in self._of(row):
            yield kind, printable(text, LONGEST)

    def _of(self, row: Row) -> Iterator[Line]:
        if "fact" in row:
            yield from _fact(row["fact"], row)
        elif "event" in row:
            yield from self._event(row["event"], row)
        for decision in row.get("decisions", ()):
            if decision.get("do") == "discard":
                yield WARN, f"update of task {decision['task']} not used: {decision['reason']}"

    def _event(self, kind: str, row: Row) -> Iterator[Line]:
        match kind:
            case "edge_joined" if not self._began:
                self._joined += 1
            case "edge_joined":
                yield GOOD, f"{row['edge']} joined, with {row['samples']} samples"
            case "run_started":
                self._began = True
                yield INFO, f"the run begins with {self._joined} edges"
            case "edge_lost":
                yield BAD, f"{row['edge']} is lost"
            case "task_closed":
                yield WARN, f"task {row['task']} of {row['edge']} is closed: {row['reason']}"
            case "job_failed":
                yield BAD, f"the server's job {row['name']} failed: {row['reason']}"


def _fact(fact: str, row: Row) -> Iterator[Line]:
    match fact:
        case _ if fact in QUIET:
            return
        case "finished":
            reason = row.get("reason", "")
            broken = reason in BROKEN_OFF
            words = f"finished: {LIMITS.get(reason, reason)}"
            yield (WARN, interruption(reason)) if broken else (GOOD, words)
        case "resumed":
            yield INFO, f"resumed {row.get('outage_s', 0):g} s after the break"
        case "training_failed":
            yield BAD, f"training of {row['edge']} failed: {row['reason']}"
        case "task_timed_out":
            yield WARN, f"task {row['task']} of {row['edge']} took too long ({row['phase']})"
        case "discarded":
            yield WARN, f"update of {row['edge']} (task {row['task']}) refused: {row['reason']}"
        case "diverged":
            yield BAD, f"version {row['version']} is not finite: the training diverged"
        case "edges_missing":
            yield WARN, f"did not join before the start: {listed(row['edges'])}"
        case "session_ended":
            yield INFO, f"{row['edge']}: {said('session ended', row, ('edge',))}"
        case "fault":
            what = {key: value for key, value in row.items() if key not in ("kind", "edge")}
            yield WARN, said(f"injected fault: {row['kind']} of {row['edge']}", what)
        case _:
            yield WARN, said(str(fact).replace("_", " "), row)


def said(what: str, row: Row, without: tuple[str, ...] = ()) -> str:
    """Return ``what`` and the other values of a row: "injected fault: cut of e003: for 14 s"."""
    rest = [
        f"{key.removesuffix('_s')} {value:g} s"
        if key.endswith("_s") and isinstance(value, int | float)
        else f"{key.replace('_', ' ')} {value}"
        for key, value in row.items()
        if key not in COLUMNS and key not in without and value not in (None, [], "")
    ]
    return f"{what}: {', '.join(rest)}" if rest else what


MOST_POINTS, MOST_NAMES, MOST_SLOTS, MOST_ROUNDS = 2000, 24, 5000, 2000


class Methods:
    """Numbers that strategies report, by name, and the use of TDMA slots.

    ``place_of``: the index of an edge on the page.
    """

    def __init__(self) -> None:
        self.learned: dict[str, ThinnedItems[list[Any]]] = {}
        self.refresh: LatestItems[list[Any]] = LatestItems(MOST_POINTS)
        self.rounds: LatestItems[dict[str, Any]] = LatestItems(MOST_ROUNDS)
        self.slots: LatestItems[list[Any]] = LatestItems(MOST_SLOTS)
        self._requests = RequestsSoFar()  # of open tasks

    def take(self, row: Row, place_of: Mapping[str, int], slot_s: float | None) -> None:
        """Take a row of events.jsonl."""
        decisions = row.get("decisions", ())
        self._requests.take(row)
        if row.get("event") == "task_closed":
            self._requests.by_task.pop(row["task"], None)
        reports = [each["values"] for each in decisions if each.get("do") == "report"]
        for values in reports:
            if OF_ROUND in values:
                self.rounds.add(dict(values))
        if slot_s is not None:
            for slot in _granted(decisions, slot_s, place_of):
                self.slots.add(slot)
        if row.get("event") != "update_arrived" or not isinstance(row.get("numbers"), dict):
            return
        edge, numbers = place_of.get(row["edge"], -1), row["numbers"]
        merged = self._requests.has_merged(row["task"])
        asked = self._requests.by_task.pop(row["task"], ())
        values = {
            name: value
            for values in reports
            if OF_ROUND not in values
            for name, value in values.items()
        }
        if merged:
            values |= {name: numbers[name] for name in DEVICE if name in numbers}
        for name, value in values.items():
            self._point(name, row["t"], value, edge)
        if asked:
            point = number(numbers.get("refresh_point"))
            self.refresh.add([row["t"], edge, point, asked[-1].outcome.value])

    @property
    def asked(self) -> bool:
        """Whether an open task has asked for a fresher model."""
        return bool(self._requests.by_task)

    def take_slots(self, rows: TableColumns, place_of: Mapping[str, int]) -> None:
        """Take rows of slots.csv."""
        begin_s, end_s = rows.get("begins_s"), rows.get("ends_s")
        there = np.flatnonzero(~(np.isnan(begin_s) | np.isnan(end_s)))
        latest, names = there[-self.slots.most :], rows.texts.all
        texts = (rows.get(name)[latest].tolist() for name in ("edge", "direction", "kind"))
        times = begin_s[latest].tolist(), end_s[latest].tolist()
        found = [
            [begin, end, place_of.get(names[edge], -1), names[way], names[kind]]
            for begin, end, edge, way, kind in zip(*times, *texts)
        ]
        self.slots.extend(found, dropped=len(there) - len(latest))

    def _point(self, name: str, t: float, value: Any, edge: int) -> None:
        if name not in self.learned and len(self.learned) == MOST_NAMES:
            return
        if (finite := number(value)) is not None:
            self.learned.setdefault(name, ThinnedItems(MOST_POINTS)).add([t, finite, edge])


def _granted(
    decisions: Iterable[Row], slot_s: float, place_of: Mapping[str, int]
) -> Iterator[list[Any]]:
    """The slots that a strategy gives out: of an uplink to one edge, of a broadcast to all (-1)."""
    for decision in decisions:
        if decision.get("do") == "grant" and decision.get("slots"):
            slots, edge, way = decision["slots"], place_of.get(decision["edge"], -1), "up"
        elif decision.get("do") in ("assign", "push") and decision.get("broadcast"):
            slots, edge, way = decision["broadcast"], -1, "down"
        else:
            continue
        begin_s, end_s = round(slots[0] * slot_s, 9), round((slots[-1] + 1) * slot_s, 9)
        yield [begin_s, end_s, edge, way, "granted"]


MOST_LOADS = 600


class Health:
    """Lag of transfers and load of hosts during the run; the verdict after it."""

    def __init__(self) -> None:
        self.changed = 0  # rises with every change
        self._lags_ns = Quantiles()  # of transfers, after the moment that the emulation gave them
        self.cpu: LatestItems[list[float]] = LatestItems(MOST_LOADS)
        self._machines: list[str] = []
        self._waited: dict[str, tuple[float, float]] = {}  # edge -> ran s, waited s, last report
        self._waiting: dict[str, float] = {}  # edge -> share of its time without a core
        self._memory: dict[str, float] = {}  # edge -> bytes
        self._summary: Mapping[str, Any] = {}

    def take_links(self, rows: TableColumns) -> None:
        """Take rows of links.csv."""
        lags_s = rows.get("finished_s") - rows.get("scheduled_s")
        lags_s = lags_s[~np.isnan(lags_s)]
        lags, counts = np.unique(np.rint(lags_s * NS_PER_S).astype(np.int64), return_counts=True)
        for lag_ns, count in zip(lags.tolist(), counts.tolist()):
            self._lags_ns.add(lag_ns, count)
        self.changed += 1

    def take_hosts(self, rows: Iterable[Mapping[str, str]]) -> None:
        """Take rows of hosts.csv."""
        for row in rows:
            self.changed += 1
            edge, machine = row.get("edge", ""), row.get("machine", "")
            if machine not in self._machines:
                self._machines.append(machine)
            t, cpu = number(row.get("emulated_s")), number(row.get("cpu_percent"))
            if t is not None and cpu is not None:
                self.cpu.add([t, self._machines.index(machine), cpu])
            if (memory := number(row.get("rss_bytes"))) is not None:
                self._memory[edge] = memory
            ran, waited = number(row.get("ran_s")), number(row.get("waited_s"))
            if ran is not None and waited is not None:
                self._note_waiting(edge, ran, waited)

    def take_summary(self, summary: Mapping[str, Any]) -> None:
        """Take summary.json; {} as long as there is none."""
        if summary != self._summary:
            self._summary = summary
            self.changed += 1

    @property
    def finished(self) -> str | None:
        """The reason of the run's end; None as long as there is no summary."""
        return self._summary.get("finished")

    def _section(self, name: str, kind: Any, of: Mapping[str, Any] | None = None) -> Any:
        """A part of the summary; an empty one if it has another type."""
        found = (self._summary if of is None else of).get(name)
        return found if isinstance(found, kind) else kind()

    def whole(self, progress: Progress) -> dict[str, Any]:
        """Return all of it; ``progress`` knows the hosts and their edges."""
        found = self._section("fidelity", dict)
        return {
            "verdict": self._verdict(),
            "reasons": list(self._section("reasons", list, found)),
            "warnings": list(self._section("warnings", list)),
            "transfer_lag_ms": found.get("transfer_lag_ms") or self._lag_ms(),
            "hosts": [self._host(machine, progress) for machine in self._machines],
            "cpu": self.cpu.since(0),
        }

    def _lag_ms(self) -> dict[str, float] | None:
        """The lag of the whole run's transfers; None without one."""
        lags = self._lags_ns
        if not lags.count:
            return None
        found = {"p50": lags.percentile(50), "p99": lags.percentile(99), "max": lags.max}
        return {name: round((lag or 0) * 1000 / NS_PER_S, 3) for name, lag in found.items()}

    def _verdict(self) -> str | None:
        """The verdict of a run that has ended; None as long as there is no summary."""
        if self.finished is None:
            return None
        return INTERRUPTED if self.finished in BROKEN_OFF else verdict(self._summary)

    def _note_waiting(self, edge: str, ran: float, waited: float) -> None:
        ran_before, waited_before = self._waited.get(edge, (0.0, 0.0))
        self._waited[edge] = ran, waited
        both = ran - ran_before + waited - waited_before
        if both > 0 and waited >= waited_before:
            self._waiting[edge] = (waited - waited_before) / both

    def _host(self, machine: str, progress: Progress) -> dict[str, Any]:
        host = progress.hosts[machine]
        edges = [edge for edge, its in progress.machines.items() if its == machine]
        waiting = [self._waiting[edge] for edge in edges if edge in self._waiting]
        memory = [self._memory[edge] for edge in edges if edge in self._memory]
        return {
            "host": host.name,
            "cpu_percent": number(host.cpu_percent),
            "temperature_c": number(host.temperature_c),
            "throttled": host.throttled if host.throttled == "no" else host.trouble,
            "waiting_share": round(max(waiting), 4) if waiting else None,
            "rss_bytes": max(memory, default=None),
            "edges": len(edges),
        }


MOST_METRICS, MOST_GAPS, MOST_MARKS, MOST_LINES = 4000, 4000, 5000, 500
KEPT_TASKS = 64  # beginnings of tasks per edge, to find the tasks of transfers
COUNTERS = ("version", "emulated_s", "wall_s", "train_loss", "test_loss")  # then the score
BYTES = ("bytes_up", "bytes_down")
CURVES = (*SCORES, "test_loss", "train_loss")

STRANGE = (KeyError, TypeError, ValueError, AttributeError)  # from a row of another version
UNPLACED = -2  # an edge that has no index on the page yet
LANE_NUMBERS = {lane: place for place, lane in enumerate(LANES)}


@dataclass(slots=True)
class Seen:
    """How much of a run a reader has got: totals by the name of a part."""

    generation: int = 0
    totals: dict[str, int] = field(default_factory=dict)

    def new(self, name: str, total: int) -> bool:
        """Note that the reader gets all of a part now; False if it had it."""
        before = self.totals.get(name, -1)
        self.totals[name] = total
        return before != total


class RunModel:
    """The reducers of one run."""

    def __init__(self, facts: RunFacts, capacity_at: CapacityAt) -> None:
        self.facts = facts
        self.edges: dict[str, int] = {edge: at for at, edge in enumerate(facts.edges)}
        edges = {edge: EdgeStatus() for edge in facts.edges}
        self.progress = Progress(edges=edges, score=facts.score)
        self.texts = Texts()
        self.timeline = Timeline(KEPT_TASKS, self.texts)
        self.slices, self.link_bins, self.health = (
            Slices(self.texts),
            LinkBins(capacity_at),
            Health(),
        )
        self.methods, self.words = Methods(), Log()
        self.ages: AgesNow | None = AgesNow()  # None: rows of another version
        self.metrics: ThinnedItems[list[float | None]] = ThinnedItems(MOST_METRICS)
        self.gaps: ThinnedItems[list[Any]] = ThinnedItems(MOST_GAPS)
        self.marks: LatestItems[list[Any]] = LatestItems(MOST_MARKS)
        self.log: LatestItems[list[Any]] = LatestItems(MOST_LINES)
        self.latest: dict[str, float] = {}  # CURVES of the latest evaluation
        self._evaluated_s = -1.0
        self.strange_rows = 0  # of another version of edgefl, or damaged: they are left out
        self.changes = 0
        self._states: dict[str, tuple[tuple[Any, ...], int]] = {}  # edge -> state, change
        self._places = np.zeros(0, np.int32)  # the index of an edge on the page, by its number
        self.reached: tuple[float, float | None] | None = None  # see RunFacts.reached
        self._latest_s = {files.LINKS: 0.0, files.SLOTS: 0.0}  # of the rows of these tables

    # ------------------------------------------------------------------ rows
    @property
    def ahead(self) -> list[str]:
        """The tables whose latest rows are later than the events so far."""
        return [name for name, t_s in self._latest_s.items() if t_s > self.timeline.emulated_s]

    def take_events(self, events: EventColumns) -> None:
        """Take lines of events.jsonl, in order; they have ``lines``, and ``texts`` of this run."""
        self.changes += events.count
        number = self.texts.number
        asked = events.rows.texts_of("event") == number("fresh_requested")
        asked |= events.rows.texts_of("fact") == number("request_too_late")
        usual = usual_rows(events, updates_too=not (self.methods.asked or asked.any()))
        self.progress.take_events(events, usual, self._take_row)
        self._into_timeline(events)
        self._age(lambda ages: ages.take_events(events))
        self._drain()

    def _take_row(self, row: Row) -> None:
        try:
            self.progress.take_row(row)
            self.methods.take(row, self.edges, self.facts.slot_s)
            for kind, text in self.words.lines(row):
                self.log.add([row["t"], kind, text])
        except STRANGE:
            self.strange_rows += 1

    def _into_timeline(self, events: EventColumns) -> None:
        try:
            self.timeline.take_events(events)
        except STRANGE:  # nothing was taken: find the row
            rows = [events.row(place) for place in range(events.count)]
            if len(rows) == 1:
                self.strange_rows += 1
                return
            for half in (rows[: len(rows) // 2], rows[len(rows) // 2 :]):
                part = EventColumns.of(half, self.texts)
                part.lines = [orjson.dumps(row) for row in half]
                self._into_timeline(part)

    def take_links(self, rows: TableColumns) -> None:
        """Take rows of links.csv."""
        self._latest_s[files.LINKS] = _last(rows.get("finished_s"))
        self.progress.take_links(rows)
        self.timeline.take_links(rows)
        self._age(lambda ages: ages.take_links(rows))
        self.link_bins.take(rows)
        self.health.take_links(rows)
        self._drain()

    def _age(self, take: Callable[[AgesNow], None]) -> None:
        try:
            if self.ages is not None:
                take(self.ages)
        except STRANGE:
            self.ages = None

    def take_slots(self, rows: TableColumns) -> None:
        """Take rows of slots.csv, before the rows of links.csv about the same transfers."""
        self._latest_s[files.SLOTS] = _last(rows.get("ends_s"))
        self.timeline.take_slots(rows)
        self.methods.take_slots(rows, self.edges)

    def take_metrics(self, rows: list[dict[str, str]]) -> None:
        """Take rows of metrics.csv."""
        self.progress.take_metrics(rows)
        for row in rows:
            at_s = number(row.get("emulated_s"))
            if at_s is not None and at_s >= self._evaluated_s:  # rows may be out of order
                self._evaluated_s = at_s
                values = {name: number(row.get(name)) for name in CURVES}
                self.latest = {name: value for name, value in values.items() if value is not None}
        for point in metric_points(rows, self.facts.score):
            self.metrics.add(point)
            self._target(point)
            self.changes += 1

    def take_hosts(self, rows: list[dict[str, str]]) -> None:
        """Take rows of hosts.csv."""
        self.progress.take_hosts(rows)
        self.health.take_hosts(rows)

    def no_more_rows(self) -> None:
        """The files end here, for now: what waits for other rows is taken as it is."""
        self.timeline.no_more_rows()
        self._drain()

    def _target(self, point: list[float | None]) -> None:
        found = self.facts.reached(point)
        if found is None:
            return
        if self.reached is None:
            score, version = self.facts.score.title, int(point[0] or 0)
            text = f"{score} {self.facts.target:g} reached with version {version}"
            self.log.add([found[0], GOOD, text])
        if self.reached is None or found[0] < self.reached[0]:  # rows may be out of order
            self.reached = found

    def _drain(self) -> None:
        """Take over what the timeline has found, so that it does not grow."""
        slices, instants, gaps, versions = self.timeline.drain()
        for rows in (slices, instants, gaps):
            rows["edge"] = self._placed(rows["edge"])
        self.slices.extend(slices)
        kinds, latest = self.texts.all, slice(-self.marks.most, None)
        marks = [
            [kinds[kind], t_s, place, _version(version)]
            for place, kind, t_s, _, version in tuples(instants[latest])
        ]
        self.marks.extend(marks, dropped=len(instants) - len(marks))
        marks = [["publish", t_s, -1, _version(version)] for t_s, version in versions[latest]]
        self.marks.extend(marks, dropped=len(versions) - len(marks))
        self.gaps.extend(map(list, tuples(gaps)))
        for edge, status in self.progress.edges.items():
            state = (status.state, status.task, status.since_s)
            if edge not in self._states or self._states[edge][0] != state:
                self._place(edge)
                self._states[edge] = (state, self.changes)

    def _place(self, edge: str) -> int:
        """The index of an edge on the page; -1 for no single edge."""
        return self.edges.setdefault(edge, len(self.edges)) if edge not in ("", "*") else -1

    def _placed(self, edges: np.ndarray) -> np.ndarray:
        """The indices of many edges on the page."""
        more = np.full(len(self.texts) - len(self._places), UNPLACED, np.int32)
        places = self._places = np.concatenate([self._places, more])
        names = self.texts.all if (places[edges] == UNPLACED).any() else []
        for edge in dict.fromkeys(edges[places[edges] == UNPLACED].tolist()):
            places[edge] = self._place(names[edge])  # in the order in which they come first
        placed: np.ndarray = places[edges]
        return placed

    # ------------------------------------------------------------------ news
    def open_slices(self) -> list[list[Any]]:
        """What goes on, in the form of slices without an end."""
        return [
            [self._place(one.edge), LANE_NUMBERS[one.lane], one.kind, *one[3:]]
            for one in self.timeline.open_slices()
        ]

    def news(self, seen: Seen, full: bool) -> dict[str, Any]:
        """Return all parts with something new, and note them in ``seen``."""
        found: dict[str, Any] = {}
        if full:
            found["config"] = self.facts.config
        names = list(self.edges)
        since = seen.totals.get("edges", 0)
        if seen.new("edges", len(names)):
            found["edges" if full else "edges_added"] = names[since:]
        before = seen.totals.get("states", -1)
        if seen.new("states", self.changes):
            states = self._states.items()
            found["states"] = [[self.edges[e], *s] for e, (s, at) in states if at > before]
            found["open"] = self.open_slices()
        self._lists(found, seen)
        self._slices(found, seen, full)
        self._wholes(found, seen)
        return {key: value for key, value in found.items() if value not in ([], {})}

    def _lists(self, found: dict[str, Any], seen: Seen) -> None:
        """Add what is appended."""
        lists: dict[str, LatestItems[Any] | ThinnedItems[Any]] = {
            "metrics": self.metrics,
            "staleness": self.gaps,
            "marks": self.marks,
            "log": self.log,
            "slots": self.methods.slots,
            "rounds": self.methods.rounds,
            "refresh": self.methods.refresh,
        }
        for name, series in lists.items():
            found[name] = _since(series, seen, name)
        found["metrics"] = sorted(found["metrics"], key=lambda point: point[1])
        learned = {
            name: _since(series, seen, f"learned {name}")
            for name, series in self.methods.learned.items()
        }
        found["learned"] = {name: points for name, points in learned.items() if points}

    def _slices(self, found: dict[str, Any], seen: Seen, full: bool) -> None:
        since = seen.totals.get("slices", 0)
        if not seen.new("slices", self.slices.total):
            return
        if full:
            found["slices"], found["slices_from"] = self.slices.newest()
        elif (new := self.slices.since(since)) is None:
            found["slices_gap"] = True
        else:
            found["slices"] = new

    def _wholes(self, found: dict[str, Any], seen: Seen) -> None:
        """Add what replaces its predecessor."""
        parts: dict[str, tuple[int, Callable[[], Any]]] = {
            "links": (
                self.link_bins.changed,
                lambda: self.link_bins.whole(self.progress.emulated_s),
            ),
            "fidelity": (self.health.changed, lambda: self.health.whole(self.progress)),
            "staleness_counts": (self.gaps.total, self._histogram),
        }
        for name, (total, whole) in parts.items():
            if seen.new(name, total):
                found[name] = whole()

    def _histogram(self) -> dict[str, int]:
        return {str(gap): n for gap, n in sorted(self.progress.counters.staleness.items())}


def metric_points(rows: Iterable[Row], score: Score) -> Iterator[list[float | None]]:
    """Yield what the page gets of rows of metrics.csv: COUNTERS, the score, then BYTES."""
    for row in rows:
        point = [number(row.get(name)) for name in (*COUNTERS, score.name, *BYTES)]
        if point[1] is not None:
            yield point


def _last(values: np.ndarray) -> float:
    return float(np.nan_to_num(values[-1:]).sum())


def _version(version: int) -> str:
    return "" if version == MISSING else f"version {version}"


def _since(series: LatestItems[Any] | ThinnedItems[Any], seen: Seen, name: str) -> list[Any]:
    since = seen.totals.get(name, 0)
    return series.since(since) if seen.new(name, series.total) else []
