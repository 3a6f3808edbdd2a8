"""The server's half of an algorithm: ``handle(event, now) -> [decisions]``. It reads no clock
and does no I/O.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Generator, Mapping
from typing import Any, ClassVar

import numpy as np
from pydantic import AliasChoices, BaseModel, ConfigDict, model_validator

from edgefl.jobs import Job, Result
from edgefl.strategies.base.decisions import Assign, Decision, Finish, SendFresh
from edgefl.strategies.base.events import (
    AlarmRang,
    EdgeJoined,
    EdgeLost,
    Event,
    FreshRequested,
    JobDone,
    JobFailed,
    RunStarted,
    TaskClosed,
    UpdateArrived,
    UpdateReady,
)
from edgefl.strategies.base.local_rule import LocalRule
from edgefl.streams import Streams
from edgefl.vectors import Layout

# rounds' worth of tasks in a row without a delivery, say with a learning rate that makes every
# model infinite: no hope for the next
MOST_FAILED = 100


class StrategyOptions(BaseModel):
    """Base of every algorithm's options: immutable, unknown keys refused.

    An option that has a new name takes the old one too: ``Field(..., validation_alias=
    AliasChoices("new", "old"))``. The old name is accepted with a warning.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    @classmethod
    def old_keys(cls) -> dict[str, str]:
        """Old names of options -> today's."""
        return {
            key: name
            for name, field in cls.model_fields.items()
            if isinstance(field.validation_alias, AliasChoices)
            for key in field.validation_alias.choices
            if isinstance(key, str) and key != name
        }

    @model_validator(mode="before")
    @classmethod
    def _one_key_per_option(cls, given: Any) -> Any:
        for old, name in cls.old_keys().items():
            if isinstance(given, Mapping) and old in given and name in given:
                raise ValueError(
                    f"{old} is the old name of {name}: expected {name} alone, found both"
                )
        return given


