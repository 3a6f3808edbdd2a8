"""Whether the host kept up with what it emulated: the bookkeeping and the verdict."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

from emulator.errors import BadValue
from emulator.quantiles import Quantiles

NS_PER_MS = 1_000_000
NS_PER_S = 1_000_000_000
MOST_STALLS = 5  # that are listed one by one; the others are only counted


@dataclass(frozen=True, slots=True)
class Thresholds:
    """What may still be called faithful. A transfer, task or job may be late by the larger of
    the two allowances.
    """

    transfer_lag_ms: float = 5.0
    transfer_lag_share: float = 0.02  # of its own length
    late_share: float = (
        0.01  # of all transfers may exceed their allowance: the rule "p99 of transfer lag"
    )
    overrun_share: float = 0.01  # of all stamped tasks and jobs

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if not 0 <= value < float("inf"):
                raise BadValue(f"{field.name} {value}: expected a number of 0 or more")

    def exceeded(self, late_ns: int, length_ns: int) -> bool:
        """Whether something that should take ``length_ns`` and ends ``late_ns`` too late is
        beyond its allowance.
        """
        return late_ns > max(self.transfer_lag_ms * NS_PER_MS, self.transfer_lag_share * length_ns)


class Fidelity:
    """Counts what the host could not keep up with, in bounded memory. ``host``: facts that go
    into the summary unchanged.
    """

    def __init__(
        self, thresholds: Thresholds | None = None, host: Mapping[str, object] | None = None
    ) -> None:
        self.thresholds = thresholds or Thresholds()
        self.host = dict(host or {})
        self.transfer_lag = Quantiles()
        self.wake_lag = Quantiles()
        self.handle_time = Quantiles()
        self.last_byte_lead = Quantiles()
        self.transfers_late = 0
        self.tasks = 0
        self.overruns = 0
        self.ahead_of_curve = 0
        self.stalls = 0
        self.stalled_ns = 0
        self._first_stalls: list[tuple[int, int]] = []
        self._slow_paths: dict[str, tuple[int, int]] = {}
        self._strains: dict[str, None] = {}  # an ordered set

    def transfer(self, lag_ns: int, length_ns: int) -> None:
        """A transfer of ``length_ns`` (offer to due) completed ``lag_ns`` after it was due."""
        self.transfer_lag.add(lag_ns)
        self.transfers_late += self.thresholds.exceeded(lag_ns, length_ns)

    def lead(self, lead_ns: int) -> None:
        """The last byte of a transfer arrived ``lead_ns`` before it was due (within the window:
        reported, not judged).
        """
        self.last_byte_lead.add(lead_ns)

    def ahead(self, count: int) -> None:
        """``count`` arrivals were ahead of the service curve by more than the window."""
        self.ahead_of_curve += count

    def wake(self, lag_ns: int) -> None:
        """The pacing thread woke ``lag_ns`` after the moment it slept for."""
        self.wake_lag.add(lag_ns)

    def handle(self, duration_ns: int) -> None:
        """The strategy took ``duration_ns`` for one event."""
        self.handle_time.add(duration_ns)

    def task(self, late_ns: int, length_ns: int) -> None:
        """A stamped task or job of ``length_ns`` was ready ``late_ns`` after its emulated end (0
        or less: in time).
        """
        self.tasks += 1
        self.overruns += self.thresholds.exceeded(late_ns, length_ns)

    def stall(self, at_ns: int, length_ns: int) -> None:
        """The pacing thread stood still for ``length_ns`` of real time, from the emulated moment
        ``at_ns`` on.
        """
        self.stalls += 1
        self.stalled_ns += length_ns
        if len(self._first_stalls) < MOST_STALLS:
            self._first_stalls.append((at_ns, length_ns))

    def slow_path(self, edge: str, measured_bit_s: int, emulated_bit_s: int) -> None:
        """The real path to ``edge`` carries ``measured_bit_s``: a reason if its emulated link is
        faster. The slowest measure stays.
        """
        known_bit_s, _ = self._slow_paths.get(edge, (emulated_bit_s, emulated_bit_s))
        if measured_bit_s < min(known_bit_s, emulated_bit_s):
            self._slow_paths[edge] = (measured_bit_s, emulated_bit_s)

    def strain(self, reason: str) -> None:
        """Anything else that makes the run untrue, in words; said twice, it counts once."""
        self._strains[reason] = None

    def reasons(self) -> list[str]:
        """Why the run is strained, a line each; empty if it is faithful."""
        limits, transfers = self.thresholds, self.transfer_lag.count
        reasons = []
        if self.transfers_late > limits.late_share * transfers:
            allowance = (
                f"max({limits.transfer_lag_ms:g} ms, {100 * limits.transfer_lag_share:g} % of the"
                " transfer)"
            )
            reasons.append(
                f"{self.transfers_late} of {transfers} transfers late by more than {allowance},"
                f" worst {_ms(self.transfer_lag.max)} ms"
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
                f"the coordinator stood still for {_s(length_ns)} s, from emulated {_s(at_ns)} s on"
            )
        if self.stalls > MOST_STALLS:
            reasons.append(
                f"the coordinator stood still {self.stalls} times, {_s(self.stalled_ns)} s in all"
            )
        for edge, (measured_bit_s, emulated_bit_s) in self._slow_paths.items():
            reasons.append(
                f"the real path of edge {edge} carries {measured_bit_s} bit/s, its emulated link"
                f" {emulated_bit_s} bit/s"
            )
        return reasons + list(self._strains)

    @property
    def verdict(self) -> str:
        """'faithful' or 'strained'."""
        return "strained" if self.reasons() else "faithful"

    def summary(self) -> dict[str, object]:
        """Everything above as plain JSON values; times in ms, null where nothing was measured."""
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
    """Median, 99th percentile and maximum in ms; None where nothing was measured."""
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
