"""One run's files, followed while they grow, and the messages about them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import orjson

from edgefl.errors import UserError
from edgefl.live.link_bins import CapacityAt
from edgefl.live.run_facts import RunFacts
from edgefl.live.run_model import RunModel, Seen
from edgefl.record import files
from edgefl.results.columns import TableReader, parsed_events
from edgefl.results.pace import Pace, Point
from edgefl.results.progress import RATE_WINDOW_S
from edgefl.results.rundirs import read_config
from edgefl.results.summary import BROKEN_OFF, number
from edgefl.results.tail import TableTail, Tail

STEP_BYTES = 1 << 20  # of each file in one step, so that a long run needs little memory
SILENT_S = 30.0  # without a new row: the run was killed, or is very slow
WAITING, RUNNING, FINISHED, INTERRUPTED, SILENT = (
    "waiting",
    "running",
    "finished",
    "interrupted",
    "silent",
)
FOLLOWED = (files.EVENTS, files.LINKS, files.METRICS)


class RunFeed:
    """Follows one run directory.

    ``capacity_of`` makes the capacity of its links from the directory. If the run begins anew, or
    is resumed at an earlier moment, so does the feed: ``generation`` rises.
    """

    def __init__(self, run: Path, capacity_of: Callable[[Path], CapacityAt]) -> None:
        self.run, self._capacity_of = run, capacity_of
        self.generation = 0
        self.state = WAITING
        self.trouble = ""  # why its files cannot be read
        self._begin()

    def _begin(self) -> None:
        self.generation += 1
        self._config = self._mark()
        self._capacity: CapacityAt | None = None  # made when it is needed: it may read traces
        self.model = RunModel(RunFacts.of(self.run, read_config(self.run)), self._capacity_at)
        self._events = Tail(self.run / files.EVENTS)
        self._moves = {
            name: TableReader(self.run / name, self.model.texts)
            for name in (files.SLOTS, files.LINKS)
        }
        self._tables = {name: TableTail(self.run / name) for name in (files.METRICS, files.HOSTS)}
        self._pace: Pace | None = None
        self._read_at_s = 0.0
        self._summary_mark: object = None
        self._told = -1  # changes at the last news

    def _capacity_at(self, way: str, at_s: float) -> float | None:
        self._capacity = self._capacity or self._capacity_of(self.run)
        return self._capacity(way, at_s)

    # ------------------------------------------------------------------ reading
    def read(self, clock_s: float) -> bool:
        """Read the next rows; whether more are there already. ``clock_s``: Unix time."""
        if self._mark() != self._config:
            self._begin()
        try:
            more = self._step(clock_s)
        except (UserError, OSError) as error:  # a damaged part, or no permission
            self.trouble, more = str(error), False
        readers: list[Tail | TableReader | TableTail] = [self._events]
        readers += [*self._moves.values(), *self._tables.values()]
        if any(reader.anew for reader in readers):
            self._begin()
            return True
        self._take_summary()
        self.state = self._state(clock_s)
        if not more and self.state != RUNNING:
            self.model.no_more_rows()
        return more

    def _step(self, clock_s: float) -> bool:
        model, before = self.model, self.model.progress.emulated_s
        chunk = self._events.read_bytes(STEP_BYTES)
        count = chunk.count(b"\n")
        if chunk:
            model.take_events(parsed_events(chunk, model.texts))
        for (name, reader), take in zip(self._moves.items(), (model.take_slots, model.take_links)):
            if chunk and name in model.ahead:
                continue  # its rows would wait in memory for the events
            if (moves := reader.read_new(STEP_BYTES)).count:
                take(moves)
                count += moves.count
        for table, put in zip(self._tables.values(), (model.take_metrics, model.take_hosts)):
            if rows := table.read_new(STEP_BYTES):
                put(rows)
                count += len(rows)
        if model.progress.emulated_s > before:
            self._read_at_s = clock_s
        self._keep_pace(clock_s)
        return count > 0

    def _keep_pace(self, clock_s: float) -> None:
        found, stop = self.model.progress, self.model.facts.stop
        if stop is None:
            return
        point = Point(clock_s, found.now_s, found.version, found.counters.updates_applied)
        if self._pace is None:
            if found.emulated_s > 0:
                self._pace = Pace(stop, clock_s)
                self._pace.start(point)
        else:
            self._pace.take(point)

    def _take_summary(self) -> None:
        """Read summary.json if it has changed."""
        path = self.run / files.SUMMARY
        mark = _mark_of(path)
        if mark == self._summary_mark:
            return
        self._summary_mark = mark
        try:
            found = orjson.loads(path.read_bytes())
        except (OSError, orjson.JSONDecodeError):
            found = {}
        self.model.health.take_summary(found if isinstance(found, dict) else {})

    def _mark(self) -> object:
        """Changes if a run begins anew in this directory."""
        return _mark_of(self.run / files.CONFIG)

    def look(self, clock_s: float) -> None:
        """Find out the state of a run of which nothing was read yet."""
        if self.model.changes == 0:
            self._take_summary()
            self.state = self._state(clock_s)

    def _state(self, clock_s: float) -> str:
        finished = self.model.progress.finished or self.model.health.finished
        if finished is not None:
            return INTERRUPTED if finished in BROKEN_OFF else FINISHED
        if self._written_s() == 0:
            return WAITING
        return RUNNING if clock_s - self._written_s() < SILENT_S else SILENT

    def _written_s(self) -> float:
        """The Unix time of the last row; 0 if there is none."""
        times = [0.0]
        for name in FOLLOWED:
            try:
                found = (self.run / name).stat()
            except OSError:
                continue
            times += [found.st_mtime] if found.st_size else []
        return max(times)

    # ------------------------------------------------------------------ messages
    def news(self, seen: Seen, clock_s: float) -> dict[str, Any] | None:
        """Return the next message for a reader, see docs/reference/live.md; None without news."""
        full = seen.generation != self.generation
        if full:
            seen.generation, seen.totals = self.generation, {}
        found = self.model.news(seen, full)
        state = self.state if seen.totals.get("state") != hash(self.state) else None
        seen.totals["state"] = hash(self.state)
        if not (full or found or state):
            return None
        finished = self.model.progress.finished
        return {
            "full": full,
            **self._time(clock_s),
            "state": self.state,
            **({} if finished is None else {"finished": finished}),
            **({"trouble": self.trouble} if self.trouble else {}),
            "head": self._head(),
            **found,
        }

    def window(self, begin_s: float, end_s: float, most: int) -> dict[str, Any]:
        """Return the timeline between two emulated seconds, with at most ``most`` slices."""
        marks = [mark for mark in self.model.marks.since(0) if begin_s <= mark[1] <= end_s]
        return {
            "from": begin_s,
            "to": end_s,
            **self.model.slices.window(begin_s, end_s, most),
            "open": self.model.open_slices(),
            "marks": marks[-most:],
        }

    def _time(self, clock_s: float) -> Mapping[str, float]:
        """Emulated seconds now, and how many pass in a real second."""
        progress, facts = self.model.progress, self.model.facts
        on_the_wall = self.state == RUNNING and facts.clock != "virtual"
        quiet_s = (clock_s - self._read_at_s) * facts.speed if on_the_wall else 0.0
        progress.quiet_s = max(quiet_s, 0.0)
        return {"now_s": round(progress.now_s, 6), "rate": facts.speed if on_the_wall else 0.0}

    def _head(self) -> dict[str, Any]:
        progress, pace = self.model.progress, self._pace
        counted, running = progress.counters, self.state == RUNNING
        rates = progress.rates_bit_s().values()
        return {
            "version": progress.version,
            "accuracy": progress.accuracy,
            "evaluated": progress.evaluated,
            "received": counted.updates_received,
            "applied": counted.updates_applied,
            "discarded": counted.discards.total(),
            "waiting": len(counted.waiting),
            **{f"bytes_{way}": sent for way, sent in self.model.link_bins.bytes.items()},
            "share": None if pace is None else round(pace.share, 4),
            "left_s": None if pace is None or not running else number(pace.left_s),
            "updates_per_s": None if pace is None or not running else pace.updates_per_s,
            "outage_s": progress.outage_s,
            "up_bit_s": round(sum(up for up, _ in rates)),
            "down_bit_s": round(sum(down for _, down in rates)),
            "rates_over_s": RATE_WINDOW_S,
            "strange_rows": self.model.strange_rows,
        }


def _mark_of(path: Path) -> object:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size
