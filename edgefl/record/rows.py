"""Events and decisions as plain rows, for events.jsonl and the journal, and counters over them.

The rows also appear in error reports about a strategy. ``Counters``, for summary.json, take the
rows of events.jsonl and links.csv during the run, or later from the files.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
import xxhash

from edgefl.jobs import arrays, plain
from edgefl.record.files import Row
from edgefl.snake_case import snake
from edgefl.strategies.base.events_and_decisions import (
    Assign,
    Decision,
    EdgeJoined,
    Evaluated,
    Event,
    Publish,
    Push,
    RunJob,
    SendFresh,
    SetAlarm,
)
from emulator.units import seconds_text

ARRAYS = {"base", "vectors", "weights"}
OPTIONAL = {"broadcast", "slots", "made_of"}  # left out if None


_known: dict[type, tuple[str, tuple[str, ...]]] = {}


def _columns(sort: type[Event] | type[Decision]) -> tuple[str, tuple[str, ...]]:
    """Return a class's name in rows and its fields without arrays.

    Cached per class, because every event of a run is written.
    """
    if sort not in _known:
        names = tuple(f.name for f in fields(sort) if f.name not in ARRAYS)
        _known[sort] = snake(sort.__name__), names
    return _known[sort]


def event_row(event: Event) -> dict[str, Any]:
    """Return the event without its arrays, its type first."""
    sort, names = _columns(type(event))
    row = {"event": sort, **{name: getattr(event, name) for name in names}}
    if isinstance(event, Evaluated):  # a line's "version" is the current one
        row["of_version"] = row.pop("version")
    return row


def decision_row(decision: Decision) -> dict[str, Any]:
    """Return the decision without its arrays, its type first."""
    sort, names = _columns(type(decision))
    row: dict[str, Any] = {"do": sort}
    for name in names:
        value = getattr(decision, name)
        if value is not None or name not in OPTIONAL:
            row[name] = value
    return (
        row | {"job": snake(type(decision.job).__name__)} if isinstance(decision, RunJob) else row
    )


def event_line(
    event: Mapping[str, Any],
    version: int,
    decisions: list[Decision],
    numbers: list[list[int]],
    factors: Sequence[float] = (),
) -> dict[str, Any]:
    """Return the line of events.jsonl for an ``event_row`` at ``version`` and its decisions.

    ``numbers``: the task numbers of each Assign or Push. ``factors``: of the learning rate of each
    Assign, by ``training.decay``; empty without it.
    """
    return {
        "event": event["event"],
        "version": version,
        **event,
        "decisions": _decided(decisions, version, numbers, factors),
    }


def joined_lines(events: Sequence[EdgeJoined], version: int) -> list[dict[str, Any]]:
    """Return the ``event_line`` of each of these events, on which nothing was decided."""
    alike = event_line(event_row(events[0]), version, [], [])
    return [{**alike, "edge": event.edge, "samples": event.samples} for event in events]


def _decided(
    decisions: list[Decision],
    version: int,
    numbers: list[list[int]],
    factors: Sequence[float],
) -> list[dict[str, Any]]:
    """Return decision rows with task numbers and the version that each Publish makes."""
    rows, tasks, decays = [], iter(numbers), iter(factors)
    for decision in decisions:
        row = decision_row(decision)
        if isinstance(decision, Assign):
            row["tasks"] = next(tasks)
            if factors:
                row["decay"] = next(decays)
        elif isinstance(decision, Push):
            row["tasks"] = next(tasks)
            row["version"] = version if decision.version is None else decision.version
        elif isinstance(decision, Publish):
            version += 1
            row["version"] = version
        elif isinstance(decision, SendFresh):
            newer = version if decision.version is None else decision.version
            row["version"] = None if decision.weights is None else newer  # None: no newer model
        elif isinstance(decision, SetAlarm):
            row["at"] = float(seconds_text(row.pop("at_ns")))
        elif isinstance(decision, RunJob):
            row["cost_s"] = float(seconds_text(row.pop("cost_ns")))
        rows.append(row)
    return rows


def digest(array: np.ndarray) -> str:
    return xxhash.xxh3_128_hexdigest(np.ascontiguousarray(array).view(np.uint8).data)


def fingerprint(decision: Decision, digest: Callable[[np.ndarray], str] = digest) -> dict[str, Any]:
    """Return the decision with a digest in place of each array.

    Equal fingerprints mean bit-equal decisions. ``digest``: of an array, maybe from a cache.
    """
    row = decision_row(decision)
    for name in ("vectors", "weights"):
        value = getattr(decision, name, None)
        if isinstance(value, dict):
            row[name] = {key: digest(array) for key, array in value.items()}
        elif value is not None:
            row[name] = digest(value)
    return row | {"job": _job(decision.job)} if isinstance(decision, RunJob) else row


def _job(job: Any) -> dict[str, Any]:
    """Return the job's class and numbers, and a digest of each array."""
    row = {
        name: value
        for name, value in plain(job)[2].items()
        if not isinstance(value, (np.ndarray, dict))
    }
    return {
        "kind": snake(type(job).__name__),
        **row,
        **{name: digest(array) for name, array in arrays(job)},
    }


# ---------------------------------------------------------------------- counters
@dataclass(slots=True)
class Counters:
    """The counts of one run.

    An update is *received* when it is offered to the coordinator, *applied* when a published model
    contains it, *discarded* by the coordinator or the strategy, and *waiting* before that.
    Staleness is in versions, taken on arrival, for updates that are not discarded on arrival.
    """

    versions: int = 0
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

    def published(self, version: int) -> None:
        """Count a model that contains all updates that wait."""
        self._publish({"version": version})

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
                self._publish(decision)
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

    def _publish(self, decision: Mapping[str, Any]) -> None:
        self.versions = max(self.versions, decision["version"])
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
