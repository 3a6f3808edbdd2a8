"""An urged edge: its run ends at the next step, whatever its host has trained or offered.

Both clocks agree on that step.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from builders import Desk, S, make, small_run, vector
from trainers import linear_trainer

from edgefl.actor import Output, Run, Send
from edgefl.edges.edge import Edge
from edgefl.edges.training import TrainingPlan
from edgefl.hosts.setup.replay_run import replay_run
from edgefl.protocol.messages import Assignment, Update, UrgeTask
from edgefl.results.tail import read_events
from edgefl.strategies.base import events_and_decisions as do
from edgefl.strategies.base.strategy import LocalRule, Strategy
from emulator.compute import Native, Rate

PLAN = TrainingPlan(6, 2, 0.125, momentum=0.5)  # six steps of two samples


def edge(device: Any = None, rule: LocalRule | None = None) -> Edge:
    """An edge with two samples per second by default: a step takes 1 s."""
    torch.set_num_threads(1)
    return Edge("a", linear_trainer(PLAN), rule or LocalRule(None), device or Rate(2.0))


def task(number: int = 7) -> Assignment:
    return Assignment(number, 0, {"weights": vector(0, 0, 5)})


def trained(on: Edge, outputs: list[Output], began_ns: int) -> tuple[Update, int]:
    """Do the job and report it: (the update, its moment)."""
    (run,) = outputs
    assert isinstance(run, Run)
    on.trainer.advance(run.job.run, on.rule, run.job.until_step)
    end_ns = began_ns + run.duration_ns
    (sent,) = on.job_done(run.job, None, end_ns)
    assert isinstance(sent, Send)
    return sent.message, end_ns


def after(steps: int) -> list[float]:
    """The weights after so many steps."""
    one = edge()
    run = one.trainer.begin(task(), one.rule, {})
    one.trainer.advance(run, one.rule, steps)
    return run.weights.tolist()


# ------------------------------------------------------------------ the edge
@pytest.mark.parametrize(
    ("urged_ns", "steps"), [(0, 1), (1, 1), (S, 1), (S + 1, 2), (7 * S // 2, 4), (4 * S, 4)]
)
def test_the_run_ends_at_the_first_step_at_or_after_the_moment(urged_ns: int, steps: int) -> None:
    """Begun at 10 s, steps end at 11, 12, ... s; a run has at least one step."""
    one = edge()
    one.receive(task(), 10 * S)
    update, end_ns = trained(one, one.receive(UrgeTask(7), 10 * S + urged_ns), 10 * S + urged_ns)
    assert (
        end_ns == (10 + steps) * S
        and update.numbers["steps"] == steps
        and update.vectors["weights"].tolist() == after(steps)
    )


def test_what_was_trained_beyond_it_is_trained_again() -> None:
    """An edge on real sockets trains as fast as it can: here five steps while two have passed."""
    one = edge()
    (run,) = one.receive(task(), 0)
    one.trainer.advance(run.job.run, one.rule, 5)
    outputs = one.receive(UrgeTask(7), 2 * S)
    assert one.job_done(run.job, None, 6 * S) == [], (
        "the first run's end is nobody's business any more"
    )
    update, end_ns = trained(one, outputs, 2 * S)
    assert end_ns == 2 * S and update.vectors["weights"].tolist() == after(2)


def test_what_was_offered_for_later_is_taken_back() -> None:
    one = edge()
    offered, due_ns = trained(one, one.receive(task(), 0), 0)
    assert due_ns == 6 * S and offered.numbers["steps"] == 6 and list(one.unacknowledged) == [7]
    outputs = one.receive(UrgeTask(7), 3 * S)
    assert one.unacknowledged == {} and one.open_tasks == [7]
    update, end_ns = trained(one, outputs, 3 * S)
    assert (
        end_ns == 3 * S
        and update.vectors["weights"].tolist() == after(3)
        and one.unacknowledged == {7: update}
    )


def test_an_urge_that_overtakes_the_model_is_kept_for_it() -> None:
    one = edge()
    assert one.receive(UrgeTask(7), 0) == []
    update, end_ns = trained(one, one.receive(task(), 4 * S), 4 * S)
    assert end_ns == 5 * S and update.vectors["weights"].tolist() == after(1)
    assert trained(one, one.receive(task(8), 5 * S), 5 * S)[0].numbers["steps"] == 6, (
        "it was for task 7 alone"
    )


def test_a_run_that_asks_for_a_fresher_model_goes_on_to_its_end() -> None:
    class Asks(LocalRule):
        def checkpoint(self, run: Any) -> int:
            return 3

    one = edge(rule=Asks(None))
    (run,) = one.receive(task(), 0)
    assert one.receive(UrgeTask(7), S) == [] and run.job.until_step == 3


def test_real_hardware_stops_where_it_is() -> None:
    one = edge(Native())
    (run,) = one.receive(task(), 0)
    one.trainer.advance(run.job.run, one.rule, 2)
    assert one.receive(UrgeTask(7), 5 * S) == []
    assert one.trainer.advance(run.job.run, one.rule, run.job.until_step)
    (sent,) = one.job_done(run.job, None, 6 * S)
    assert sent.message.numbers["steps"] == 2


# ------------------------------------------------------------------ the coordinator
class Urges(Strategy):
    """Assigns a task, then urges the given edges at once."""

    whom = "a"

    def started(self, now: int) -> list[do.Decision]:
        self.mark_running(["a"])
        return [do.Assign(("a",), {"weights": self.weights}), do.Urge(self.whom)]


def test_the_coordinator_names_the_task(tmp_path: Path) -> None:
    desk = Desk(tmp_path, make(Urges))
    outputs = desk.coordinator.start({"a": 1}, 0)
    assert outputs[-1] == Send("a", UrgeTask(0)) and desk.events()[-1]["decisions"][-1] == {
        "do": "urge",
        "edge": "a",
    }


# ------------------------------------------------------------------ whole runs
RUN: dict[str, Any] = {
    "task": "../support/own_task.py:build",
    "stop": {"versions": 12},
    "devices": {"samples_per_s": 300.0, "slowest_ratio": 8.0},
    "training": {"epochs": 2, "batch_size": 8},
    "record": {"payloads": True},
    "strategies": [
        {"strategy": "port", "concurrency": 3, "least_updates": 1, "staleness_bound": 2}
    ],
}


def urges(directory: Path) -> list[tuple[float, str]]:
    """(moment, edge) of each."""
    return [
        (event["t"], d["edge"])
        for event in read_events(directory / "events.jsonl")
        for d in event.get("decisions", ())
        if d["do"] == "urge"
    ]


def steps(directory: Path) -> dict[int, float]:
    """By task: the steps for which its update was trained."""
    return {
        event["task"]: event["numbers"]["steps"]
        for event in read_events(directory / "events.jsonl")
        if event.get("event") == "update_arrived"
    }


def test_late_edges_report_at_once(tmp_path: Path) -> None:
    """The strategy waits for the slowest edge: it reports within one step and its upload, not at
    the end of its epochs.
    """
    _, directory = small_run(tmp_path, **RUN)
    asked = urges(directory)
    assert asked and min(steps(directory).values()) < max(steps(directory).values())
    ready = [
        (event["t"], event["edge"])
        for event in read_events(directory / "events.jsonl")
        if event.get("fact") == "update_ready"
    ]
    for moment, name in asked:
        later = [t for t, who in ready if who == name and t >= moment]
        assert not later or later[0] - moment < 8 / (300 / 8) + 0.011, (
            "a step of 8 samples at the slowest rate, and the urge's latency"
        )
    assert replay_run(directory).version == 12
