"""A coordinator that is saved and made anew after each call does what an unbroken one does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from builders import Desk, S, make
from hypothesis import given, settings
from hypothesis import strategies as st
from job_strategies import Halving

from edgefl.actor import Output, Run
from edgefl.checkpoints.codec import decode, encode
from edgefl.coordinator.coordinator import Coordinator
from edgefl.coordinator.deadlines import TaskLimits
from edgefl.jobs import Evaluate
from edgefl.protocol.messages import Assignment, FreshRequest, Joined, Ready, Started, TaskFailed
from edgefl.strategies.base.catalog import load
from edgefl.strategies.base.events import EdgeLost
from edgefl.strategies.base.strategy import Strategy

OWN = ("job_strategies",)
EDGES = "abcd"


@dataclass
class Limits:
    """20 s of download, 30 s of training, 3 s of upload."""

    total_ns: int | None = None

    def download_ns(self, edge: str, size: int, slots: tuple[int, ...] | None, now: int) -> int:
        return 20 * S

    def training_ns(self, edge: str, samples: int, task: Assignment, now: int) -> int:
        return 30 * S

    def upload_ns(self, edge: str, size: int, now: int) -> int:
        return 3 * S


def strategy(name: str) -> Strategy:
    small = {"concurrency": 3, "clients_per_round": 2, "buffer_size": 2, "least_updates": 2}
    small |= {"period_s": 5.0, "clients_per_trigger": 2, "slot_s": 5.0}
    kind = Halving if name == "halving" else load(name)
    return make(kind, **{key: small[key] for key in small if key in kind.Options.model_fields})


class Unbroken(Desk):
    """Keeps the strategy's open jobs, as a host does."""

    def __init__(self, folder: Path, name: str, limits: TaskLimits | None) -> None:
        self.name, self.jobs = name, []
        stop: dict[str, Any] = {"stop": {"versions": 50, "emulated_s": 500.0}}
        super().__init__(folder, strategy(name), {"a": 3}, limits, **stop)

    def lines(self, outputs: list[Output]) -> list[str]:
        self.jobs += [
            out.job for out in outputs if isinstance(out, Run) and not isinstance(out.job, Evaluate)
        ]
        return super().lines(outputs)

    def done(self, fails: bool, now: int) -> list[str]:
        """The oldest job ends."""
        if not self.jobs:
            return []
        job = self.jobs.pop(0)
        result = {name: array * np.float32(0.5) for name, array in job.vectors.items()}
        return self.lines(
            self.coordinator.job_done(job, "broken" if fails else (result, {"samples": 4.0}), now)
        )


class Broken(Unbroken):
    """After each call the coordinator and the open jobs are saved, and made anew from that."""

    def lines(self, outputs: list[Output]) -> list[str]:
        lines = super().lines(outputs)
        old = self.coordinator
        outside = {
            "experiment": old.experiment,
            "recorder": self.record,
            "limits": old.deadlines.limits,
        }
        root = {"coordinator": old, "jobs": self.jobs}
        encoded = encode(root, outside | {"strategy": old.strategy}, OWN)
        new = outside | {"strategy": strategy(self.name)}
        found: Any = decode(encoded, new, OWN)
        self.coordinator, self.jobs = found["coordinator"], found["jobs"]
        assert isinstance(self.coordinator, Coordinator) and self.coordinator is not old
        assert self.coordinator.weights is not old.weights
        assert not self.coordinator.weights.flags.writeable
        return lines


Action = Callable[[Unbroken, str, int], list[str]]


def task_of(desk: Unbroken, edge: str) -> int:
    """The number of the edge's open task; else one that it may have had, or never."""
    task = desk.coordinator.tasks.by_edge.get(edge)
    return EDGES.index(edge) if task is None else task.number


def updated(desk: Unbroken, edge: str, now: int) -> list[str]:
    number = task_of(desk, edge)
    task = desk.coordinator.tasks.open.get(number)
    version = 0 if task is None else task.version
    return desk.update(edge, number, number, 1, now % 7, version=version, now=now)


