"""The counters of summary.json as a reducer: it is fed what happens, in the form in which
events.jsonl and links.csv have it, while the run goes on or from these files.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from edgefl.record.rows import Row


@dataclass(slots=True)
class Counters:
    """An update that the strategy was given counts as applied unless the strategy discarded it;
    its staleness is taken on arrival, in versions.
    """

    versions: int = 0
    updates_applied: int = 0
    discards: Counter[str] = field(default_factory=Counter)  # by reason
    staleness: Counter[int] = field(default_factory=Counter)
    bytes_up: int = 0  # of transfers that have ended
    bytes_down: int = 0
    jobs_failed: Counter[str] = field(default_factory=Counter)  # by reason
    missing: list[str] = field(default_factory=list)  # edges that had not joined at the start
    capped: Counter[str] = field(default_factory=Counter)  # numbers not believed, by edge
    lost: set[str] = field(default_factory=set)  # edges that left and have not come back
    diverged_at: int | None = None  # the first version that is not finite
    marks: set[str] = field(default_factory=set)  # kinds of events, names of reported numbers

    def take(self, row: Row) -> None:
        """A line of events.jsonl: an event with its decisions, or a fact."""
        if "event" in row:
            self._event(row["event"], row)
        elif "fact" in row:
            self._fact(row["fact"], row)

    def link(self, direction: str, size_bytes: int) -> None:
        """A transfer ended."""
        if direction == "up":
            self.bytes_up += size_bytes
        else:
            self.bytes_down += size_bytes

    def of_updates(self) -> dict[str, Any]:
        """The part of summary.json about updates."""
        return {
            "updates_applied": self.updates_applied,
            "updates_discarded": dict(sorted(self.discards.items())),
        }

    def of_run(self) -> dict[str, Any]:
        """The other counters of summary.json; the rare ones only where there is something."""
        rare = {
            "diverged_at_version": self.diverged_at,
            "jobs_failed": dict(sorted(self.jobs_failed.items())) or None,
            "edges_missing": self.missing or None,
            "edges_lost": sorted(self.lost) or None,
            "numbers_capped": dict(sorted(self.capped.items())) or None,
        }
        return {
            "bytes_up": self.bytes_up,
            "bytes_down": self.bytes_down,
            "staleness": {str(gap): count for gap, count in sorted(self.staleness.items())},
            **{key: value for key, value in rare.items() if value is not None},
        }

    def _event(self, kind: str, row: Row) -> None:
        self.marks.add(kind)
        self.versions = max(self.versions, row.get("version", 0))
        discarded: list[str] = []
        for decision in row.get("decisions", ()):
            self._decision(decision, discarded)
        match kind:
            case "update_arrived" if discarded:
                self.discards[discarded[0]] += 1
            case "update_arrived":
                self.updates_applied += 1
                self.staleness[row["version"] - row["base_version"]] += 1
            case "edge_lost":
                self.lost.add(row["edge"])
            case "edge_joined":
                self.lost.discard(row["edge"])
            case "job_failed":
                self.jobs_failed[row["reason"]] += 1

    def _decision(self, decision: Mapping[str, Any], discarded: list[str]) -> None:
        match decision["do"]:
            case "publish":
                self.versions = max(self.versions, decision["version"])
            case "discard":
                discarded.append(decision["reason"])
            case "report":
                self.marks.update(decision["values"])

    def _fact(self, fact: str, row: Row) -> None:
        match fact:
            case "discarded":  # the strategy never saw this update
                self.discards[row["reason"]] += 1
            case "capped":
                self.capped[row["edge"]] += 1
            case "diverged":
                self.diverged_at = row["version"]
            case "edges_missing":
                self.missing += row["edges"]
