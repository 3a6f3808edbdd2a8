"""A timeline for ui.perfetto.dev: Chrome trace JSON, with a lane per edge and activity.

The format: "Trace Event Format" of Chromium's catapult project. Perfetto leaves out a slice that
overlaps another one of its thread, and does not show an instant at the begin of a slice of its
thread. So each lane and each kind of fault is a thread of its own, and the instants are, too. Times
are whole microseconds, rounded down, so that neighbours still touch and never overlap.
"""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from edgefl import __version__
from edgefl.config.scores import ACCURACY, SCORES
from edgefl.errors import UserError
from edgefl.plugins.exports.export_format import ExportFormat, file_path
from edgefl.record.files import METRICS
from edgefl.record.tables import GZIP
from edgefl.results.read import read_csv
from edgefl.results.run_files import replace_file
from edgefl.results.summary import evaluations
from edgefl.results.timeline import (
    AWAY,
    COMPUTE,
    DOWNLINK,
    FAULT,
    UPLINK,
    Instant,
    Slice,
    Timeline,
    of_run,
    rates_bit_s,
)

US_PER_S, BIT_PER_MBIT = 1_000_000, 1_000_000
INSTANTS = "events"
# the lanes of an edge from top to bottom; behind them its kinds of faults
ORDER = (COMPUTE, UPLINK, DOWNLINK, INSTANTS, AWAY)
COLOURS = {  # names of Chrome's trace viewer; Perfetto has its own colours
    "training": "good",
    "send": "rail_animation",
    "receive": "rail_load",
    "wait": "grey",
    "idle": "white",
}


@dataclass(slots=True)
class _Process:
    """A coordinator or an edge: threads with numbers, given out as they are needed."""

    name: str
    number: int
    order: int
    threads: dict[str, int] = field(default_factory=dict)

    def named(self) -> Iterator[dict[str, Any]]:
        """Yield the names of the process and of its threads."""
        yield self._meta("process_name", self.number, name=self.name)
        yield self._meta("process_sort_index", self.number, sort_index=self.order)
        for place, lane in enumerate(sorted(self.threads, key=_place)):
            yield self._meta("thread_name", self.threads[lane], name=lane)
            yield self._meta("thread_sort_index", self.threads[lane], sort_index=place)

    def _meta(self, what: str, thread: int, **args: Any) -> dict[str, Any]:
        return {"ph": "M", "name": what, "pid": self.number, "tid": thread, "args": args}


def _place(lane: str) -> tuple[int, str]:
    return (ORDER.index(lane) if lane in ORDER else len(ORDER)), lane


class _Trace:
    """The events of a trace as JSON. Numbers of processes and threads are given out once."""

    def __init__(self) -> None:
        self.pieces: list[bytes] = []
        self._given = 0

    def number(self) -> int:
        self._given += 1
        return self._given

    def take(self, events: Iterable[Mapping[str, Any]]) -> None:
        if piece := orjson.dumps([*events])[1:-1]:  # as a whole: a small one takes 1 kB of memory
            self.pieces.append(piece)

    def whole(self, runs: Mapping[str, Path]) -> bytes:
        about = {"edgefl": __version__, "runs": {name: str(run) for name, run in runs.items()}}
        other = b'"displayTimeUnit":"ms","otherData":%b' % orjson.dumps(about)
        return b'{%b,"traceEvents":[\n%b\n]}\n' % (other, b",\n".join(self.pieces))


def write(runs: Mapping[str, Path], out: str) -> list[str]:
    """Write one trace of all runs; returns its path. UserError if no run has a row yet."""
    path, trace = file_path(out, ".json", ".json.gz"), _Trace()
    for name, run in runs.items():
        found = of_run(run)
        if found.edges:
            prefix = f"{name}: " if len(runs) > 1 else ""
            _add_run(trace, found, read_csv(run / METRICS), prefix)
    if not trace.pieces:
        raise UserError(f"{next(iter(runs.values()))}: nothing to export: no edge has joined yet")
    data = trace.whole(runs)
    if path.suffix == ".gz":
        packer = zlib.compressobj(wbits=GZIP)
        data = packer.compress(data) + packer.flush()
    replace_file(path, data)
    return [str(path)]


