"""Proof from a run's record that every acknowledged update counts exactly once.

``ExactlyOnce`` takes the rows of events.jsonl one by one, and lists what is wrong:

- versions rise by one;
- task numbers rise by one, an edge has one open task, and a task ends once;
- an update belongs to an open task of its edge and to the model that the task named;
- an update is in one published model, or is discarded with a reason, or still waits;
- an update that an edge knows as acknowledged has one of these fates.

``check_run`` applies this to the directory of a run, however often the run was resumed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from edgefl.record.files import EVENTS
from edgefl.results.read import read_events

MOST_FAULTS = 20  # the first ones say enough


@dataclass(slots=True)
class GivenTask:
    """A task: its edge, the version that it starts from, and how it ended ("": it is open).

    ``pushed``: versions that were pushed to it. ``to_come``: how many of them may still arrive.
    """

    edge: str
    version: int
    end: str = ""
    pushed: Counter[int] = field(default_factory=Counter)
    to_come: Counter[int] = field(default_factory=Counter)


@dataclass(slots=True)
class ExactlyOnce:
    """A reducer over the rows of a run. ``faults``: one sentence for each broken rule."""

    version: int = 0
    tasks: dict[int, GivenTask] = field(default_factory=dict)
    working: dict[str, int] = field(default_factory=dict)  # edge -> its open task
    waiting: set[int] = field(default_factory=set)  # arrived, and in no model yet
    applied: dict[int, int] = field(default_factory=dict)  # task -> the version with its update
    discarded: dict[int, str] = field(default_factory=dict)  # task -> reason
    failed: set[int] = field(default_factory=set)  # tasks whose training failed
    facts: Counter[str] = field(default_factory=Counter)
    finished: str | None = None
    faults: list[str] = field(default_factory=list)
    row: Mapping[str, Any] = field(default_factory=dict)  # the latest

    @property
    def arrived(self) -> int:
        """How many updates the coordinator has received."""
        return len(self.applied) + len(self.waiting) + len(self.discarded)

    def take(self, row: Mapping[str, Any]) -> None:
        """Check the next row."""
        self.row = row
        if "event" in row:
            self._event(row)
        elif "fact" in row:
            self._fact(row)

    def acknowledged(self, edge: str, task: int) -> None:
        """Check an acknowledgement that this edge got for its update of ``task``."""
        given = self.tasks.get(task)
        if given is None and task in self.discarded:
            return  # this history never gave the task, and says so
        if given is None or given.edge != edge:
            self._wrong(f"edge {edge}: task {task} was acknowledged, and never given to it")
        elif not any(task in each for each in (self.applied, self.waiting, self.discarded)):
            ended = given.end or "open"
            self._wrong(f"edge {edge}: task {task} was acknowledged, and its update lost ({ended})")

    def _wrong(self, sentence: str) -> None:
        if len(self.faults) < MOST_FAULTS:
            self.faults.append(f"t={self.row.get('t')}: {sentence}")

    # ------------------------------------------------------------------ events
    def _event(self, row: Mapping[str, Any]) -> None:
        if self.finished is not None:
            self._wrong(f"{row['event']} after the end")
        if row["version"] != self.version:
            self._wrong(f"an event at version {row['version']}, expected {self.version}")
        if row["event"] == "update_arrived":
            self._arrived(row)
        elif row["event"] == "task_closed":
            self._ended(row["edge"], row["task"], f"closed: {row['reason']}")
        decisions = row.get("decisions", ())
        for decision in decisions:  # first: a model of the same event does not contain these
            if decision["do"] == "discard":
                self._discarded(decision["task"], decision["reason"])
        for decision in decisions:
            self._decision(decision)

    def _arrived(self, row: Mapping[str, Any]) -> None:
        task, given = row["task"], self.tasks.get(row["task"])
        self._ended(row["edge"], task, "arrived")
        taken = sum(int(row.get("numbers", {}).get(name, 0)) for name in ("pushes", "pushes_late"))
        # a coordinator that was killed may not know of an arrival
        if given is not None and not (
            given.pushed.total() - given.to_come.total() <= taken <= given.pushed.total()
        ):
            self._wrong(
                f"task {task}: {taken} pushes were taken or too late, pushed were {given.pushed},"
                f" under way {given.to_come}"
            )
        if given is not None and row["base_version"] not in (given.version, *given.pushed):
            self._wrong(
                f"task {task}: its update starts from version {row['base_version']}, expected"
                f" {given.version}"
            )
        self.waiting.add(task)

    def _ended(self, edge: str, task: int, end: str) -> None:
        given = self.tasks.get(task)
        if given is None:
            self._wrong(f"task {task} of edge {edge}: {end}, and never given")
            return
        if given.edge != edge:
            self._wrong(f"task {task} of edge {given.edge}: {end} by edge {edge}")
        if given.end:
            self._wrong(f"task {task} of edge {edge}: {end}, and before: {given.end}")
        given.end = end
        if self.working.get(given.edge) == task:
            del self.working[given.edge]

    def _decision(self, decision: Mapping[str, Any]) -> None:
        match decision["do"]:
            case "assign":
                for edge, task in zip(decision["edges"], decision["tasks"], strict=True):
                    self._given(edge, task)
            case "cancel":
                self._ended(decision["edge"], decision["task"], "cancelled")
            case "publish":
                self._published(decision)
            case "push":
                for edge, task in zip(decision["edges"], decision["tasks"], strict=True):
                    self._pushed(edge, task, decision["version"])

    def _pushed(self, edge: str, task: int, version: int) -> None:
        if self.working.get(edge) != task:
            self._wrong(f"a push to task {task} of edge {edge}, which is not open")
            return
        self.tasks[task].pushed[version] += 1
        self.tasks[task].to_come[version] += 1

    def _push_ended(self, fact: str, task: int, version: int) -> None:
        """A push has arrived, or was dropped for a later one."""
        given = self.tasks.get(task)
        if given is None or not given.to_come[version]:
            self._wrong(f"{fact}: version {version} for task {task}, which was not under way")
            return
        given.to_come[version] -= 1
        if fact == "push_replaced":
            given.pushed[version] -= 1

    def _given(self, edge: str, task: int) -> None:
        if task != len(self.tasks):
            self._wrong(f"task {task} was given, expected task {len(self.tasks)}")
        if edge in self.working:
            self._wrong(f"edge {edge} got task {task} while it had task {self.working[edge]}")
        self.tasks[task] = GivenTask(edge, self.version)
        self.working[edge] = task

    def _published(self, decision: Mapping[str, Any]) -> None:
        if decision["version"] != self.version + 1:
            self._wrong(f"version {decision['version']} was published after {self.version}")
        self.version = decision["version"]
        for task in decision.get("made_of", sorted(self.waiting)):
            if task in self.waiting:
                self.waiting.remove(task)
                self.applied[task] = self.version
            else:
                before = self.discarded.get(task) or self.applied.get(task, "it did not arrive")
                self._wrong(f"version {self.version} has the update of task {task}: {before}")

    def _discarded(self, task: int, reason: str) -> None:
        if not reason:
            self._wrong(f"the update of task {task} was discarded without a reason")
        if task not in self.waiting:
            self._wrong(f"the update of task {task} was discarded, and had not just arrived")
        self.waiting.discard(task)
        self.discarded[task] = reason

    # ------------------------------------------------------------------ facts
    def _fact(self, row: Mapping[str, Any]) -> None:
        self.facts[row["fact"]] += 1
        match row["fact"]:
            case "discarded":
                self._refused(row["task"], row["reason"])
            case "training_failed":
                self.failed.add(row["task"])
            case "push_arrived" | "push_replaced" as fact:
                self._push_ended(fact, row["task"], row["of_version"])
            case "finished":
                self.finished = row["reason"]

    def _refused(self, task: int, reason: str) -> None:
        """An update that the strategy never got: it was invalid, or its task had ended."""
        if not reason:
            self._wrong(f"the update of task {task} was discarded without a reason")
        given = self.tasks.get(task)
        if task in self.discarded or (given is not None and given.end == "arrived"):
            self._wrong(f"the update of task {task} was discarded, and had a fate before")
        self.discarded[task] = reason


def check_rows(
    rows: Iterable[Mapping[str, Any]], acknowledged: Iterable[tuple[str, int]] = ()
) -> ExactlyOnce:
    """Check all rows of a run, then what the edges know as acknowledged: (edge, task)."""
    found = ExactlyOnce()
    for row in rows:
        found.take(row)
    for edge, task in acknowledged:
        found.acknowledged(edge, task)
    return found


def check_run(directory: Path, acknowledged: Iterable[tuple[str, int]] = ()) -> ExactlyOnce:
    """Check a run's directory: its events, and that summary.json counts the same."""
    found = check_rows(read_events(directory / EVENTS), acknowledged)
    path = directory / "summary.json"
    if path.exists():
        summary = orjson.loads(path.read_bytes())
        counted = {
            "versions": found.version,
            "updates_received": found.arrived,
            "updates_applied": len(found.applied),
            "updates_discarded": dict(sorted(Counter(found.discarded.values()).items())),
        }
        for name, value in counted.items():
            if summary[name] != value:
                found.faults.append(f"summary.json: {name} is {summary[name]}, expected {value}")
    return found
