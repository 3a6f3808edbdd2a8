"""When devices are there: random or regular patterns, and recorded intervals.

The times in which a target is away are faults in order of time: it stands still meanwhile. All
iterators are plain data, so that a run can be saved and continued. Each user of the times makes its
own iterator; equal ones give the same times.

Recordings are CSV of intervals, or the JSON of FLHetBench and FedScale:

- CSV: rows ``edge,begin_s,end_s``, the intervals in which an edge is there. The period is that of
  the caller, or the largest ``end_s``.
- FLHetBench (https://github.com/Carkham/FLHetBench, data/cached_timers.json): by client
  ``{"isSuccess", "trace_start", "trace_end", "ready_time": [[begin, end], ...]}`` in seconds. A
  client whose recording failed is left out.
- FedScale (https://github.com/SymbioticLab/FedScale, client_behave_trace): by client
  ``{"active": [...], "inactive": [...], "finish_time"}`` in seconds: it is there from active[i] to
  inactive[i]. FedScale publishes a pickle, which is refused: unpickling runs code.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from emulator.errors import BadValue, valid_name
from emulator.faults import Fault
from emulator.plain_text import csv_rows, decoded
from emulator.units import FOREVER, NS_PER_S

AWAY = "freeze"  # the kind of fault: no byte passes, and computing stands still


@dataclass(frozen=True, slots=True)
class Presence:
    """The intervals (begin_ns, end_ns) of a period in which a target is there; then they repeat.

    Intervals are in order of time, do not overlap, and lie in the period.
    """

    there_ns: tuple[tuple[int, int], ...]
    period_ns: int

    @property
    def share(self) -> float:
        """The share of the time in which the target is there."""
        return sum(end - begin for begin, end in self.there_ns) / self.period_ns

    def scaled(self, factor: float) -> Presence:
        """The same with all times multiplied; an interval that becomes empty is left out.

        BadValue if its period becomes too long.
        """
        if not self.period_ns * factor < FOREVER:
            raise BadValue(
                f"availability, scale {factor:g}: makes a period of more than {FOREVER} ns;"
                " expected a smaller one"
            )
        there = tuple(
            (round(begin * factor), round(end * factor))
            for begin, end in self.there_ns
            if round(begin * factor) < round(end * factor)
        )
        return Presence(there, max(1, round(self.period_ns * factor)))

    def later(self, by_ns: int) -> Presence:
        """The same pattern, moved by ``by_ns`` and wrapped."""
        by_ns %= self.period_ns
        moved: list[tuple[int, int]] = []
        for begin, end in self.there_ns:
            begin, end = begin + by_ns, end + by_ns
            if begin >= self.period_ns:
                moved.append((begin - self.period_ns, end - self.period_ns))
            elif end > self.period_ns:
                moved += [(begin, self.period_ns), (0, end - self.period_ns)]
            else:
                moved.append((begin, end))
        return Presence(tuple(sorted(moved)), self.period_ns)


def presence(intervals: Sequence[tuple[float, float]], period_s: float, name: str) -> Presence:
    """Make a Presence of intervals (begin_s, end_s), in any order; BadValue if they overlap.

    Empty intervals are left out, and intervals that touch become one.
    """
    if not 0 < period_s * NS_PER_S < FOREVER:
        raise BadValue(f"{name}: expected a period above 0 s, found {period_s:g} s")
    there: list[tuple[int, int]] = []
    for begin_s, end_s in sorted(intervals):
        if not 0 <= begin_s <= end_s <= period_s:
            raise BadValue(
                f"{name}: interval {begin_s:g} to {end_s:g} s: expected times in order, from 0 to"
                f" {period_s:g} s"
            )
        begin_ns, end_ns = round(begin_s * NS_PER_S), round(end_s * NS_PER_S)
        if begin_ns == end_ns:
            continue
        if there and begin_ns < there[-1][1]:
            raise BadValue(
                f"{name}: interval {begin_s:g} to {end_s:g} s overlaps the one before, which ends"
                f" at {there[-1][1] / NS_PER_S:g} s"
            )
        if there and begin_ns == there[-1][1]:
            there[-1] = there[-1][0], end_ns
        else:
            there.append((begin_ns, end_ns))
    return Presence(tuple(there), round(period_s * NS_PER_S))


def periodic_absences(target: str, pattern: Presence) -> Sequence[Fault] | Iterator[Fault]:
    """The absences of ``pattern``, without end; a list if the target is always or never there."""
    if not pattern.there_ns:
        return [Fault(0, target, AWAY, FOREVER)]
    if pattern.share == 1:
        return []
    return PeriodicAbsences(target, pattern)


@dataclass(slots=True)
class PeriodicAbsences:
    """The iterator of ``periodic_absences``. The first absence is from 0 to the first interval."""

    target: str
    pattern: Presence
    _count: int = 0  # intervals that were passed

    def __iter__(self) -> PeriodicAbsences:
        return self

    def __next__(self) -> Fault:
        while True:
            at_ns, until_ns = self._end(self._count - 1), self._begin(self._count)
            self._count += 1
            if until_ns >= FOREVER:
                raise StopIteration
            if at_ns < until_ns:
                return Fault(at_ns, self.target, AWAY, until_ns - at_ns)

    def _begin(self, count: int) -> int:
        lap, place = divmod(count, len(self.pattern.there_ns))
        return lap * self.pattern.period_ns + self.pattern.there_ns[place][0]

    def _end(self, count: int) -> int:
        if count < 0:
            return 0
        lap, place = divmod(count, len(self.pattern.there_ns))
        return lap * self.pattern.period_ns + self.pattern.there_ns[place][1]


@dataclass(slots=True)
class ExponentialAbsences:
    """Exponential times there (mean ``there_ns``) and away (mean ``away_ns``), in turn.

    The first state is drawn with the share of each in the long run. Each drawn time is at least
    1 ns. No other code may draw from ``rng``.
    """

    target: str
    rng: np.random.Generator
    there_ns: int
    away_ns: int
    _at_ns: int = 0
    _begun: bool = field(default=False)

    def __iter__(self) -> ExponentialAbsences:
        return self

    def __next__(self) -> Fault:
        away_first = False
        if not self._begun:
            self._begun = True
            away_first = self.rng.random() < self.away_ns / (self.there_ns + self.away_ns)
        if not away_first:
            self._at_ns += max(1, round(self.rng.exponential(self.there_ns)))
        length_ns = max(1, round(self.rng.exponential(self.away_ns)))
        at_ns = self._at_ns
        self._at_ns += length_ns
        if at_ns >= FOREVER:
            raise StopIteration
        return Fault(at_ns, self.target, AWAY, length_ns)


FORMATS = ("csv", "flhetbench", "fedscale")
COLUMNS = ["edge", "begin_s", "end_s"]
PICKLE = (
    "it is a pickle, which can run code and is never read. If you trust it, make JSON of it once:"
    " python -c \"import json, pickle; json.dump(pickle.load(open(IN, 'rb')), open(OUT, 'w'))\""
)


def recorded_presence(
    path: Path, format_name: str | None = None, period_s: float | None = None
) -> dict[str, Presence]:
    """Read the intervals of each client of a file, in the file's order.

    ``period_s``: only for CSV. BadValue names the file and the client or the line.
    """
    name = f"availability {path}"
    try:
        data = path.read_bytes()
    except OSError as error:
        raise BadValue(f"{name}: cannot be read ({error.strerror})") from None
    if data[:1] == b"\x80":  # no UTF-8 text begins with it
        raise BadValue(f"{name}: {PICKLE}")
    text = decoded(data, name)
    chosen = format_name or ("csv" if path.suffix.lower() == ".csv" else None)
    if chosen is not None:
        valid_name("format", chosen, FORMATS)
    if chosen == "csv":
        return _csv(text, name, period_s)
    if period_s is not None:
        raise BadValue(f"{name}: a period is only for CSV; this file has its own")
    return _json(text, name, chosen)


def _csv(text: str, name: str, period_s: float | None) -> dict[str, Presence]:
    rows: dict[str, list[tuple[float, float]]] = {}
    for number, cells in csv_rows(text, name):
        row = [cell.strip() for cell in cells]
        if not any(row) or row == COLUMNS:
            continue
        where = f"{name}, line {number}"
        try:
            edge, begin_s, end_s = row[0], float(row[1]), float(row[2])
        except (IndexError, ValueError):
            raise BadValue(
                f"{where}: expected edge,begin_s,end_s such as e000,0,3600, found"
                f" {','.join(row)[:60]!r}"
            ) from None
        if len(row) != len(COLUMNS) or not edge or not 0 <= begin_s <= end_s < float("inf"):
            raise BadValue(
                f"{where}: expected an edge and two times in order, found {','.join(row)[:60]!r}"
            )
        rows.setdefault(edge, []).append((begin_s, end_s))
    if not rows:
        raise BadValue(f"{name}: empty")
    last_s = max(end_s for intervals in rows.values() for _, end_s in intervals)
    return {
        edge: presence(intervals, period_s or last_s, f"{name}, edge {edge}")
        for edge, intervals in rows.items()
    }


def _json(text: str, name: str, format_name: str | None) -> dict[str, Presence]:
    try:
        clients = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadValue(f"{name}: expected JSON ({error})") from None
    if not isinstance(clients, dict) or not clients:
        raise BadValue(f"{name}: expected an object of clients")
    first = next(iter(clients.values()))
    keys = first.keys() if isinstance(first, dict) else set()
    known = "flhetbench" if "ready_time" in keys else "fedscale" if "active" in keys else None
    chosen = format_name or known
    if chosen is None:
        raise BadValue(
            f"{name}: expected clients with ready_time (FLHetBench) or active (FedScale)"
        )
    read = _flhetbench if chosen == "flhetbench" else _fedscale
    found: dict[str, Presence] = {}
    for client, values in clients.items():
        where = f"{name}, client {client}"
        try:
            pattern = read(values, where)
        except (KeyError, OverflowError, TypeError, ValueError) as error:
            if isinstance(error, BadValue):
                raise
            raise BadValue(f"{where}: not a client of {chosen}: {error!r}") from None
        if pattern is not None:
            found[client] = pattern
    if not found:
        raise BadValue(f"{name}: no client has a usable recording")
    return found


def _flhetbench(client: Mapping[str, Any], name: str) -> Presence | None:
    if not client["isSuccess"]:
        return None
    start_s, end_s = float(client["trace_start"]), float(client["trace_end"])
    intervals = [(begin - start_s, end - start_s) for begin, end in client["ready_time"]]
    return presence(intervals, end_s - start_s, name)


def _fedscale(client: Mapping[str, Any], name: str) -> Presence:
    active, inactive = client["active"], client["inactive"]
    if len(active) != len(inactive):
        raise BadValue(
            f"{name}: expected as many inactive times as active ones ({len(active)}), found"
            f" {len(inactive)}"
        )
    return presence(list(zip(active, inactive)), float(client["finish_time"]), name)