def asked(desk: Unbroken, edge: str, now: int) -> list[str]:
    task = desk.coordinator.tasks.by_edge.get(edge)
    if task is None or task.ready or desk.name != "fedasmu":
        return []
    return desk.hear(edge, FreshRequest(task.number, task.version, 1), now)


def offered(desk: Unbroken, edge: str, now: int) -> list[str]:
    return desk.hear(edge, Ready(task_of(desk, edge), 100), now)


ACTIONS: dict[str, Action] = {
    "updated": updated,
    "trained and updated": lambda desk, edge, now: (
        desk.hear(edge, Started(task_of(desk, edge)), now)
        + offered(desk, edge, now)
        + updated(desk, edge, now)
    ),
    "started": lambda desk, edge, now: desk.hear(edge, Started(task_of(desk, edge)), now),
    "offered": offered,
    "failed": lambda desk, edge, now: desk.hear(
        edge, TaskFailed(task_of(desk, edge), "out of memory", "line 1\nline 2"), now
    ),
    "lost": lambda desk, edge, now: desk.hear(edge, EdgeLost(edge), now),
    "joined": lambda desk, edge, now: desk.hear(edge, Joined(5, []), now),
    "back": lambda desk, edge, now: desk.hear(edge, Joined(5, [task_of(desk, edge)]), now),
    "asked": asked,
    "job done": lambda desk, edge, now: desk.done(False, now),
    "job failed": lambda desk, edge, now: desk.done(True, now),
}
STEPS = st.tuples(st.sampled_from(list(ACTIONS)), st.sampled_from(EDGES), st.integers(0, 6))


def play(desk: Unbroken, story: list[tuple[str, str, int]]) -> list[list[str]]:
    lines, now = [desk.start(*EDGES[:3], b=4)], 0
    for action, edge, seconds in story:
        now += seconds * S
        while desk.coordinator.next_due() <= now:
            lines.append(desk.wake(desk.coordinator.next_due()))
        lines.append(ACTIONS[action](desk, edge, now))
    lines.append(desk.lines(desk.coordinator.finish("story ends", now)))
    return lines


@pytest.mark.parametrize("name", ["fedavg", "fedasync", "fedbuff", "fedasmu", "wkafl", "halving"])
@settings(max_examples=12)
@given(
    story=st.lists(STEPS, min_size=5, max_size=40),
    limits=st.sampled_from([None, Limits(), Limits(60 * S)]),
)
def test_any_story_goes_on_as_it_was(
    name: str, story: list[tuple[str, str, int]], limits: Limits | None
) -> None:
    with TemporaryDirectory() as folder:
        desks = [kind(Path(folder) / kind.__name__, name, limits) for kind in (Unbroken, Broken)]
        told = [play(desk, story) for desk in desks]
        assert told[0] == told[1]
        assert desks[0].events() == desks[1].events()
        assert desks[0].coordinator.record.story() == desks[1].coordinator.record.story()
        weights = [desk.coordinator.weights.tobytes() for desk in desks]
        assert weights[0] == weights[1]
        summaries = [desk.summary() for desk in desks]
        assert summaries[0] == summaries[1]


def test_a_story_with_a_known_end(tmp_path: Path) -> None:
    """A round of two: one update arrives, the other edge is lost, and its update comes too late."""
    desk = Broken(tmp_path, "fedavg", None)
    desk.start("a", "b")
    desk.hear("a", Started(0), S)
    assert desk.ready("a", 0) == ["grant a 0"]
    desk.update("a", 0, 3, 0, 0, now=2 * S)
    desk.hear("b", EdgeLost("b"), 3 * S)
    due = desk.coordinator.next_due()
    assert desk.wake(due) == ["evaluate v1", "a <- task 2 v1 (3 0 0)"]
    assert desk.coordinator.version == 1 and desk.coordinator.weights.tolist() == [3, 0, 0]
    assert desk.coordinator.weights is desk.coordinator.strategy.weights
    assert desk.update("b", 1, 1, 1, 1, now=due + S) == ["b <- Acknowledged 1"]
    assert [fact["reason"] for fact in desk.facts("discarded")] == ["task closed"]
