"""How faithful a run is, as far as its files tell while it runs, and how its hosts are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from edgefl.live.link_bins import LinkLag
from edgefl.live.series import LatestItems
from edgefl.results.columns import TableColumns
from edgefl.results.progress import Progress
from edgefl.results.summary import BROKEN_OFF, INTERRUPTED, number, verdict

MOST_POINTS = 600


class Health:
    """Lag of transfers and load of hosts during the run; the verdict after it."""

    def __init__(self) -> None:
        self.changed = 0  # rises with every change
        self.lag = LinkLag()
        self.cpu: LatestItems[list[float]] = LatestItems(MOST_POINTS)
        self._machines: list[str] = []
        self._waited: dict[str, tuple[float, float]] = {}  # edge -> ran s, waited s, last report
        self._waiting: dict[str, float] = {}  # edge -> share of its time without a core
        self._memory: dict[str, float] = {}  # edge -> bytes
        self._summary: Mapping[str, Any] = {}

    def take_links(self, rows: TableColumns) -> None:
        """Take rows of links.csv."""
        self.lag.take(rows)
        self.changed += 1

    def take_hosts(self, rows: Iterable[Mapping[str, str]]) -> None:
        """Take rows of hosts.csv."""
        for row in rows:
            self.changed += 1
            edge, machine = row.get("edge", ""), row.get("machine", "")
            if machine not in self._machines:
                self._machines.append(machine)
            t, cpu = number(row.get("emulated_s")), number(row.get("cpu_percent"))
            if t is not None and cpu is not None:
                self.cpu.add([t, self._machines.index(machine), cpu])
            if (memory := number(row.get("rss_bytes"))) is not None:
                self._memory[edge] = memory
            ran, waited = number(row.get("ran_s")), number(row.get("waited_s"))
            if ran is not None and waited is not None:
                self._note_waiting(edge, ran, waited)

    def take_summary(self, summary: Mapping[str, Any]) -> None:
        """Take summary.json; {} as long as there is none."""
        if summary != self._summary:
            self._summary = summary
            self.changed += 1

    @property
    def finished(self) -> str | None:
        """The reason of the run's end; None as long as there is no summary."""
        return self._summary.get("finished")

    def _section(self, name: str, kind: Any, of: Mapping[str, Any] | None = None) -> Any:
        """A part of the summary; an empty one if it has another type."""
        found = (self._summary if of is None else of).get(name)
        return found if isinstance(found, kind) else kind()

    def whole(self, progress: Progress) -> dict[str, Any]:
        """Return all of it; ``progress`` knows the hosts and their edges."""
        found = self._section("fidelity", dict)
        return {
            "verdict": self._verdict(),
            "reasons": list(self._section("reasons", list, found)),
            "warnings": list(self._section("warnings", list)),
            "transfer_lag_ms": found.get("transfer_lag_ms") or self.lag.quantiles_ms(),
            "hosts": [self._host(machine, progress) for machine in self._machines],
            "cpu": self.cpu.since(0),
        }

    def _verdict(self) -> str | None:
        """The verdict of a run that has ended; None as long as there is no summary."""
        if self.finished is None:
            return None
        return INTERRUPTED if self.finished in BROKEN_OFF else verdict(self._summary)

    def _note_waiting(self, edge: str, ran: float, waited: float) -> None:
        ran_before, waited_before = self._waited.get(edge, (0.0, 0.0))
        self._waited[edge] = ran, waited
        both = ran - ran_before + waited - waited_before
        if both > 0 and waited >= waited_before:
            self._waiting[edge] = (waited - waited_before) / both

    def _host(self, machine: str, progress: Progress) -> dict[str, Any]:
        host = progress.hosts[machine]
        edges = [edge for edge, its in progress.machines.items() if its == machine]
        waiting = [self._waiting[edge] for edge in edges if edge in self._waiting]
        memory = [self._memory[edge] for edge in edges if edge in self._memory]
        return {
            "host": host.name,
            "cpu_percent": number(host.cpu_percent),
            "temperature_c": number(host.temperature_c),
            "throttled": host.throttled if host.throttled == "no" else host.trouble,
            "waiting_share": round(max(waiting), 4) if waiting else None,
            "rss_bytes": max(memory, default=None),
            "edges": len(edges),
        }