class Strategy:
    """Base of every algorithm: keeps book of who is there and who works, and calls one small method
    an event.

    ``idle`` and ``running`` are what an algorithm selects from. A subclass overrides the methods
    below ``handle`` that it needs.
    """

    Options: ClassVar[type[StrategyOptions]] = StrategyOptions
    rule: ClassVar[type[LocalRule]] = LocalRule
    # True: the paper's equations were not available; every listing and table says so
    reconstructed: ClassVar[bool] = False
    delivers: ClassVar[str] = "weights"  # the vector that every update has
    # True: UpdateReady is the algorithm's to answer with Grant
    schedules_uplink: ClassVar[bool] = False
    # True: on a TDMA channel nothing moves but in slots that its Grant and Assign name
    schedules_slots: ClassVar[bool] = False
    needs_unlabelled: ClassVar[bool] = False  # True: its jobs use the samples of [unlabelled]
    # True: it may decide RunJob, so that the hosts keep a worker for it
    runs_jobs: ClassVar[bool] = False
    # options that say how many edges work at one time, which can be no more than there are
    edges_at_work: ClassVar[tuple[str, ...]] = ()

    def __init__(self, weights: np.ndarray, layout: Layout, options: Any, streams: Streams) -> None:
        self.weights = weights
        self.layout = layout
        self.options = options
        self.streams = streams
        self.version = 0
        self.samples: dict[str, int] = {}  # edges that are there -> size of their data
        self.known: dict[str, int] = {}  # edges that have ever been there -> size of their data
        self.closed_for = ""  # why the latest task that was closed had no update
        # edges with an open task -> version that they started from
        self.running: dict[str, int] = {}
        self._idle: list[str] = []  # as of the last look, and since then:
        self._ran: set[str] = set()  # who ran then
        self._moved: set[str] = set()  # who came or went meanwhile

    @classmethod
    def concurrency(cls, options: Any, edges: int) -> int:
        """The most edges that may train at one time, for the check of the host's speed."""
        return edges

    @classmethod
    def warnings(cls, options: Any, epochs: int) -> list[str]:
        """What people should know of these options before they run them; ``epochs``: passes over
        an edge's data in one task.
        """
        return []

    @classmethod
    def server_samples(cls, options: Any) -> int:
        """How many training samples the server must have for jobs (its option of that name, if
        it has one).
        """
        return 0

    @classmethod
    def refuses(cls, options: Any, edges: int, medium: str, frames: bool) -> tuple[str, str] | None:
        """(key, problem) if these options cannot work with so many edges on a medium of this
        kind, divided into ``frames`` or not.
        """
        return None

    @property
    def idle(self) -> list[str]:
        """Edges that are there and have no open task, sorted. Not yours to change.

        Kept from look to look, so that thousands of idle edges cost nothing: only those that came,
        went, began or ended are looked at.
        """
        for edge in sorted(self._moved | (self._ran ^ self.running.keys())):
            place = bisect_left(self._idle, edge)
            listed = self._idle[place : place + 1] == [edge]
            free = edge in self.samples and edge not in self.running
            if free and not listed:
                self._idle.insert(place, edge)
            elif listed and not free:
                del self._idle[place]
        self._ran, self._moved = set(self.running), set()
        return self._idle

    def handle(self, event: Event, now: int) -> list[Decision]:
        """What to do about ``event`` at ``now`` (emulated ns)."""
        match event:
            case EdgeJoined():
                self.samples[event.edge] = self.known[event.edge] = event.samples
                self._moved.add(event.edge)
                return self.joined(event, now)
            case RunStarted():
                return self.started(now)
            case EdgeLost():
                self.samples.pop(event.edge, None)
                self._moved.add(event.edge)
                return []
            case TaskClosed():
                self.closed_for = event.reason
                self.running.pop(event.edge, None)
                return self.closed(event, now)
            case UpdateArrived():
                self.running.pop(event.edge, None)
                return self.arrived(event, now)
            case UpdateReady():
                return self.ready(event, now)
            case FreshRequested():
                return self.fresh_requested(event, now)
            case AlarmRang():
                return self.rang(event.name, now)
            case JobDone():
                return self.job_done(event, now)
            case JobFailed():
                return self.job_failed(event, now)
        raise TypeError(f"no such event: {event!r}")

    def started(self, now: int) -> list[Decision]:
        """All expected edges have joined."""
        return []

    def joined(self, event: EdgeJoined, now: int) -> list[Decision]:
        """An edge joined; before ``started`` there is nothing to do yet."""
        return []

    def closed(self, event: TaskClosed, now: int) -> list[Decision]:
        """A task ended without an update."""
        return []

    def arrived(self, update: UpdateArrived, now: int) -> list[Decision]:
        """A finite update of the right length."""
        return []

    def ready(self, event: UpdateReady, now: int) -> list[Decision]:
        """Asked only if ``schedules_uplink``."""
        return []

    def fresh_requested(self, event: FreshRequested, now: int) -> list[Decision]:
        """Asked only if the rule has a ``checkpoint``: the newest model, if it is newer. An edge
        that waits and gets no answer waits without end.
        """
        return [
            SendFresh(
                event.edge, event.task, self.weights if self.version > event.base_version else None
            )
        ]

    def hopeless(self, what: str) -> list[Decision]:
        """End the run: too many tasks in a row had no update."""
        return [Finish(": ".join(part for part in (what, self.closed_for) if part))]

    def rang(self, name: str, now: int) -> list[Decision]:
        """An alarm of ours."""
        return []

    def job_done(self, event: JobDone, now: int) -> list[Decision]:
        """A job of ours has ended with a finite result."""
        return []

    def job_failed(self, event: JobFailed, now: int) -> list[Decision]:
        """A job of ours will have no result."""
        return []

    def rehearsal(self) -> Generator[tuple[str, Job], Result, None]:
        """One job of each sort that it gives, with the option that is its emulated cost; what
        came of each is sent in. For `edgefl jobs`.
        """
        yield from ()

    def update_size(self, edge: str, name: str) -> int:
        """The elements that the vector ``name`` of this edge's update must have."""
        return self.layout.size

    def select(self, count: int, trigger: int) -> list[str]:
        """``count`` idle edges (fewer if there are fewer), drawn without replacement by a stream
        of this trigger.
        """
        idle = self.idle
        if count >= len(idle):
            return list(idle)
        picked = self.streams.rng("selection", trigger).choice(len(idle), size=count, replace=False)
        return [idle[index] for index in sorted(picked)]

    def assign(self, edges: list[str]) -> list[Decision]:
        """Give the edges the current version. An algorithm that tells each of them something
        else overrides this.
        """
        self.mark_running(edges)
        return [Assign(tuple(edges), {"weights": self.weights})]

    def mark_running(self, edges: list[str]) -> None:
        """The edges have been given the current version."""
        for edge in edges:
            self.running[edge] = self.version
