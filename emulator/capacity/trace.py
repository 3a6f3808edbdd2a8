"""A capacity from a recorded rate, repeated without end.

mahimahi's format: one line per opportunity to carry 1500 bytes, with its moment in whole ms. The
last line is also the period. An opportunity at ms t is served evenly over the millisecond that ends
at t; k of them make k x 12 Mbit/s. So at every whole ms exactly the bytes of the file have been
carried, and no byte is early by more than 1 ms. An opportunity at 0 belongs to the end of the
previous period, so the first period does not have it.

CSV ``seconds,bit_s``: the rate of a row holds until the next row. A last row without a rate ends
the trace. Without such a row, the last rate holds for as long as the one before it, as in a
recording with a row every second: rows at 0, 13 and 15 s have a period of 17 s.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from operator import itemgetter
from pathlib import Path
from typing import Literal

import numpy as np

from emulator.capacity.rates import MAX_PERIOD_NS, Cycle
from emulator.errors import BadValue
from emulator.plain_text import read_text
from emulator.units import FOREVER, NS_PER_S, seconds_text

Start = Literal["run", "first_byte"]
OPPORTUNITY_BYTES = 1500
MS = NS_PER_S // 1000
DEAD_LIMIT_NS = NS_PER_S
"""A longer time without service causes a warning, unless the caller gives another limit."""


class Trace:
    """A capacity of ``steps`` (rate_bit_s, length_ns), repeated without end.

    ``name`` is for messages, and ``warnings`` are for the user. ``last_assumed``: the file does not
    give the length of the last step. With ``start`` "run" the trace begins at moment 0. With
    "first_byte" it begins at the first moment of a query: when a link plans its first transfer.
    """

    def __init__(
        self,
        steps: Iterable[tuple[int, int]],
        name: str = "trace",
        start: Start = "run",
        dead_limit_ns: int = DEAD_LIMIT_NS,
        last_assumed: bool = False,
    ) -> None:
        rates_bit_s, lengths_ns = zip(*steps, strict=True) if (steps := list(steps)) else ((), ())
        if not rates_bit_s:
            raise BadValue(f"{name}: empty")
        if (
            min(lengths_ns) <= 0
            or min(rates_bit_s) < 0
            or max(rates_bit_s) >= FOREVER
            or sum(lengths_ns) > MAX_PERIOD_NS
        ):
            raise BadValue(
                f"{name}: expected steps longer than 0, rates of 0 bit/s or more, and a period of"
                f" at most {MAX_PERIOD_NS} ns"
            )
        if not any(rates_bit_s):
            raise BadValue(f"{name}: all rates are 0")
        self.name, self.start = name, start
        self._assumed_ns = lengths_ns[-1] if last_assumed else None
        starts_ns = np.cumsum([0, *lengths_ns[:-1]], dtype=np.int64)
        self._cycle = Cycle(0, sum(lengths_ns), starts_ns, rates_bit_s)
        self._begun = start == "run"
        dead_at_ns, self.dead_ns = max(self.silences, default=(0, 0), key=itemgetter(1))
        self.warnings: tuple[str, ...] = ()
        if self.dead_ns > dead_limit_ns:
            silent = (
                f"nothing for {seconds_text(self.dead_ns)} s from {seconds_text(dead_at_ns)} s on"
            )
            self.warnings = (f"{name}: {silent} (more than {seconds_text(dead_limit_ns)} s)",)

    @property
    def period_ns(self) -> int:
        return self._cycle.period_ns

    @property
    def repeats(self) -> str:
        """A text with the period, and its reason if the file does not give it."""
        said = f"repeats every {self.period_ns / NS_PER_S:.10g} s"
        if self._assumed_ns is None:
            return said
        return (
            f"{said}: its last row lasts {self._assumed_ns / NS_PER_S:.10g} s, like the row before"
            " (a row with a time and no rate would end it)"
        )

    @property
    def silences(self) -> list[tuple[int, int]]:
        """(begin_ns, length_ns) of each time without service in a period.

        One that crosses the end of the period begins before the end.
        """
        return _silences(self._cycle)

    @property
    def mean_bit_s(self) -> float:
        """The mean rate over a period."""
        return self._cycle.work / self._cycle.period_ns

    def segment(self, t_ns: int) -> tuple[int, int]:
        return self.cycle(t_ns).segment(t_ns)

    def cycle(self, t_ns: int) -> Cycle:
        """One period; the first call begins a trace with ``start`` "first_byte" at ``t_ns``."""
        if not self._begun:
            self._begun = True
            self._cycle = self._cycle.moved(t_ns)
        return self._cycle


def read_trace(path: Path, start: Start = "run", dead_limit_ns: int = DEAD_LIMIT_NS) -> Trace:
    """Read a trace from a file: CSV if its name ends in .csv, otherwise mahimahi's format.

    BadValue names the file and the line.
    """
    name = f"trace {path}"
    try:
        lines = read_text(path, name).splitlines()
    except OSError as error:
        raise BadValue(f"{name}: cannot be read ({error.strerror})") from None
    if path.suffix.lower() != ".csv":
        return Trace(mahimahi_steps(lines, name), name, start, dead_limit_ns)
    rows = _csv_rows(lines, name)
    return Trace(_between(rows), name, start, dead_limit_ns, last_assumed=rows[-1][1] is not None)


def mahimahi_steps(lines: Iterable[str], name: str = "trace") -> list[tuple[int, int]]:
    """Parse a trace in mahimahi's format to steps; blank lines are ignored."""
    chances: Counter[int] = Counter()
    before = 0
    for number, line in enumerate(lines, 1):
        text = line.strip()
        if not text:
            continue
        if not (text.isascii() and text.isdigit() and len(text) <= 13):
            raise BadValue(
                f"{name}, line {number}: {text[:40]!r}: expected whole milliseconds, such as 12"
                " (CSV files end in .csv)"
            )
        if int(text) < before:
            raise BadValue(
                f"{name}, line {number}: {text} ms comes after {before} ms: expected moments in"
                " order of time"
            )
        before = int(text)
        chances[before] += 1
    if not chances:
        raise BadValue(f"{name}: empty")
    if before == 0:
        raise BadValue(f"{name}: ends at 0 ms: expected a last moment above 0, which is the period")
    chances[before] += chances.pop(0, 0)
    return _opportunities(chances)


