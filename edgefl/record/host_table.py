"""The hosts of a run, from the reports of their edges: a section of summary.json, and strains.

It makes no input or output. It is kept by edge, so that its size has a bound, and grouped by
machine at the end. Reports before the run's start are not counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import asdict

from edgefl.errors import printable
from edgefl.protocol.messages import (
    THERMAL_EVENT,
    THROTTLING,
    ZERO_CELSIUS_MK,
    HostFacts,
    HostReport,
)

SHOWN_EDGES = 5
US_PER_S = UJ_PER_J = 1_000_000
# A native edge whose threads wait for a core for longer than this share of their computing time
# does not show the speed of its device.
MOST_WAITING = 0.2
COUNTED = ("sent_bytes", "received_bytes", "ran_us", "waited_us", "energy_uj")
JUDGED_US = 5 * US_PER_S  # of computing and waiting; less says little


def celsius(temperature_mk: int | None) -> float | None:
    """Degrees Celsius with one decimal."""
    return None if temperature_mk is None else round((temperature_mk - ZERO_CELSIUS_MK) / 1000, 1)


def throttling(bits: int | None) -> str:
    """The bits of a report in words: "", "no", or for example "under-voltage+throttled"."""
    if bits is None:
        return ""
    return "+".join(word for bit, word in THROTTLING.items() if bits & bit) or "no"


@dataclass(slots=True)
class Extent:
    """First, last, largest value, and mean of a number that is reported now and then."""

    first: int | None = None
    last: int = 0
    largest: int = 0
    total: int = 0
    count: int = 0

    def take(self, value: int | None) -> None:
        if value is None:
            return
        self.first = value if self.first is None else self.first
        self.last, self.largest = value, max(self.largest, value)
        self.total, self.count = self.total + value, self.count + 1

    def add(self, other: Extent) -> None:
        """Add the values of another edge on the same host."""
        if other.first is not None:
            self.first = other.first if self.first is None else self.first
            self.last, self.largest = other.last, max(self.largest, other.largest)
            self.total, self.count = self.total + other.total, self.count + other.count


@dataclass(slots=True)
class EdgeReports:
    """What one edge has reported during the run."""

    facts: HostFacts
    reports: int = 0
    of_host: int = 0  # reports that tell about throttling
    throttled: Counter[int] = field(default_factory=Counter)  # bit -> reports
    cpu_permille: Extent = field(default_factory=Extent)
    temperature_mk: Extent = field(default_factory=Extent)
    rss_bytes: Extent = field(default_factory=Extent)
    sent_bytes: int = 0
    received_bytes: int = 0
    ran_us: int = 0
    waited_us: int = 0
    energy_uj: int = 0
    metered: bool = False  # a meter has counted during the run
    before: HostReport | None = None  # the latest report, also before the run's start
    before_ns: int = 0

    def take(self, report: HostReport) -> None:
        self.reports += 1
        self.of_host += report.throttled is not None
        self.throttled.update(bit for bit in THROTTLING if (report.throttled or 0) & bit)
        self.cpu_permille.take(report.cpu_permille)
        self.temperature_mk.take(report.temperature_mk)
        self.rss_bytes.take(report.rss_bytes)
        self.metered |= report.energy_uj is not None
        before = self.before or report
        for name in COUNTED:
            grown = (getattr(report, name) or 0) - (getattr(before, name) or 0)
            if None not in (getattr(report, name), getattr(before, name)) and grown > 0:
                setattr(self, name, getattr(self, name) + grown)

    @property
    def waiting(self) -> float:
        """The share of its computing time in which this edge waited for a core; 0 if unknown."""
        wanted_us = self.ran_us + self.waited_us
        return self.waited_us / wanted_us if wanted_us >= JUDGED_US else 0.0


class HostTable:
    """Collects facts and reports by edge."""

    def __init__(self) -> None:
        self.edges: dict[str, EdgeReports] = {}

    def facts(self, edge: str, facts: HostFacts) -> HostFacts:
        """Take the facts of an edge's host, and return them with texts that are safe to print."""
        values: dict[str, Any] = asdict(facts)
        texts = {name: printable(value) for name, value in values.items() if isinstance(value, str)}
        safe = HostFacts(**values | texts)
        if edge in self.edges:
            self.edges[edge].facts = safe
            self.edges[edge].before = None  # a new process counts from 0
        else:
            self.edges[edge] = EdgeReports(safe)
        return safe

    def report(self, now: int, edge: str, report: HostReport) -> HostFacts | None:
        """Take a report at emulated ``now`` (ns; 0: before the start). Returns the host's facts.

        None: this edge has told no facts, so its report does not count.
        """
        reports = self.edges.get(edge)
        if reports is None:
            return None
        if now > 0:
            reports.take(report)
        reports.before, reports.before_ns = report, now
        return reports.facts

    def measured(self, edge: str, report: HostReport) -> tuple[int, float] | None:
        """Joules that this report adds to the one before it, and the moment of that one (ns).

        None if a meter has not counted both.
        """
        reports = self.edges.get(edge)
        before = None if reports is None else reports.before
        if reports is None or before is None or None in (before.energy_uj, report.energy_uj):
            return None
        return reports.before_ns, ((report.energy_uj or 0) - (before.energy_uj or 0)) / UJ_PER_J

    def section(self) -> list[dict[str, Any]]:
        """The hosts for summary.json, in the order of their first edges."""
        return [_host(edges, of) for edges, of in self._by_machine()]

    def strains(self, judged: Collection[str]) -> list[str]:
        """Reasons why the run is strained, one line each.

        What a Raspberry Pi or the kernel says about throttling counts for each host. Thermal
        events of a PC and overload count for the edges in ``judged``: the lateness of others is
        measured itself.
        """
        lines = []
        for edges, of in self._by_machine():
            tested = [edge for edge in edges if edge in judged]
            throttled = _together(of)
            if not tested:
                throttled.pop(THERMAL_EVENT, None)
            name = _name(of[0].facts, edges)
            if throttled:
                reports = sum(each.of_host for each in of)
                counts = ", ".join(f"{THROTTLING[bit]} in {n}" for bit, n in throttled.items())
                lines.append(f"{name} throttled: {counts} of {reports} reports{_hottest(of)}")
            waiting = {edge: self.edges[edge].waiting for edge in tested}
            slow = [edge for edge, share in waiting.items() if share > MOST_WAITING]
            if slow:
                most = 100 * max(waiting.values())
                lines.append(
                    f"host {of[0].facts.host} is overloaded: {_listed(slow)} waited for one of its"
                    f" {of[0].facts.cores} cores for up to {most:.0f} % of the computing time"
                )
        return lines

    def _by_machine(self) -> list[tuple[list[str], list[EdgeReports]]]:
        found: dict[str, list[str]] = {}
        for edge, reports in self.edges.items():
            found.setdefault(reports.facts.machine, []).append(edge)
        return [(sorted(edges), [self.edges[edge] for edge in edges]) for edges in found.values()]


