"""What the logic thread knows, saved and made anew after each input: it does the same as before."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from builders import EXAMPLES, experiment, layout, vector
from host_reports import FACTS, REPORT
from hypothesis import given, settings
from hypothesis import strategies as st

from edgefl.checkpoints.codec import decode, encode
from edgefl.hosts.setup.plan import strategy
from edgefl.hosts.setup.rundir import OpenRun
from edgefl.hosts.setup.saved_state import externals
from edgefl.hosts.wall.coordinator import thread_messages as messages
from edgefl.hosts.wall.coordinator.job_table import JobOrder, JobTable
from edgefl.hosts.wall.coordinator.run_logic import RunLogic
from edgefl.jobs import Evaluate
from edgefl.protocol.messages import (
    Assignment,
    FreshRequest,
    Joined,
    Ready,
    Started,
    TaskFailed,
    Update,
)
from edgefl.results.tail import read_events
from edgefl.strategies.base.catalog import own_modules
from edgefl.strategies.base.events import EdgeLost
from emulator.fidelity import Fidelity
from emulator.links.network import Completion, Transfer
from emulator.units import NS_PER_S as S

EDGES = "abc"
STRATEGIES: dict[str, dict[str, Any]] = {
    "rounds": {"strategy": "fedavg", "clients_per_round": 2},
    "buffered": {"strategy": "fedbuff", "concurrency": 3, "buffer_size": 2},
    "with requests": {"strategy": "fedasmu", "period_s": 5.0, "clients_per_trigger": 2},
    "with jobs": {"strategy": "../support/job_strategies.py:Halving", "concurrency": 3},
}


class Played:
    """A run's ``RunLogic`` that gets inputs; ``saved``: it is made anew after each of them."""

    def __init__(self, folder: Path, name: str, saved: bool) -> None:
        self.folder, self.name, self.saved = folder, name, saved
        self.given = experiment(
            strategies=[STRATEGIES[name]],
            stop={"versions": 40, "target_joules": 2000.0},
            devices={"energy": {"profile": "pi4"}},
            links={"radio": {"profile": "lte"}},
            network={"task_timeout_s": 20.0},
            evaluation={"every_versions": 1},
        )
        self.run = OpenRun(self.given, 0, folder, EXAMPLES, vector(0, 0, 0), layout())
        table = JobTable() if self.run.coordinator.strategy.runs_jobs else None
        self.core = RunLogic(self.run.coordinator, self.run.record, True, table)
        self.told: list[str] = []

    def give(self, item: Any) -> None:
        self.told += [told(wish) for wish in self.core.handle(item)]
        if self.saved:
            self._renew()

    def _renew(self) -> None:
        own = own_modules(type(self.run.coordinator.strategy))
        outside = externals(self.run)
        root = {"core": self.core}
        encoded = encode(root, outside, own)
        (entry,) = self.given.strategies
        fresh = strategy(self.given, entry, EXAMPLES, vector(0, 0, 0), layout())
        outside["strategy"] = fresh
        found: Any = decode(encoded, outside, own)
        assert found["core"] is not self.core and found["core"].coordinator.strategy is fresh
        self.core = found["core"]
        self.run.coordinator = self.core.coordinator


def told(wish: Any) -> str:
    """A wish as text, with the numbers of its arrays."""
    match wish:
        case messages.Carry():
            outgoing = wish.outgoing
            numbers = bytes(outgoing.piece(0, outgoing.body)).hex()
            return (
                f"{wish.now} {wish.edge} {outgoing.number} {outgoing.meta!r} {outgoing.digest}"
                f" {numbers}"
            )
        case Evaluate():
            return f"evaluate {wish.version} {wish.weights.tolist()} {wish.bytes_up}"
        case JobOrder():
            return f"job {wish.number} {wish.start_ns} {wish.due_ns}"
    return repr(wish)


