"""Models of how long a device computes.

The speed is constant, spread over the devices, random, thermally throttled, or slowed by other
work; or the device takes its real time.
"""

from __future__ import annotations

import itertools
import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from statistics import median
from typing import Protocol

import numpy as np

from emulator.errors import BadValue, check_positive, check_whole, valid_name
from emulator.plain_text import csv_rows, read_text
from emulator.units import FOREVER, NS_PER_S, to_ns


class Device(Protocol):
    """The computing speed of one device."""

    def duration_ns(self, samples: float, start_ns: int = 0) -> int | None:
        """Emulated ns to train on ``samples`` samples, starting at ``start_ns``.

        A more expensive step counts as more samples. None: the real duration counts.
        """
        ...


def copied(device: Device) -> Device:
    """A copy that later calls of ``device`` do not change; the device itself if none changes it."""
    own: Callable[[], Device] | None = getattr(device, "copied", None)
    return device if own is None else own()


@dataclass(frozen=True, slots=True)
class Rate:
    """A device with the constant speed ``samples_per_s``."""

    samples_per_s: float

    def __post_init__(self) -> None:
        check_positive("samples_per_s", self.samples_per_s)

    def duration_ns(self, samples: float, start_ns: int = 0) -> int:
        return to_ns(samples / self.samples_per_s)


@dataclass(frozen=True, slots=True)
class Native:
    """Real hardware: the real duration counts, none is emulated."""

    def duration_ns(self, samples: float, start_ns: int = 0) -> None:
        return None


LARGEST_SIGMA = 5.0  # e^5 is 148; a larger spread is probably a typing error
MOST_DEVICES = 10_000


def even_speeds(
    count: int, fastest_samples_per_s: float, slowest_ratio: float, rng: np.random.Generator
) -> list[float]:
    """Return the samples/s of ``count`` devices with evenly spaced times per sample, shuffled.

    The times go from that of the fastest device to ``slowest_ratio`` times as much. Source:
    FedASMU, "slowest = 5 x fastest, uniform in between". Times are evenly spaced, not speeds,
    because the run waits for times.
    """
    check_whole("devices", count, 1)
    check_positive("fastest_samples_per_s", fastest_samples_per_s)
    if not 1 <= slowest_ratio < math.inf:
        raise BadValue(
            f"slowest_ratio {slowest_ratio}: expected 1 or more (how many times slower the slowest"
            " device is)"
        )
    times = rng.permutation(np.linspace(1.0, slowest_ratio, count))
    speeds: list[float] = (fastest_samples_per_s / times).tolist()
    return speeds


def lognormal_speeds(
    count: int, median_samples_per_s: float, sigma: float, rng: np.random.Generator
) -> list[float]:
    """Draw the samples/s of ``count`` devices from a log-normal distribution.

    Each is median x exp(sigma x a standard normal number), so times per sample are log-normal with
    the same sigma. Two thirds of the devices lie between median / e^sigma and median x e^sigma.
    """
    check_whole("devices", count, 1)
    check_positive("median_samples_per_s", median_samples_per_s)
    if not 0 <= sigma <= LARGEST_SIGMA:
        raise BadValue(f"sigma {sigma}: expected 0 (all equal) to {LARGEST_SIGMA:g}")
    return [
        float(median_samples_per_s * math.exp(sigma * normal))
        for normal in rng.standard_normal(count)
    ]


def read_device_table(path: Path, column: str) -> list[float]:
    """Read the numbers in a column of a published table of devices, in the order of rows.

    The table is CSV with a header, and a row per device with its name first. The column has scores
    (larger is faster) or times (smaller is faster), as AI-Benchmark's rankings have them. BadValue
    names the file, the line and the device.
    """
    name = f"device table {path}"
    try:
        rows = csv_rows(read_text(path, name), name)
    except OSError as error:
        raise BadValue(f"{name}: cannot be read ({error.strerror})") from None
    header = [cell.strip() for cell in rows[0][1]] if rows else []
    if header and header[0][:1] in ("[", "{"):
        raise BadValue(f"{name}: is JSON, expected CSV with a header and a row for each device")
    place, values = header.index(valid_name(f"{name}: column", column, header)), []
    for line, row in rows[1:]:
        text = row[place].strip() if place < len(row) else ""
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if 0 < value < math.inf:
            values.append(value)
        elif any(cell.strip() for cell in row):
            raise BadValue(
                f"{name}, line {line} ({row[0].strip()[:60]}): {column}: expected a"
                f" number above 0, found {text[:60]!r}"
            )
    if not 0 < len(values) <= MOST_DEVICES:
        raise BadValue(f"{name}: expected 1 to {MOST_DEVICES} devices, found {len(values)}")
    return values