def _together(of: Collection[EdgeReports]) -> Counter[int]:
    found: Counter[int] = Counter()
    for each in of:
        found.update(each.throttled)
    return Counter(dict(sorted(found.items())))


def _host(edges: list[str], of: list[EdgeReports]) -> dict[str, Any]:
    cpu, temperature, rss = Extent(), Extent(), Extent()
    for each in of:
        cpu.add(each.cpu_permille)
        temperature.add(each.temperature_mk)
        rss.add(each.rss_bytes)
    return {
        **asdict(of[0].facts),
        "edges": edges,
        "reports": sum(each.reports for each in of),
        "cpu_percent": _spread(cpu, 10),
        "temperature_c": None
        if temperature.first is None
        else {"first": celsius(temperature.first), "max": celsius(temperature.largest)},
        "throttled": {THROTTLING[bit]: n for bit, n in _together(of).items()}
        if any(each.of_host for each in of)
        else None,
        "rss_bytes_max": rss.largest or None,
        "waiting_share_max": round(max(each.waiting for each in of), 3),
        "sent_bytes": sum(each.sent_bytes for each in of),
        "received_bytes": sum(each.received_bytes for each in of),
        **({"joules": _joules(of)} if any(each.metered for each in of) else {}),
    }


def _joules(of: list[EdgeReports]) -> float:
    return sum(each.energy_uj for each in of) / UJ_PER_J


def _spread(extent: Extent, unit: int) -> dict[str, float] | None:
    if not extent.count:
        return None
    mean = round(extent.total / extent.count / unit, 1)
    return {"mean": mean, "max": round(extent.largest / unit, 1)}


def _hottest(of: Collection[EdgeReports]) -> str:
    hottest = max((each.temperature_mk.largest for each in of), default=0)
    return f", up to {celsius(hottest)} °C" if hottest else ""


def _name(facts: HostFacts, edges: list[str]) -> str:
    return f"host {facts.host}" + ("" if edges == [facts.host] else f" ({_listed(edges)})")


def _listed(edges: list[str]) -> str:
    more = " ..." if len(edges) > SHOWN_EDGES else ""
    return f"edge{'s' if len(edges) > 1 else ''} {', '.join(edges[:SHOWN_EDGES])}{more}"
