"""The fidelity verdict: whether the host was fast enough for what it emulated.

Its quantiles are those of a long stream of numbers in bounded memory.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from emulator.errors import BadValue
from emulator.units import NS_PER_S

_FINE_BITS = 7  # values below 2**7 are exact; above, there are 2**6 buckets per octave
_BUCKETS = 2**_FINE_BITS + (64 - _FINE_BITS) * 2 ** (_FINE_BITS - 1)


class Quantiles:
    """A histogram of integers from 0 to 2**64 - 1 with logarithmic buckets, always 30 KB.

    The relative error of a quantile is at most 1/128 (0.8 %); the maximum is exact. Numbers below
    0 count as 0.
    """

    __slots__ = ("_buckets", "count", "max")

    def __init__(self) -> None:
        self._buckets = array("Q", bytes(8 * _BUCKETS))
        self.count = 0
        self.max = 0

    def add(self, value: int, times: int = 1) -> None:
        value = max(0, value)
        shift = max(0, value.bit_length() - _FINE_BITS)
        self._buckets[(shift << (_FINE_BITS - 1)) + (value >> shift)] += times
        self.count += times
        self.max = max(self.max, value)

    def copy(self) -> Quantiles:
        other = Quantiles()
        other._buckets, other.count, other.max = self._buckets[:], self.count, self.max
        return other

    def counts(self) -> list[Any]:
        """Return [count, max, [[bucket, count], ...]] as plain JSON."""
        full = [[index, count] for index, count in enumerate(self._buckets) if count]
        return [self.count, self.max, full]

    def take_counts(self, counts: list[Any]) -> None:
        """Go on from ``counts`` of another one."""
        self.count, self.max, full = counts
        self._buckets = array("Q", bytes(8 * _BUCKETS))
        for index, count in full:
            self._buckets[index] = count

    def percentile(self, percent: int) -> int | None:
        """The smallest number that at least ``percent`` % of all numbers do not exceed.

        This is the nearest-rank definition. None if there are no numbers.
        """
        rank = max(1, -(-self.count * percent // 100))
        seen = 0
        for index, count in enumerate(self._buckets):
            seen += count
            if seen >= rank:
                return min(_middle(index), self.max)
        return None


def _middle(index: int) -> int:
    """The number in the middle of a bucket."""
    shift = max(0, (index >> (_FINE_BITS - 1)) - 1)
    low = (index - (shift << (_FINE_BITS - 1))) << shift
    return low + ((1 << shift) - 1) // 2


NS_PER_MS = 1_000_000
MOST_STALLS = 5  # listed one by one; further stalls are only counted
SPREADS = ("transfer_lag", "wake_lag", "handle_time", "last_byte_lead")
COUNTS = ("transfers_late", "tasks", "overruns", "ahead_of_curve", "stalls", "stalled_ns")


@dataclass(frozen=True, slots=True)
class Thresholds:
    """The limits of a faithful run.

    A transfer, task or job may be late by the larger of the first two values.
    """

    transfer_lag_ms: float = 5.0
    transfer_lag_share: float = 0.02  # share of its own length
    # share of transfers that may be later: this is a limit on the p99 of transfer lag
    late_share: float = 0.01
    overrun_share: float = 0.01  # share of stamped tasks and jobs that may be later

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if not 0 <= value < float("inf"):
                raise BadValue(f"{field.name} {value}: expected a number of 0 or more")

    def exceeded(self, late_ns: int, length_ns: int) -> bool:
        """Whether ``late_ns`` is more than something of ``length_ns`` may be late."""
        return late_ns > max(self.transfer_lag_ms * NS_PER_MS, self.transfer_lag_share * length_ns)


class Fidelity:
    """Counts where the host was too slow, in bounded memory, and decides the verdict.

    ``host``: facts that are copied to the summary.
    """

    def __init__(
        self, thresholds: Thresholds | None = None, host: Mapping[str, object] | None = None
    ) -> None:
        self.thresholds = thresholds or Thresholds()
        self.host = dict(host or {})
        self.transfer_lag, self.wake_lag = Quantiles(), Quantiles()
        self.handle_time, self.last_byte_lead = Quantiles(), Quantiles()
        self.transfers_late = self.tasks = self.overruns = self.ahead_of_curve = 0
        self.stalls = self.stalled_ns = 0
        self._first_stalls: list[tuple[int, int]] = []
        self._slow_paths: dict[str, tuple[int, int]] = {}
        self._strains: dict[str, None] = {}  # an ordered set

    def transfer(self, lag_ns: int, length_ns: int) -> None:
        """Count a transfer of ``length_ns`` (offer to due) that ended ``lag_ns`` after its due."""
        self.transfer_lag.add(lag_ns)
        self.transfers_late += self.thresholds.exceeded(lag_ns, length_ns)

    def lead(self, lead_ns: int) -> None:
        """Count a transfer whose last byte arrived ``lead_ns`` before it was due.

        This is within the window, so it is reported but does not affect the verdict.
        """
        self.last_byte_lead.add(lead_ns)

    def ahead(self, count: int) -> None:
        """Count arrivals that were ahead of the service curve by more than the window."""
        self.ahead_of_curve += count

    def wake(self, lag_ns: int) -> None:
        """Count a wake-up of the pacing thread, ``lag_ns`` after the intended moment."""
        self.wake_lag.add(lag_ns)

    def handle(self, duration_ns: int) -> None:
        """Count an event for which the strategy took ``duration_ns``."""
        self.handle_time.add(duration_ns)

    def task(self, late_ns: int, length_ns: int) -> None:
        """Count a stamped task or job of ``length_ns``, ready ``late_ns`` after its emulated end.

        0 or less means in time.
        """
        self.tasks += 1
        self.overruns += self.thresholds.exceeded(late_ns, length_ns)

    def stall(self, at_ns: int, length_ns: int) -> None:
        """Count a stall of the pacing thread: ``length_ns`` real time from emulated ``at_ns``."""
        self.stalls += 1
        self.stalled_ns += length_ns
        if len(self._first_stalls) < MOST_STALLS:
            self._first_stalls.append((at_ns, length_ns))

    def slow_path(self, edge: str, measured_bit_s: int, emulated_bit_s: int) -> None:
        """Record the measured rate of the real path to ``edge``; the lowest one is kept.

        It is a reason for "strained" if the emulated link is faster.
        """
        known_bit_s, _ = self._slow_paths.get(edge, (emulated_bit_s, emulated_bit_s))
        if measured_bit_s < min(known_bit_s, emulated_bit_s):
            self._slow_paths[edge] = (measured_bit_s, emulated_bit_s)

    def strain(self, reason: str) -> None:
        """Add another reason for "strained" as text; a repeated reason counts once."""
        self._strains[reason] = None

    def reasons(self) -> list[str]:
        """The reasons why the run is strained, one line each; empty if it is faithful."""
        limits, transfers = self.thresholds, self.transfer_lag.count
        reasons = []
        if self.transfers_late > limits.late_share * transfers:
            reasons.append(
                f"{self.transfers_late} of {transfers} transfers late by more than"
                f" max({limits.transfer_lag_ms:g} ms, {100 * limits.transfer_lag_share:g} % of the"
                f" transfer), worst {_ms(self.transfer_lag.max)} ms"
            )
        if self.ahead_of_curve:
            reasons.append(
                f"{self.ahead_of_curve} arrivals ahead of the service curve by more than the window"
            )
        if self.overruns > limits.overrun_share * self.tasks:
            reasons.append(
                f"{self.overruns} of {self.tasks} tasks and jobs overran their emulated time"
            )
        for at_ns, length_ns in self._first_stalls:
            reasons.append(
                f"the coordinator stalled for {_s(length_ns)} s, from emulated {_s(at_ns)} s on"
            )
        if self.stalls > MOST_STALLS:
            reasons.append(
                f"the coordinator stalled {self.stalls} times, {_s(self.stalled_ns)} s in total"
            )
        for edge, (measured_bit_s, emulated_bit_s) in self._slow_paths.items():
            reasons.append(
                f"the real path of edge {edge} carries {measured_bit_s} bit/s, its emulated link"
                f" {emulated_bit_s} bit/s"
            )
        return reasons + list(self._strains)

    def copy(self) -> Fidelity:
        """Return a copy of all counts; another thread may count meanwhile."""
        other = Fidelity(self.thresholds, self.host)
        for name in SPREADS:
            setattr(other, name, getattr(self, name).copy())
        for name in COUNTS:
            setattr(other, name, getattr(self, name))
        other._first_stalls = list(self._first_stalls)
        other._slow_paths, other._strains = dict(self._slow_paths), dict(self._strains)
        return other

    def counts(self) -> dict[str, Any]:
        """All counts and reasons as plain JSON."""
        return {
            **{name: getattr(self, name).counts() for name in SPREADS},
            **{name: getattr(self, name) for name in COUNTS},
            "first_stalls": [list(each) for each in self._first_stalls],
            "slow_paths": {edge: list(rates) for edge, rates in self._slow_paths.items()},
            "strains": list(self._strains),
        }

    def take_counts(self, counts: Mapping[str, Any]) -> None:
        """Go on from ``counts`` of the part of the run before this process; keep own strains."""
        for name in SPREADS:
            getattr(self, name).take_counts(counts[name])
        for name in COUNTS:
            setattr(self, name, counts[name])
        self._first_stalls = [(at_ns, length_ns) for at_ns, length_ns in counts["first_stalls"]]
        self._slow_paths = {edge: (ours, of) for edge, (ours, of) in counts["slow_paths"].items()}
        self._strains = {**dict.fromkeys(counts["strains"]), **self._strains}

    @property
    def verdict(self) -> str:
        """'faithful' or 'strained'."""
        return "strained" if self.reasons() else "faithful"

    def summary(self) -> dict[str, object]:
        """All counts as plain JSON values; times in ms, null if nothing was measured."""
        return {
            "verdict": self.verdict,
            "reasons": self.reasons(),
            "transfer_lag_ms": spread_ms(self.transfer_lag),
            "wake_lag_ms": spread_ms(self.wake_lag),
            "handle_ms": spread_ms(self.handle_time),
            "last_byte_lead_ms": spread_ms(self.last_byte_lead),
            "transfers": self.transfer_lag.count,
            "tasks": self.tasks,
            "compute_overruns": self.overruns,
            "ahead_of_curve": self.ahead_of_curve,
            "stalls": self.stalls,
            "stalled_s": _s(self.stalled_ns),
            "host": self.host,
        }


def spread_ms(quantiles: Quantiles) -> dict[str, float | None]:
    """Median, 99th percentile and maximum in ms; None if nothing was measured."""
    values = {
        "p50": quantiles.percentile(50),
        "p99": quantiles.percentile(99),
        "max": quantiles.max if quantiles.count else None,
    }
    return {name: None if ns is None else _ms(ns) for name, ns in values.items()}


def _s(ns: int) -> float:
    return round(ns / NS_PER_S, 3)


def _ms(ns: int) -> float:
    return round(ns / NS_PER_MS, 3)