def table_speeds(
    count: int,
    median_samples_per_s: float,
    values: Sequence[float],
    measure: str,
    rng: np.random.Generator,
) -> list[float]:
    """Draw the samples/s of ``count`` devices: each is any device of the table, with equal chance.

    ``values``: one number per device. The device of their median has ``median_samples_per_s``. With
    ``measure`` "score" a speed is in proportion to its number, with "time" to 1 / number.
    """
    check_whole("devices", count, 1)
    check_positive("median_samples_per_s", median_samples_per_s)
    middle = median(values)
    speeds = [value / middle if measure == "score" else middle / value for value in values]
    return [median_samples_per_s * speeds[place] for place in rng.integers(len(speeds), size=count)]


@dataclass(frozen=True, slots=True)
class Memoryless:
    """A device that needs an exponential time for each period of work.

    ``samples_per_s`` gives its mean. Source: Dutta et al. 2018 (arXiv 1803.01113): the learners of
    their K-async SGD take exponential times. If P such devices have equal work, every set of K is
    equally likely to finish first. This equals uniform random sampling of K devices.

    The exponential distribution is memoryless: the elapsed time says nothing about the remaining
    time. The draw depends only on ``seed`` and the moment at which the work starts, so the same
    call always gives the same result.
    """

    samples_per_s: float
    seed: int

    def __post_init__(self) -> None:
        check_positive("samples_per_s", self.samples_per_s)

    def duration_ns(self, samples: float, start_ns: int = 0) -> int:
        rng = np.random.Generator(np.random.PCG64(np.random.SeedSequence([self.seed, start_ns])))
        return math.ceil(rng.exponential(Rate(self.samples_per_s).duration_ns(samples)))


UNIT_NS = 10 * NS_PER_S
MOST_LONG = 0.1  # "at most 10 % of clients long"
SAME_DRAW_NS = 5 * NS_PER_S
MIX = (3.0, 2.0, 1.0)  # concentrations of short, medium, long [FADAS's code]
SMALLEST = 1e-300  # a draw may be 0, which has no logarithm


@dataclass(frozen=True, slots=True)
class RuntimeClass:
    """A class of task times, uniform from ``low_ns`` to ``high_ns``.

    The classes below are those of FedEcho: short, medium and long.
    """

    name: str
    low_ns: int
    high_ns: int

    def __post_init__(self) -> None:
        check_whole(f"runtime class {self.name}: low", self.low_ns, 1, unit="ns")
        check_whole(f"runtime class {self.name}: high", self.high_ns, self.low_ns, unit="ns")


SHORT = RuntimeClass("short", 1 * UNIT_NS, 2 * UNIT_NS)
MEDIUM = RuntimeClass("medium", 3 * UNIT_NS, 5 * UNIT_NS)
LONG = RuntimeClass("long", 50 * UNIT_NS, 80 * UNIT_NS)
MILD = RuntimeClass("long (mild)", 10 * UNIT_NS, 20 * UNIT_NS)