def _opportunities(chances: Counter[int]) -> list[tuple[int, int]]:
    """Steps of 1 ms with opportunities, and steps of rate 0 between them."""
    steps: list[tuple[int, int]] = []
    at_ms = 0
    for ms in sorted(chances):
        if ms - 1 > at_ms:
            steps.append((0, (ms - 1 - at_ms) * MS))
        steps.append((chances[ms] * OPPORTUNITY_BYTES * 8 * 1000, MS))
        at_ms = ms
    return steps


def _csv_rows(lines: Iterable[str], name: str) -> list[tuple[int, int | None]]:
    """Parse rows ``seconds,bit_s``, with or without that header, to (moment_ns, rate_bit_s).

    The first is at 0; only the last rate may be None: it ends the trace.
    """
    rows: list[tuple[int, int | None]] = []
    for number, line in enumerate(lines, 1):
        if not line.strip() or (not rows and line.replace(" ", "").strip() == "seconds,bit_s"):
            continue
        if rows and rows[-1][1] is None:
            raise BadValue(f"{name}, line {number - 1}: no rate; only the last row may omit it")
        at_ns, rate_bit_s = _row(line, f"{name}, line {number}")
        if rows and at_ns <= rows[-1][0]:
            raise BadValue(
                f"{name}, line {number}: {seconds_text(at_ns)} s does not come after"
                f" {seconds_text(rows[-1][0])} s"
            )
        rows.append((at_ns, rate_bit_s))
    if not rows:
        raise BadValue(f"{name}: empty")
    if rows[0][0] != 0:
        raise BadValue(
            f"{name}: begins at {seconds_text(rows[0][0])} s: expected the first row at 0"
        )
    if len(rows) < 2:
        raise BadValue(
            f"{name}: one row has no period: expected two or more (or use a constant rate)"
        )
    return rows