def _add_run(
    trace: _Trace, found: Timeline, metrics: Iterable[Mapping[str, str]], prefix: str
) -> None:
    coordinator = _Process(f"{prefix}coordinator", trace.number(), 0)
    trace.take(coordinator.named())
    told, gaps = list(metrics), found.gap_rows()
    points: dict[str, Sequence[tuple[float, float]]] = {
        "model version": found.versions,
        "update staleness": list(zip(gaps["t_s"].tolist(), gaps["versions"].tolist())),
        **{
            f"test {score.title}": evaluations(told, score.name)
            for score in SCORES.values()
            if score is ACCURACY or any(row.get(score.name) for row in told)
        },
    }
    ended = found.slices
    for lane, steps in rates_bit_s(ended, found.repeated).items():
        points[f"{lane}s Mbit/s"] = [(t_s, rate / BIT_PER_MBIT) for t_s, rate in steps]
    for name, values in points.items():
        what, _, of = name.partition(" ")  # Perfetto joins both by a space
        trace.take(
            {"ph": "C", "name": what, "pid": coordinator.number, "ts": _us(t_s)}
            | {"args": {of: value}}
            for t_s, value in values
        )
    slices, instants = defaultdict(list), defaultdict(list)
    for each in (*ended, *_cut_off(found)):
        slices[each.edge].append(each)
    for instant in found.instants:
        instants[instant.edge].append(instant)
    for order, edge in enumerate(found.edges, 1):
        process = _Process(f"{prefix}{edge}", trace.number(), order)
        events = [*_slices(trace, process, sorted(slices[edge], key=_begin))]
        events += _instants(trace, process, instants[edge])
        trace.take([*process.named(), *events])


def _us(t_s: float) -> int:
    """Microseconds, rounded down; a row has nine decimals, which a float may miss by less."""
    return round(t_s * 1_000_000_000) // 1000


def _begin(each: Slice) -> tuple[float, str]:
    return each.begin_s, each.lane


def _cut_off(found: Timeline) -> Iterator[Slice]:
    """What goes on at the last row, up to that moment."""
    for each in found.open_slices():
        if each.begin_s < found.emulated_s:
            yield each._replace(end_s=found.emulated_s)


def _thread(trace: _Trace, process: _Process, lane: str) -> int:
    if lane not in process.threads:
        process.threads[lane] = trace.number()
    return process.threads[lane]


def _slices(trace: _Trace, process: _Process, slices: list[Slice]) -> Iterator[dict[str, Any]]:
    for lane in (COMPUTE, UPLINK, DOWNLINK):
        _thread(trace, process, lane)  # all edges show the same lanes
    for each in slices:
        end_s = each.begin_s if each.end_s is None else each.end_s
        begin_us, end_us = _us(each.begin_s), _us(end_s)
        lane = f"{FAULT}: {each.kind}" if each.lane == FAULT else each.lane
        args: dict[str, Any] = {} if each.task is None else {"task": each.task}
        if each.size_bytes is not None:
            args["bytes"] = each.size_bytes
            if end_s > each.begin_s:
                rate = 8 * each.size_bytes / (end_s - each.begin_s) / BIT_PER_MBIT
                args["Mbit/s"] = round(rate, 6)
        yield {
            "ph": "X",
            "name": each.kind,
            "cat": each.lane,
            "pid": process.number,
            "tid": _thread(trace, process, lane),
            "ts": begin_us,
            "dur": end_us - begin_us,
            **({"cname": COLOURS[each.kind]} if each.kind in COLOURS else {}),
            "args": args,
        }


def _instants(
    trace: _Trace, process: _Process, instants: Iterable[Instant]
) -> Iterator[dict[str, Any]]:
    for each in instants:
        known = {"task": each.task, "version": each.version}
        yield {
            "ph": "i",
            "s": "t",
            "name": each.kind,
            "cat": INSTANTS,
            "pid": process.number,
            "tid": _thread(trace, process, INSTANTS),
            "ts": _us(each.t_s),
            "args": {key: value for key, value in known.items() if value is not None},
        }


FORMAT = ExportFormat(
    out="trace.json",
    view=lambda out: (
        f"open {out} at https://ui.perfetto.dev (it stays on this machine), or in chrome://tracing"
    ),
    write=write,
)
