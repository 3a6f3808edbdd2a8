"""The in-app network: a real coordinator process, and edges that return each model at once.

The links are shaped.
"""

from __future__ import annotations

import csv
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import orjson
import psutil
from emulator_rows import (
    FIFO,
    MANY_LINKS,
    RAW_PIECE_BYTES,
    Bound,
    Cell,
    Extent,
    Shot,
    as_child,
    at_most,
    busy_cores,
    end,
    error_rows,
    ideal_ms,
    offset_and_share,
    priorities,
    wake_rows,
)
from protocol import BARE, JOINING_S, ended, experiment, fork_edge, listening, prepared
from reference import cpu_s, raw_rounds
from table import TIMES, Row, say

from edgefl.clocks.ipc import Channel
from edgefl.clocks.processes import ONE_THREAD
from edgefl.config.experiment import Experiment
from edgefl.errors import UserError
from emulator.proxy.proxy import PROCESS

WATCH = Path(__file__).with_name("emulator_watch.py")
LOOK_S, PATIENCE_S = 0.01, 20.0
RAW_ROUNDS = 5
CPU_GOAL = "<= 8"  # factor over raw ZeroMQ; 5.4 to 7.1 were measured
FAST_MBIT_S = 1000.0
TINY = Cell("G4", 20, 50_000, repeat=1)
G1, G4_MANY = Bound("%", 0.1, 0.5), Bound("%", 0.1, 0.5)
G3, G4 = Bound("%", 0.1, 0.1), Bound("%", 0.5)
BUSY_NORMAL, BUSY_FIFO = Bound("%", 2.0, 2.0), Bound("%", 0.3, 0.3)


@dataclass(frozen=True, slots=True)
class Seen:
    """The results of one run.

    These are the rows of links.csv, notes of each transfer and arrival, the fidelity verdict, and
    the CPU seconds of the coordinator during the transfers, which lasted ``lasted_s``.
    """

    links: list[dict[str, str]]
    transfers: list[dict[str, Any]]
    arrivals: dict[int, list[tuple[int, int]]]  # transfer -> (bytes in all, emulated ns)
    fidelity: dict[str, Any]
    cpu_s: float
    lasted_s: float

    @property
    def priority(self) -> str:
        return self.fidelity["host"]["coordinator_priority"]


