"""The counters of summary.json, as a reducer over the rows of events.jsonl and links.csv.

It takes these rows during the run, or later from the files.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from edgefl.record.files import Row


@dataclass(slots=True)
class Counters:
    """The counts of one run.

    An update is *received* when it is offered to the coordinator, *applied* when a published model
    contains it, *discarded* by the coordinator or the strategy, and *waiting* before that.
    Staleness is in versions, taken on arrival, for updates that are not discarded on arrival.
    """

    versions: int = 0
    version_s: float = 0.0  # when the latest one was published; `take` knows it from lines with "t"
    updates_received: int = 0
    updates_applied: int = 0
    waiting: dict[int, str] = field(default_factory=dict)  # task whose update is held -> its edge
    applied: Counter[str] = field(default_factory=Counter)  # updates, by edge
    # by edge: its tasks without a use, by reason; and the last of them
    unused: dict[str, Counter[str]] = field(default_factory=dict)
    last_unused: dict[str, int] = field(default_factory=dict)
    discards: Counter[str] = field(default_factory=Counter)  # by reason
    staleness: Counter[int] = field(default_factory=Counter)
    bytes_up: int = 0  # of transfers that have ended
    bytes_down: int = 0
    training_failed: Counter[str] = field(default_factory=Counter)  # tasks, by edge
    first_failure: str = ""  # the reason of the first failed training
    timed_out: Counter[str] = field(default_factory=Counter)  # tasks, by edge
    skipped: Counter[str] = field(default_factory=Counter)  # evaluations, by reason
    jobs_failed: Counter[str] = field(default_factory=Counter)  # by reason
    missing: list[str] = field(default_factory=list)  # edges that had not joined at the start
    capped: Counter[str] = field(default_factory=Counter)  # implausible numbers, by edge
    lost: set[str] = field(default_factory=set)  # edges that left and did not rejoin
    diverged_at: int | None = None  # the first version that is not finite
    # kinds of events, names of reported numbers, and "push"
    marks: set[str] = field(default_factory=set)

    @property
    def updates_accepted(self) -> int:
        """Received and not discarded: applied or waiting."""
        return self.updates_received - self.discards.total()

    def take(self, row: Row) -> None:
        """Count a line of events.jsonl: an event with its decisions, or a fact."""
        if "event" in row:
            self._event(row["event"], row)
        elif "fact" in row:
            self._fact(row["fact"], row)

    def joined(self, version: int, edges: Sequence[str]) -> None:
        """Count the lines of these edges' joining, on which nothing was decided."""
        self._event("edge_joined", {"version": version, "edge": edges[0]})
        self.lost.difference_update(edges)

    def arrived(self, tasks: Sequence[int], edges: Sequence[str], staleness: Sequence[int]) -> None:
        """Count the events of these updates' arrival, none of which was discarded at once."""
        self.marks.add("update_arrived")
        self.updates_received += len(tasks)
        self.waiting.update(zip(tasks, edges))
        self.staleness.update(staleness)

    def published(self, version: int, t: float) -> None:
        """Count a model that contains all updates that wait."""
        self._publish({"version": version}, t)

    def link(self, direction: str, size_bytes: int) -> None:
        """Count a finished transfer of ``size_bytes``; ``direction`` is "up" or "down"."""
        if direction == "up":
            self.bytes_up += size_bytes
        else:
            self.bytes_down += size_bytes

    def of_updates(self) -> dict[str, Any]:
        """Return the part of summary.json about updates."""
        return {
            "updates_received": self.updates_received,
            "updates_applied": self.updates_applied,
            "updates_discarded": dict(sorted(self.discards.items())),
        }

    def of_run(self) -> dict[str, Any]:
        """Return the other counters of summary.json; rare ones only if they are not empty."""
        rare = {
            "diverged_at_version": self.diverged_at,
            "training_failed": dict(sorted(self.training_failed.items())) or None,
            "training_failed_first": self.first_failure or None,
            "tasks_timed_out": dict(sorted(self.timed_out.items())) or None,
            "evaluations_skipped": dict(sorted(self.skipped.items())) or None,
            "jobs_failed": dict(sorted(self.jobs_failed.items())) or None,
            "edges_missing": self.missing or None,
            "edges_lost": sorted(self.lost) or None,
            "numbers_capped": dict(sorted(self.capped.items())) or None,
            "edges_unused": self._edges_unused() or None,
        }
        return {
            "bytes_up": self.bytes_up,
            "bytes_down": self.bytes_down,
            "staleness": {str(gap): count for gap, count in sorted(self.staleness.items())},
            **{key: value for key, value in rare.items() if value is not None},
        }

    def _edges_unused(self) -> dict[str, dict[str, Any]]:
        """The edges most of whose tasks had no use: number of tasks, of those without use, and the
        most frequent reason. A task without use ended with a discarded update or without one.
        """
        found = {}
        for edge, reasons in sorted(self.unused.items()):
            count = reasons.total()
            tasks = count + self.applied[edge]
            if 2 * count > tasks:
                reason = reasons.most_common(1)[0][0]
                found[edge] = {"tasks": tasks, "unused": count, "reason": reason}
        return found

    def _has_no_use(self, edge: str, task: int, reason: str) -> None:
        if self.last_unused.get(edge) != task:  # an update may be late after a time-out
            self.last_unused[edge] = task
            self.unused.setdefault(edge, Counter())[reason] += 1

    def _event(self, kind: str, row: Row) -> None:
        self.marks.add(kind)
        self.versions = max(self.versions, row.get("version", 0))
        decisions = row.get("decisions", ())
        arrived = kind == "update_arrived"
        if arrived:
            self.updates_received += 1
            self.waiting[row["task"]] = row["edge"]
        for decision in decisions:  # first: a model published now does not contain these
            if decision["do"] == "discard":
                self._discard(decision)
        if arrived and row["task"] in self.waiting:
            self.staleness[row["version"] - row["base_version"]] += 1
        for decision in decisions:
            if decision["do"] == "publish":
                self._publish(decision, row.get("t", self.version_s))
            elif decision["do"] == "report":
                self.marks.update(decision["values"])
            elif decision["do"] == "push":
                self.marks.add("push")
        if kind == "edge_lost":
            self.lost.add(row["edge"])
        elif kind == "edge_joined":
            self.lost.discard(row["edge"])
        elif kind == "job_failed":
            self.jobs_failed[row["reason"]] += 1

    def _discard(self, decision: Mapping[str, Any]) -> None:
        if decision["task"] in self.waiting:
            edge = self.waiting.pop(decision["task"])
            self.discards[decision["reason"]] += 1
            self._has_no_use(edge, decision["task"], decision["reason"])

    def _publish(self, decision: Mapping[str, Any], t: float) -> None:
        self.versions, self.version_s = max(self.versions, decision["version"]), t
        for task in decision.get("made_of", list(self.waiting)):
            edge = self.waiting.pop(task, None)
            if edge is not None:
                self.updates_applied += 1
                self.applied[edge] += 1

    def _fact(self, fact: str, row: Row) -> None:
        match fact:
            case "discarded":  # the strategy never saw this update
                self.updates_received += 1
                self.discards[row["reason"]] += 1
                self._has_no_use(row["edge"], row["task"], row["reason"])
            case "capped":
                self.capped[row["edge"]] += 1
            case "task_timed_out":
                self.timed_out[row["edge"]] += 1
                self._has_no_use(row["edge"], row["task"], "timed out")
            case "evaluation_skipped":
                self.skipped["no room" if "error" in row else "too many under way"] += 1
            case "training_failed":
                self.training_failed[row["edge"]] += 1
                self.first_failure = self.first_failure or row["reason"]
                self._has_no_use(row["edge"], row["task"], "training failed")
            case "diverged":
                self.diverged_at = row["version"]
            case "edge_away":  # it leaves as the config says
                self.lost.discard(row["edge"])
            case "edges_missing":
                self.missing += row["edges"]
