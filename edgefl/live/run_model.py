"""What the page shows of one run, from its rows; does no input or output.

A reader has a ``Seen`` and gets what is new since. docs/reference/live.md describes the messages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import orjson

from edgefl.config.scores import Score
from edgefl.live.health import Health
from edgefl.live.link_bins import CapacityAt, LinkBins
from edgefl.live.log_lines import GOOD, Log
from edgefl.live.methods import Methods
from edgefl.live.run_facts import RunFacts
from edgefl.live.series import LatestItems, ThinnedItems
from edgefl.live.slices import Slices
from edgefl.record import files
from edgefl.results.columns import MISSING, EventColumns, TableColumns, Texts
from edgefl.results.intervals import LANES
from edgefl.results.progress import EdgeStatus, Progress, usual_rows
from edgefl.results.summary import number
from edgefl.results.timeline import Timeline

MOST_METRICS, MOST_GAPS, MOST_MARKS, MOST_LINES = 4000, 4000, 5000, 500
KEPT_TASKS = 64  # beginnings of tasks per edge, to find the tasks of transfers
COUNTERS = ("version", "emulated_s", "wall_s", "train_loss", "test_loss")  # then the score
BYTES = ("bytes_up", "bytes_down")

Row = Mapping[str, Any]
STRANGE = (KeyError, TypeError, ValueError, AttributeError)  # from a row of another version
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
        self.metrics: ThinnedItems[list[float | None]] = ThinnedItems(MOST_METRICS)
        self.gaps: ThinnedItems[list[Any]] = ThinnedItems(MOST_GAPS)
        self.marks: LatestItems[list[Any]] = LatestItems(MOST_MARKS)
        self.log: LatestItems[list[Any]] = LatestItems(MOST_LINES)
        self.strange_rows = 0  # of another version of edgefl, or damaged: they are left out
        self.changes = 0
        self._states: dict[str, tuple[tuple[Any, ...], int]] = {}  # edge -> state, change
        self._target_reached = False
        self._reached = {files.LINKS: 0.0, files.SLOTS: 0.0}  # seconds of their latest rows

    # ------------------------------------------------------------------ rows
    @property
    def ahead(self) -> list[str]:
        """The tables whose latest rows are later than the events so far."""
        return [name for name, t_s in self._reached.items() if t_s > self.timeline.emulated_s]

    def take_events(self, events: EventColumns) -> None:
        """Take lines of events.jsonl, in order; they have ``lines``, and ``texts`` of this run."""
        self.changes += events.count
        number = self.texts.number
        asked = events.rows.texts_of("event") == number("fresh_requested")
        asked |= events.rows.texts_of("fact") == number("request_too_late")
        usual = usual_rows(events, updates_too=not (self.methods.asked or asked.any()))
        self.progress.take_many(events, usual, self._take_row)
        self._into_timeline(events)
        self._drain()

    def _take_row(self, row: Row) -> None:
        try:
            self.progress.take_events((row,))
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
        self._reached[files.LINKS] = _last(rows.get("finished_s"))
        self.progress.take_link_columns(rows)
        self.timeline.take_links(rows)
        self.link_bins.take(rows)
        self.health.take_links(rows)
        self._drain()

    def take_slots(self, rows: TableColumns) -> None:
        """Take rows of slots.csv, before the rows of links.csv about the same transfers."""
        self._reached[files.SLOTS] = _last(rows.get("ends_s"))
        self.timeline.take_slots(rows)
        self.methods.take_slots(rows, self.edges)

    def take_metrics(self, rows: list[dict[str, str]]) -> None:
        """Take rows of metrics.csv."""
        self.progress.take_metrics(rows)
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
        target, score, value = self.facts.target, self.facts.score, point[5]
        if target is not None and value is not None and score.reaches(value, target):
            if not self._target_reached:
                text = f"{score.title} {target:g} reached with version {int(point[0] or 0)}"
                self.log.add([point[1], GOOD, text])
            self._target_reached = True

    def _drain(self) -> None:
        """Take over what the timeline has found, so that it does not grow."""
        slices, instants, gaps, versions = self.timeline.drain()
        self.slices.extend(slices._replace(edge=self._placed(slices.edge)))
        places, kinds = self._placed(instants.edge), self.texts.all
        latest = slice(-self.marks.most, None)
        columns = instants.kind, instants.t_s, places, instants.version
        marks = [
            [kinds[kind], t_s, place, _version(version)]
            for kind, t_s, place, version in zip(*(each[latest].tolist() for each in columns))
        ]
        self.marks.extend(marks, dropped=len(places) - len(marks))
        marks = [["publish", t_s, -1, _version(version)] for t_s, version in versions[latest]]
        self.marks.extend(marks, dropped=len(versions) - len(marks))
        of_gaps = gaps.t_s, self._placed(gaps.edge), gaps.versions
        self.gaps.extend([*map(list, zip(*(each.tolist() for each in of_gaps)))])
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
        there, first, of_all = np.unique(edges, return_index=True, return_inverse=True)
        names, places = self.texts.all, np.zeros(len(there), np.int32)
        for at in np.argsort(first).tolist():  # a new one gets its place when it comes first
            places[at] = self._place(names[there[at]])
        return places[of_all]

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