def updated(played: Played, edge: str, now: int) -> list[Any]:
    task = played.core.coordinator.tasks.by_edge.get(edge)
    number, version = (0, 0) if task is None else (task.number, task.version)
    update = Update(number, version, {"weights": vector(number, 1, now // S)}, {"samples": 2.0})
    return [
        messages.Heard(now, edge, Started(number)),
        messages.Heard(now, edge, Ready(number, 12)),
        messages.Heard(now, edge, update),
        messages.Carried(completion(number, edge, now), now),
    ]


def completion(number: int, edge: str, now: int) -> Completion:
    return Completion(Transfer(number, edge, "up", 12, "update"), now, now, now)


def asked(played: Played, edge: str, now: int) -> list[Any]:
    task = played.core.coordinator.tasks.by_edge.get(edge)
    if task is None or task.ready or played.name != "with requests":
        return []
    return [messages.Heard(now, edge, FreshRequest(task.number, task.version, 1))]


def worked(played: Played, edge: str, now: int) -> list[Any]:
    """The oldest job ends."""
    if played.core.jobs is None or not played.core.jobs.open:
        return []
    order = played.core.jobs.open[min(played.core.jobs.open)]
    half = {name: array * np.float32(0.5) for name, array in order.job.vectors.items()}
    return [messages.Worked(now, order, (half, {"samples": 4.0}), 0.25)]


def evaluated(played: Played, edge: str, now: int) -> list[Any]:
    open_versions = sorted(played.core.evaluations)
    return [messages.Evaluated(open_versions[0], (1.0, 2.0, 0.5))] if open_versions else []


def number_of(played: Played, edge: str) -> int:
    task = played.core.coordinator.tasks.by_edge.get(edge)
    return 0 if task is None else task.number


ACTIONS: dict[str, Any] = {
    "updated": updated,
    "asked": asked,
    "worked": worked,
    "evaluated": evaluated,
    "started": lambda played, edge, now: [
        messages.Heard(now, edge, Started(number_of(played, edge)))
    ],
    "failed": lambda played, edge, now: [
        messages.Heard(now, edge, TaskFailed(number_of(played, edge), "no", "line"))
    ],
    "lost": lambda played, edge, now: [messages.Heard(now, edge, EdgeLost(edge))],
    "joined": lambda played, edge, now: [messages.Heard(now, edge, Joined(5, []))],
    "noticed": lambda played, edge, now: [
        messages.Noticed(now, "session_ended", {"edge": edge}),
        messages.HostSaid(now, edge, FACTS),
        messages.HostSaid(now, edge, REPORT),
    ],
    "judged": lambda played, edge, now: [
        messages.Judged(now, Fidelity(), [["late", edge, 1]], {edge: "too many"})
    ],
    "resumed": lambda played, edge, now: [messages.Resumed(now, 12.5, 1e9)],
}
STEPS = st.tuples(st.sampled_from(list(ACTIONS)), st.sampled_from(EDGES), st.integers(0, 6))


def play(played: Played, story: list[tuple[str, str, int]]) -> None:
    played.give(messages.Begin(dict.fromkeys(EDGES, 2), 1e9))
    now = 0
    for action, edge, seconds in story:
        now += seconds * S
        while played.core.next_due() <= now:
            played.give(messages.Rang(played.core.next_due()))
        for item in ACTIONS[action](played, edge, now):
            played.give(item)
    played.give(messages.Interrupt("story ends"))
    played.run.record.flush()


@pytest.mark.parametrize("name", STRATEGIES)
@settings(max_examples=10)
@given(story=st.lists(STEPS, min_size=5, max_size=30))
def test_any_story_goes_on_as_it_was(name: str, story: list[tuple[str, str, int]]) -> None:
    with TemporaryDirectory() as folder:
        whole, parts = (Played(Path(folder) / str(saved), name, saved) for saved in (False, True))
        play(whole, story)
        play(parts, story)
        assert parts.told == whole.told
        for file in ("events.jsonl", "links.csv", "hosts.csv", "energy.csv"):
            paths = [each.folder / file for each in (whole, parts)]
            assert paths[0].exists() == paths[1].exists()
            assert not paths[0].exists() or paths[0].read_bytes() == paths[1].read_bytes()
        assert parts.core.outages == whole.core.outages
        assert parts.core.hosts.section() == whole.core.hosts.section()
        books = [each.core.coordinator.record.energy for each in (whole, parts)]
        assert books[0] is not None and books[0] is not books[1]
        assert books[0].section(whole.core.now) == books[1].section(whole.core.now)
        assert read_events(whole.folder / "events.jsonl")[-1]["fact"] == "finished"


def test_a_model_on_its_way_is_the_strategy_s_array_again(tmp_path: Path) -> None:
    """It is sent again from the same memory: no copy per edge."""
    played = Played(tmp_path, "rounds", True)
    played.give(messages.Begin(dict.fromkeys(EDGES, 2), 1e9))
    coordinator = played.core.coordinator
    sent = [each.message for each in played.core.downloads.open(coordinator.tasks.open)]
    assert len(sent) == 2 and all(isinstance(message, Assignment) for message in sent)
    assert all(message.vectors["weights"] is coordinator.weights for message in sent)