@dataclass(frozen=True, slots=True)
class Drawn:
    """A device of one runtime class, with a new random speed for each period of work.

    The draw is the time that ``task_samples`` samples take. It depends only on ``seed`` and the 5 s
    interval in which the work starts. So the same call always gives the same result, and a start
    that is a few ms later, as on the wall clock, rarely changes it. Whole tasks of every class take
    longer than 5 s.
    """

    runtime: RuntimeClass
    task_samples: float
    seed: int

    def __post_init__(self) -> None:
        check_positive("task_samples", self.task_samples)

    @property
    def samples_per_s(self) -> float:
        """The highest possible speed."""
        return self.task_samples / self.runtime.low_ns * NS_PER_S

    def duration_ns(self, samples: float, start_ns: int = 0) -> int:
        rng = np.random.Generator(
            np.random.PCG64(np.random.SeedSequence([self.seed, start_ns // SAME_DRAW_NS]))
        )
        task_ns = int(rng.integers(self.runtime.low_ns, self.runtime.high_ns, endpoint=True))
        return round(samples / self.task_samples * task_ns)


def runtime_classes(
    sizes: Sequence[float], long: RuntimeClass, rng: np.random.Generator, gamma: float = 1.0
) -> list[RuntimeClass]:
    """Choose a runtime class for each device from the size of its data.

    A device gets the class c with the largest p_c r^(k_c / gamma). r = the device's size / the mean
    size; k = 0, 1, 2 for short, medium, long; p ~ Dirichlet(3, 2, 1) for each device. So devices
    with more data tend to be slower; a smaller ``gamma`` strengthens this. The formula and gamma =
    1 are ours: FedEcho describes the relation only in words.

    At most the share ``MOST_LONG`` of the devices is ``long``. If more devices qualify, those with
    the largest margin stay long and the others get their second-best class.
    """
    check_whole("devices", len(sizes), 1)
    for size in sizes:
        check_positive("size of a device's data", size)
    check_positive("gamma", gamma)
    shares = np.log(np.asarray(sizes, dtype=np.float64) / np.mean(sizes)) / gamma
    scores = np.log(np.maximum(rng.dirichlet(MIX, len(sizes)), SMALLEST)) + shares[
        :, None
    ] * np.arange(3)
    margin = scores[:, 2] - scores[:, :2].max(axis=1)
    longest = np.argsort(-margin, kind="stable")[: math.floor(MOST_LONG * len(sizes))]
    longs = {int(index) for index in longest if margin[index] > 0}
    return [
        long if index in longs else (SHORT, MEDIUM)[int(scores[index, :2].argmax())]
        for index in range(len(sizes))
    ]


@dataclass(slots=True)
class Throttled:
    """A device that is slower when hot.

    When cold, it trains at ``samples_per_s`` for ``budget_ns`` of work. Then it is hot and trains
    at ``hot_samples_per_s`` until the work ends. Idle time restores the budget at a constant rate,
    all of it in ``recovery_ns``. Work while hot neither uses nor restores budget. So work takes

        min(full, budget left) + (full - budget left, if positive) x cold rate / hot rate,

    where full = samples / samples_per_s; exact, in whole ns.

    The device remembers its last work, so calls must be in order of time. If the next work starts
    before the last one ends, the last one was cancelled at that moment. Repeating a call gives the
    same result. Work that others slow down (``slowed_by``) uses no more budget, and restores none.
    """

    samples_per_s: float
    hot_samples_per_s: float
    budget_ns: int
    recovery_ns: int
    _start_ns: int = field(default=0, init=False)  # start of the last work
    _left_ns: int = field(default=0, init=False)  # budget at its start
    _full_ns: int = field(default=0, init=False)  # its duration at the cold rate
    _slowed_ns: int = field(default=0, init=False)  # how much longer it was at work

    def __post_init__(self) -> None:
        check_positive("samples_per_s", self.samples_per_s)
        check_positive("hot_samples_per_s", self.hot_samples_per_s)
        if self.hot_samples_per_s > self.samples_per_s:
            raise BadValue(
                f"hot_samples_per_s {self.hot_samples_per_s}: expected at most samples_per_s,"
                f" {self.samples_per_s}"
            )
        check_whole("budget", self.budget_ns, unit="ns")
        check_whole("recovery", self.recovery_ns, 1, unit="ns")
        self._left_ns = self.budget_ns

    def duration_ns(self, samples: float, start_ns: int = 0) -> int:
        """As ``Device.duration_ns``. ValueError if ``start_ns`` is before that of the last work."""
        self._left_ns = self.budget_left_ns(start_ns)
        self._start_ns, self._slowed_ns = start_ns, 0
        self._full_ns = Rate(self.samples_per_s).duration_ns(samples)
        return self._busy_ns()

    def slowed_by(self, ns: int) -> None:
        """The last work takes so much longer, without a pause: the device is not idle meanwhile."""
        self._slowed_ns = ns

    def copied(self) -> Throttled:
        return copy(self)

    def budget_left_ns(self, now: int) -> int:
        """How many ns of work at full speed are left at ``now``.

        ValueError if ``now`` is before the start of the last work.
        """
        if now < self._start_ns:
            raise ValueError(
                f"a throttled device needs calls in order of time: {now} ns after"
                f" {self._start_ns} ns"
            )
        busy_ns = self._busy_ns()
        at_work_ns = min(now - self._start_ns, busy_ns + self._slowed_ns)
        worked_ns = at_work_ns
        if self._slowed_ns:  # evenly, if it was cancelled
            worked_ns = at_work_ns * busy_ns // (busy_ns + self._slowed_ns)
        left_ns = max(0, self._left_ns - min(worked_ns, self._full_ns))
        idle_ns = now - self._start_ns - at_work_ns
        return min(self.budget_ns, left_ns + idle_ns * self.budget_ns // self.recovery_ns)

    def _busy_ns(self) -> int:
        cold_ns = min(self._full_ns, self._left_ns)
        return cold_ns + round(
            (self._full_ns - cold_ns) * (self.samples_per_s / self.hot_samples_per_s)
        )


def jitter_factor(variation: float, rng: np.random.Generator) -> float:
    """Draw how many times its usual work a task takes: log-normal, with mean 1.

    ``variation``: the coefficient of variation, standard deviation / mean, so the logarithm has
    variance s^2 = ln(1 + variation^2) and mean -s^2 / 2. A task is rarely much shorter than usual
    and sometimes much longer; with mean 1 the mean speed of the device stays what it is.
    """
    if not 0 <= variation <= 1:
        raise BadValue(f"task jitter {variation}: expected 0 (none) to 1")
    variance = math.log1p(variation**2)
    return math.exp(math.sqrt(variance) * rng.standard_normal() - variance / 2)


class Pace(Protocol):
    """A piecewise constant factor on a device's rate."""

    def segment(self, t_ns: int) -> tuple[float, int]:
        """Return (factor, until_ns): the factor holds from ``t_ns`` until before ``until_ns``.

        ``t_ns`` is 0 or more, ``until_ns`` > ``t_ns``, and the factor is above 0.
        """
        ...


class Steps:
    """A pace of ``factors[i]`` from ``starts_ns[i]`` on, and 1 before the first."""

    def __init__(self, starts_ns: Sequence[int], factors: Sequence[float]) -> None:
        if len(starts_ns) != len(factors) or any(
            later <= earlier for earlier, later in itertools.pairwise(starts_ns)
        ):
            raise BadValue(
                "steps: expected as many factors as starts, and starts in order, got"
                f" {list(starts_ns)} and {list(factors)}"
            )
        for start_ns, factor in zip(starts_ns, factors):
            check_whole("steps: start", start_ns, unit="ns")
            check_positive("steps: factor", factor)
        self._starts_ns, self._factors = list(starts_ns), [1.0, *factors]

    def segment(self, t_ns: int) -> tuple[float, int]:
        index = bisect_right(self._starts_ns, t_ns)
        return self._factors[index], (
            self._starts_ns[index] if index < len(self._starts_ns) else FOREVER
        )


class Bursts:
    """A pace that alternates between calm periods (factor 1) and bursts of other work (``factor``).

    Their lengths are exponentially distributed with means ``calm_ns`` and ``burst_ns``; it starts
    calm at 0. Lengths are drawn once, in order of time, so the results do not depend on the order
    of the calls.
    """

    def __init__(
        self, calm_ns: int, burst_ns: int, factor: float, rng: np.random.Generator
    ) -> None:
        check_whole("calm", calm_ns, 1, unit="ns")
        check_whole("burst", burst_ns, 1, unit="ns")
        check_positive("factor", factor)
        self._means_ns, self._factors, self._rng = (calm_ns, burst_ns), (1.0, factor), rng
        self._ends_ns = [self._length_ns(0)]

    def segment(self, t_ns: int) -> tuple[float, int]:
        while self._ends_ns[-1] <= t_ns:
            self._ends_ns.append(self._ends_ns[-1] + self._length_ns(len(self._ends_ns) % 2))
        index = bisect_right(self._ends_ns, t_ns)
        return self._factors[index % 2], self._ends_ns[index]

    def _length_ns(self, kind: int) -> int:
        return max(1, math.ceil(self._rng.exponential(self._means_ns[kind])))


@dataclass(frozen=True, slots=True)
class Bursty:
    """A device that trains at ``samples_per_s`` times the current factor of its pace.

    Its speed varies over time because other programs use it, too.
    """

    samples_per_s: float
    pace: Pace

    def __post_init__(self) -> None:
        check_positive("samples_per_s", self.samples_per_s)

    def duration_ns(self, samples: float, start_ns: int = 0) -> int:
        """The smallest whole number of ns in which the work is done.

        Exact: computed with fractions over the segments of the pace.
        """
        full_ns = Rate(self.samples_per_s).duration_ns(samples)
        return worked_ns(full_ns, start_ns, self.pace.segment)


def worked_ns(
    full_ns: int, start_ns: int, segment: Callable[[int], tuple[float | Fraction, int]]
) -> int:
    """How long work of ``full_ns`` (at factor 1) takes under a piecewise constant factor.

    ``segment`` is as ``Pace.segment``, but the factor may be 0. Exact fractions, rounded up to
    whole ns. FOREVER - ``start_ns`` if the work never ends.
    """
    left, now = Fraction(full_ns), start_ns
    while left > 0:
        factor, until_ns = segment(now)
        factor = Fraction(factor)
        if until_ns >= FOREVER and not factor:
            return FOREVER - start_ns
        if factor and (until_ns >= FOREVER or now + math.ceil(left / factor) <= until_ns):
            return now + math.ceil(left / factor) - start_ns
        left -= (until_ns - now) * factor
        now = until_ns
    return now - start_ns