class AppNetwork:
    """The part "app" of the benchmark: its cells, and a count over all of them."""

    def __init__(self, extent: Extent, pacing: str) -> None:
        self.extent, self.quick, self.pacing = extent, extent < Extent.FULL, pacing
        self.ahead = 0

    def rows(self) -> Iterator[Row]:
        for cell in self._cells():
            yield from self.cell_rows(f"{cell.goal} in-app {cell.name}", cell)
        yield self.ahead_row("idle")

    def busy_rows(self) -> Iterator[Row]:
        """G5, with and without real-time priority; other rows have no goal here."""
        seconds = Cell("G5", 10, 5_000_000, repeat=1 if self.quick else 2, up_only=self.quick)
        if self.extent == Extent.TINY:
            seconds = replace(TINY, goal="G5")
        with busy_cores(self.extent):
            for priority in priorities(self.extent):
                named = FIFO if priority else "normal priority"
                cell = replace(seconds, bound=BUSY_FIFO if priority else BUSY_NORMAL)
                yield from self.cell_rows(
                    f"G5 in-app, cores busy, {named}: {cell.name}", cell, priority=priority
                )
            for cell in (
                []
                if self.quick
                else [Cell("", 100, 1_000_000), Cell("", 2, 250_000, links=20, repeat=1)]
            ):
                yield from self.cell_rows(f"in-app, cores busy: {cell.name}", cell)
        yield self.ahead_row("cores busy")

    def cell_rows(self, name: str, cell: Cell, priority: bool = True) -> list[Row]:
        seen = measure(cell, priority, {"network": {"pacing": self.pacing}})
        rows = [
            *error_rows(name, shots(cell, seen), cell.bound),
            *self._arrival_rows(name, cell, seen),
        ]
        if self.pacing != PROCESS:
            pacers = seen.fidelity["pacing"]
            rows.append(Row(f"{name}: transfers that the kernel paced", pacers["kernel"]))
        if cell.links > 1:
            rows += self._cpu_rows(name, cell, seen)
        if cell.links > 1 or cell.goal == "G5":
            rows += wake_rows(name, seen.fidelity["wake_lag_ms"])
        self.ahead += seen.fidelity["ahead_of_curve"]
        return rows

    def _cpu_rows(self, name: str, cell: Cell, seen: Seen) -> list[Row]:
        raw = raw_rounds(cell.links, cell.size, RAW_ROUNDS, RAW_PIECE_BYTES)
        judged = cell.links >= MANY_LINKS and cell.bound.median
        return [
            Row(f"{name}: coordinator CPU", 100 * seen.cpu_s / seen.lasted_s, "% of a core"),
            Row(
                f"{name}: coordinator CPU / raw ZeroMQ",
                seen.cpu_s / (cell.repeat * raw.cpu_s),
                TIMES,
                CPU_GOAL if judged else None,
            ),
        ]

    def ahead_row(self, when: str) -> Row:
        count, self.ahead = self.ahead, 0
        return Row(
            f"in-app, {when}: arrivals that the run itself found ahead of the window",
            count,
            "",
            "<= 0",
        )

    def _arrival_rows(self, name: str, cell: Cell, seen: Seen) -> list[Row]:
        """Compare bytes at the receiver with the closed form.

        The window is at most a quarter of the transfer, and what leaves at once (a piece, or a
        burst of the kernel) may exceed it. The transfer that is worst by this bound is told.
        """
        found: list[tuple[float, float]] = []  # (furthest, allowed), ms
        judged = [
            transfer for transfer in seen.transfers if _is_judged(cell, transfer["direction"])
        ]
        for transfer in judged:
            piece_ms = ideal_ms(transfer["piece"] + transfer["meta"], cell.rate_bit_s)
            window_ms = min(
                transfer["window_ns"] / 1e6,
                max(ideal_ms(transfer["size"] // 4, cell.rate_bit_s), piece_ms),
            )
            allowed_ms = window_ms + max(piece_ms, transfer["at_once_ns"] / 1e6)
            found += [
                (
                    ideal_ms(size, cell.rate_bit_s, cell.latency_ms)
                    - (at_ns - transfer["offered_ns"]) / 1e6,
                    allowed_ms,
                )
                for size, at_ns in seen.arrivals[transfer["number"]]
            ]
        furthest_ms, allowed_ms = max(found, key=lambda pair: pair[0] - pair[1])
        leads_ms = [
            ideal_ms(t["size"], cell.rate_bit_s, cell.latency_ms)
            - (t["last_ns"] - t["offered_ns"]) / 1e6
            for t in judged
        ]
        return [
            Row(f"{name}: lead of the last byte, most", max(0.0, *leads_ms), "ms"),
            Row(
                f"{name}: arrivals ahead of the curve, most", furthest_ms, "ms", at_most(allowed_ms)
            ),
        ]

    def _cells(self) -> list[Cell]:
        if self.extent == Extent.TINY:
            return [replace(TINY, links=2, bound=G4_MANY)]
        repeat = 2 if self.quick else 5
        small = [Cell("G1", 10, 1_000_000, repeat=repeat, bound=G1)]
        if not self.quick:
            small = [
                Cell("G1", 1, 62_500, bound=G1),
                Cell("G1", 2, 250_000, bound=G1),
                *small,
                Cell("G1", 10, 1_000_000, latency_ms=30.0, bound=G1),
            ]
        for size in (250_000, 1_000_000) if self.quick else (250_000, 1_000_000, 10_000_000):
            cell = Cell("G2", 100, size, repeat=5)
            small.append(
                Cell(
                    "G2",
                    100,
                    size,
                    repeat=5,
                    bound=offset_and_share(cell.ideal_ms, (0.5, 0.1), (3.0, 0.5)),
                )
            )
        few, many = (
            Cell("G4", 2, 250_000, links=20, repeat=1, bound=G4),
            Cell("G4", 2, 1_000_000, links=100, repeat=1, bound=G4_MANY),
        )
        drift = Cell("G3", 10, 10_000_000, repeat=1, bound=G3, up_only=self.quick)
        if self.quick:
            return [*small, drift, few, Cell("G4", 2, 250_000, links=100, repeat=1, bound=G4_MANY)]
        return [*small, drift, few, Cell("G4", 10, 1_000_000, links=20, repeat=2, bound=G4), many]


def shots(cell: Cell, seen: Seen) -> list[Shot]:
    """Times from offer to max(last byte, due), from links.csv."""
    return [
        Shot(
            1e3 * (float(row["finished_s"]) - float(row["offered_s"])),
            ideal_ms(int(row["bytes"]), cell.rate_bit_s, cell.latency_ms),
        )
        for row in seen.links
        if _is_judged(cell, row["direction"])
    ]


def _is_judged(cell: Cell, direction: str) -> bool:
    return direction == "up" or not cell.up_only


def measure(cell: Cell, priority: bool = True, more: Mapping[str, Any] | None = None) -> Seen:
    """Run ``cell.repeat`` rounds; in each, every link carries a model down and up again.

    ``more``: further sections of the config.
    """
    down_mbit_s = FAST_MBIT_S if cell.up_only else float(cell.rate_mbit_s)
    links = {
        "kind": "emulated",
        "up_mbit_s": float(cell.rate_mbit_s),
        "down_mbit_s": down_mbit_s,
        "latency_ms": cell.latency_ms,
    }
    config = Experiment.model_validate(
        experiment(cell.links, cell.repeat, BARE, links).model_dump() | dict(more or {})
    )
    say(f"in-app: {cell.name}, {cell.repeat} rounds")
    with tempfile.TemporaryDirectory(prefix="bench-emulator-") as folder:
        return _run(
            config,
            cell.size // 4,
            Path(folder),
            priority,
            PATIENCE_S + cell.repeat * cell.links * cell.ideal_ms / 250,
        )


def _run(config: Experiment, elements: int, base: Path, priority: bool, patience_s: float) -> Seen:
    layout = prepared(base, elements)
    with _coordinator(base, priority) as (control, process), _edges() as children:
        port = listening(control, config, base)
        names = config.edges.ids()
        children += [fork_edge(name, port, config, layout) for name in names[:-1]]
        time.sleep(JOINING_S if children else 0)
        children.append(fork_edge(names[-1], port, config, layout))
        message, samples = _until_told(control, psutil.Process(process.pid), patience_s)
        fidelity = ended(message, control).summary["fidelity"]
        process.wait()
    notes = orjson.loads((base / "notes.json").read_bytes())
    with (base / "out" / "links.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    arrivals: dict[int, list[tuple[int, int]]] = {
        transfer["number"]: [] for transfer in notes["transfers"]
    }
    for number, size, at_ns in notes["arrivals"]:
        arrivals.setdefault(number, []).append((size, at_ns))
    return Seen(
        rows,
        notes["transfers"],
        arrivals,
        fidelity,
        *_used(samples, max(float(row["finished_s"]) for row in rows)),
    )


@contextmanager
def _coordinator(base: Path, priority: bool) -> Iterator[tuple[Channel, subprocess.Popen[bytes]]]:
    control, theirs = Channel.pair()
    command = [sys.executable, str(WATCH), str(theirs.fileno()), str(base / "notes.json")]
    process = subprocess.Popen(
        command,
        pass_fds=[theirs.fileno()],
        env=os.environ | ONE_THREAD,
        preexec_fn=as_child(priority),
    )
    theirs.close()
    try:
        yield control, process
    finally:
        end(process)
        control.close()


@contextmanager
def _edges() -> Iterator[list[int]]:
    """The pids of forked edges, which end when their coordinator tells them.

    After an error they are killed.
    """
    children: list[int] = []
    try:
        yield children
    except BaseException:
        for pid in children:
            os.kill(pid, signal.SIGKILL)
        raise
    finally:
        for pid in children:
            os.waitpid(pid, 0)


def _until_told(
    control: Channel, process: psutil.Process, patience_s: float
) -> tuple[Any, list[tuple[float, float]]]:
    """Return the coordinator's last message, and samples of (moment, CPU seconds) until then.

    UserError if there is no message for ``patience_s``.
    """
    samples: list[tuple[float, float]] = []
    until_s = time.monotonic() + patience_s
    while (message := control.receive(timeout_s=LOOK_S)) is None:
        samples.append((time.monotonic(), cpu_s(process)))
        if time.monotonic() > until_s:
            process.send_signal(signal.SIGABRT)  # with PYTHONFAULTHANDLER=1 it prints its stack
            raise UserError(
                f"the run has not ended within {patience_s:.0f} s, and used {samples[-1][1]:.1f} s"
                " of CPU"
            )
    return message, samples


def _used(samples: list[tuple[float, float]], last_s: float) -> tuple[float, float]:
    """Return (CPU seconds, seconds) of the last ``last_s`` seconds: the time of the transfers."""
    kept = [sample for sample in samples if sample[0] >= samples[-1][0] - last_s]
    (began_s, before_s), (ended_s, after_s) = kept[0], kept[-1]
    return after_s - before_s, max(ended_s - began_s, LOOK_S)
