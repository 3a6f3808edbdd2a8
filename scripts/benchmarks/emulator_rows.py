"""Shared code of the parts of emulator_accuracy.py.

It compares transfers with their closed form, makes rows with goals, and starts child processes that
end with this process.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import IntEnum
from statistics import median

from table import Row, say

MB, MBIT = 1_000_000, 1_000_000
PR_SET_PDEATHSIG, PR_CAPBSET_DROP, CAP_SYS_NICE = 1, 24, 23
FIFO = "SCHED_FIFO"
MANY_LINKS = 100  # from this number of links on, CPU time has a goal
RAW_PIECE_BYTES = 2_500  # 10 ms of 2 Mbit/s: the size of pieces in raw measurements
DECIMALS = 6  # of ms: the resolution of the clock


class Extent(IntEnum):
    """How much to measure. TINY only checks that everything works; its goals mean nothing."""

    TINY = 0
    QUICK = 1
    FULL = 2


@dataclass(frozen=True, slots=True)
class Shot:
    """One transfer: its measured duration, and its duration by the closed form."""

    took_ms: float
    ideal_ms: float

    @property
    def error_ms(self) -> float:
        return self.took_ms - self.ideal_ms

    @property
    def error_percent(self) -> float:
        return 100 * self.error_ms / self.ideal_ms


@dataclass(frozen=True, slots=True)
class Bound:
    """The goals of a set of transfers in ``unit`` ("%" or "ms"); None means no goal."""

    unit: str = "%"
    median: float | None = None
    worst: float | None = None


@dataclass(frozen=True, slots=True)
class Cell:
    """Transfers of ``size`` bytes over ``links`` links at once, ``repeat`` times.

    ``up_only``: in the part "app", downlinks are fast and have no goal.
    """

    goal: str
    rate_mbit_s: float
    size: int
    links: int = 1
    latency_ms: float = 0.0
    repeat: int = 5
    bound: Bound = Bound()
    up_only: bool = False

    @property
    def rate_bit_s(self) -> int:
        return round(self.rate_mbit_s * MBIT)

    @property
    def ideal_ms(self) -> float:
        return ideal_ms(self.size, self.rate_bit_s, self.latency_ms)

    @property
    def name(self) -> str:
        several = f"{self.links} x " if self.links > 1 else ""
        late = f", latency {self.latency_ms:g} ms" if self.latency_ms else ""
        return (
            f"{several}{self.rate_mbit_s:g} Mbit/s{' up' if self.up_only else ''},"
            f" {self.size / MB:g} MB{late}"
        )


def ideal_ms(size_bytes: int, rate_bit_s: int, latency_ms: float = 0.0) -> float:
    """The closed form of a constant rate: bytes * 8 / rate + latency."""
    return 8e3 * size_bytes / rate_bit_s + latency_ms


def offset_and_share(
    ideal: float, median_: tuple[float, float], worst: tuple[float, float]
) -> Bound:
    """Goals of the form "x ms plus y % of the ideal time", in ms."""
    return Bound("ms", *(fixed + share / 100 * ideal for fixed, share in (median_, worst)))


def error_rows(name: str, shots: Sequence[Shot], bound: Bound) -> list[Row]:
    """Rows with the absolute error, median and worst, in the unit of the goal and in the other."""
    percent, ms = (
        [round(shot.error_percent, DECIMALS) for shot in shots],
        [round(shot.error_ms, DECIMALS) for shot in shots],
    )
    judged, other, other_unit = (percent, ms, "ms") if bound.unit == "%" else (ms, percent, "%")
    rows = [
        Row(f"{name}: median error", abs(median(judged)), bound.unit, at_most(bound.median)),
        Row(
            f"{name}: worst of {len(shots)}",
            abs(max(judged, key=abs)),
            bound.unit,
            at_most(bound.worst),
        ),
        Row(f"{name}: median error", abs(median(other)), other_unit),
        Row(f"{name}: worst of {len(shots)}", abs(max(other, key=abs)), other_unit),
    ]
    say(
        f"  {name}: median {median(percent):+.3f} % {median(ms):+.3f} ms, worst"
        f" {max(percent, key=abs):+.3f} % {max(ms, key=abs):+.3f} ms"
    )
    return rows


def wake_rows(name: str, wake_lag_ms: Mapping[str, float | None]) -> list[Row]:
    """G8: the lateness of wake-ups of the pacing thread."""
    return [
        Row(f"{name}: G8, wakes late, {which}", wake_lag_ms[which], "ms")
        for which in ("p50", "p99", "max")
    ]


def at_most(value: float | None) -> str | None:
    return None if value is None else f"<= {value:.4g}"


# ------------------------------------------------------------------ processes
def as_child(priority: bool = True) -> Callable[[], None]:
    """Make a ``preexec_fn`` with which the child ends when this process ends.

    ``priority`` False: the child cannot get real-time priority, even if this process can.
    """
    library = ctypes.CDLL(None, use_errno=True)

    def prepare() -> None:
        library.prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
        if not priority:
            library.prctl(PR_CAPBSET_DROP, CAP_SYS_NICE, 0, 0, 0)

    return prepare


def end(process: subprocess.Popen[str] | subprocess.Popen[bytes], patience_s: float = 10.0) -> None:
    """End the process and wait until it has ended."""
    process.terminate()
    try:
        process.wait(patience_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


@contextmanager
def busy_cores(extent: Extent) -> Iterator[None]:
    """Run a busy loop on each core; none with TINY."""
    burners = [
        subprocess.Popen([sys.executable, "-c", "while True: pass"], preexec_fn=as_child())
        for _ in (os.sched_getaffinity(0) if extent > Extent.TINY else ())
    ]
    try:
        yield
    finally:
        for burner in burners:
            end(burner)


def priorities(extent: Extent) -> tuple[bool, ...]:
    """The settings to measure: with real-time priority, if allowed, and without it."""
    trial = "import os; os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))"
    if extent == Extent.TINY:
        return (False,)
    tried = subprocess.run([sys.executable, "-c", trial], stderr=subprocess.DEVNULL)
    return (False,) if tried.returncode else (True, False)