def _between(rows: list[tuple[int, int | None]]) -> list[tuple[int, int]]:
    """Steps from row to row; without an ending row, the last step is as long as the one before."""
    if rows[-1][1] is not None:
        rows = [*rows, (2 * rows[-1][0] - rows[-2][0], None)]
    return [
        (rate_bit_s or 0, end_ns - at_ns)
        for (at_ns, rate_bit_s), (end_ns, _) in itertools.pairwise(rows)
    ]


def _row(line: str, where: str) -> tuple[int, int | None]:
    seconds, comma, rate = (part.strip() for part in line.partition(","))
    try:
        moment, rate_bit_s = Decimal(seconds), Decimal(rate) if rate else None
    except InvalidOperation:
        comma = ""
    if not comma or not all(value is None or _plain(value) for value in (moment, rate_bit_s)):
        raise BadValue(
            f"{where}: {line.strip()[:60]!r}: expected seconds,bit_s such as 0.5,2000000, both 0 or"
            " more"
        )
    return round(moment * NS_PER_S), None if rate_bit_s is None else round(rate_bit_s)


def _plain(value: Decimal) -> bool:
    """Whether it is finite, not negative and not huge."""
    return value.is_finite() and not value.is_signed() and -30 < value.adjusted() < 16


def _silences(cycle: Cycle) -> list[tuple[int, int]]:
    """(begin_ns, length_ns) of the times without service; the last may cross the period's end."""
    starts, rates = cycle.starts_ns, cycle.rates_bit_s
    found = [
        (start, end - start)
        for start, end, rate in zip(starts, [*starts[1:], cycle.period_ns], rates)
        if rate == 0
    ]
    if len(found) > 1 and rates[0] == rates[-1] == 0:
        (_, over_the_end), (begin, until_the_end) = found[0], found[-1]
        found = [*found[1:-1], (begin, until_the_end + over_the_end)]
    return found


PERCENTS = (5, 25, 50, 75, 95)
MOST_WINDOWS = 2_000_000


@dataclass(frozen=True, slots=True)
class RateStatistics:
    """Rates of equal windows of one period, in bit/s; an outage is a window below a threshold.

    ``percentiles``: of the windows, by nearest rank. ``longest_outage_ns``: of windows in a row; it
    does not go on over the end of the period.
    """

    window_ns: int
    rates_bit_s: list[float]
    mean_bit_s: float
    percentiles: dict[int, float]
    outage_bit_s: int
    outage_share: float
    longest_outage_ns: int


def statistics_of(trace: Trace, window_ns: int, outage_bit_s: int) -> RateStatistics:
    """Statistics over one period; a last window that is not whole is left out of the percentiles.

    A window longer than the period is cut to the period. A trace has at most ``MOST_WINDOWS``
    windows: longer ones are taken if it has more.
    """
    window_ns = max(min(window_ns, trace.period_ns), -(-trace.period_ns // MOST_WINDOWS))
    done = map(trace.cycle(0).done, range(0, trace.period_ns + 1, window_ns))
    rates = [(after - before) / window_ns for before, after in itertools.pairwise(done)]
    low = [rate < outage_bit_s for rate in rates]
    longest = max((len(list(run)) for out, run in itertools.groupby(low) if out), default=0)
    percentiles = np.percentile(rates, PERCENTS, method="inverted_cdf").tolist()
    return RateStatistics(
        window_ns=window_ns,
        rates_bit_s=rates,
        mean_bit_s=trace.mean_bit_s,
        percentiles=dict(zip(PERCENTS, percentiles)),
        outage_bit_s=outage_bit_s,
        outage_share=sum(low) / len(low),
        longest_outage_ns=longest * window_ns,
    )
