"""The coordinator in scripted sequences: its inputs, its outputs, and its files afterwards."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from builders import Desk, S, experiment, make, plain, vector

from edgefl.actor import Send
from edgefl.coordinator.coordinator import MOST_TRACES, Coordinator, Failures
from edgefl.coordinator.tasks import MOST_CLOSED, DeadlineOver, Tasks
from edgefl.errors import Bug
from edgefl.protocol.messages import (
    Assignment,
    FreshRequest,
    Joined,
    PushArrived,
    PushReplaced,
    Ready,
    Started,
    TaskFailed,
    Update,
    UrgeTask,
)
from edgefl.strategies.base import events_and_decisions as do
from edgefl.strategies.base import events_and_decisions as ev
from edgefl.strategies.base.catalog import load
from edgefl.strategies.base.events_and_decisions import EdgeLost, Grant
from edgefl.strategies.base.strategy import MOST_FAILED, LocalRule, Strategy
from edgefl.strategies.fedasync import FedAsync
from edgefl.strategies.fedavg import FedAvg
from emulator.faults import Fault, InOrder
from emulator.units import FOREVER

ACK = "<- Acknowledged"


class Scripted(Strategy):
    """Makes the decisions that the test gives for the kind of event.

    They are a list, or a function of event and now.
    """

    script: ClassVar[dict[type, Any]] = {}

    def handle(self, event: ev.Event, now: int) -> list[do.Decision]:
        answer = self.script.get(type(event), [])
        return answer(event, now) if callable(answer) else answer


def scripted(folder: Path, script: dict[type, Any], **sections: Any) -> Desk:
    strategy = make(Scripted)
    strategy.script = script
    return Desk(folder, strategy, **sections)


def assign(*edges: str) -> do.Assign:
    return do.Assign(edges, {"weights": vector(0, 0, 0)})


@pytest.fixture
def rounds(tmp_path: Path) -> Desk:
    """FedAvg with all of three edges in each round; round 1 has begun."""
    desk = Desk(tmp_path, make(FedAvg, clients_per_round=3))
    assert desk.start("a", "b", "c") == [
        "evaluate v0",
        "a <- task 0 v0 (0 0 0)",
        "b <- task 1 v0 (0 0 0)",
        "c <- task 2 v0 (0 0 0)",
    ]
    return desk


def test_a_round(rounds: Desk) -> None:
    assert rounds.hear("a", Started(0)) == []
    assert rounds.ready("a", 0) == ["grant a 0"]
    assert rounds.update("a", 0, 3, 0, 0) == [f"a {ACK} 0"]
    assert rounds.update("b", 1, 0, 6, 0) == [f"b {ACK} 1"]
    assert rounds.update("c", 2, 0, 0, 9, now=7 * S) == [
        f"c {ACK} 2",
        "evaluate v1",
        "a <- task 3 v1 (1 2 3)",
        "b <- task 4 v1 (1 2 3)",
        "c <- task 5 v1 (1 2 3)",
    ]
    assert [event for event in rounds.events() if event.get("task") == 0] == [
        {"t": 0.0, "fact": "task_started", "edge": "a", "task": 0},
        {"t": 0.0, "fact": "update_ready", "edge": "a", "task": 0},
        {
            "t": 0.0,
            "event": "update_arrived",
            "version": 0,
            "edge": "a",
            "task": 0,
            "base_version": 0,
            "numbers": {"samples": 1.0},
            "decisions": [],
        },
    ]
    assert rounds.events()[-1]["t"] == 7.0 and rounds.events()[-1]["decisions"] == [
        {"do": "publish", "version": 1},
        {"do": "assign", "edges": ["a", "b", "c"], "numbers": {}, "tasks": [3, 4, 5]},
    ]
    ended = rounds.summary()
    assert (ended["updates_applied"], ended["updates_discarded"], ended["staleness"]) == (
        3,
        {},
        {"0": 3},
    )


def test_a_duplicate_is_acknowledged_again_and_not_applied_twice(rounds: Desk) -> None:
    rounds.update("a", 0, 3, 0, 0)
    assert rounds.update("a", 0, 99, 99, 99) == [f"a {ACK} 0"]
    assert rounds.ready("a", 0) == [f"a {ACK} 0"], (
        "offered again after a broken session: no need to send it"
    )
    rounds.update("b", 1, 3, 0, 0)
    assert (
        "evaluate v1" in rounds.update("c", 2, 3, 0, 0)
        and plain(rounds.coordinator.weights) == "3 0 0"
    )
    assert (
        rounds.facts("duplicate", "discarded")
        == [{"t": 0.0, "fact": "duplicate", "edge": "a", "task": 0}] * 2
    )
    assert rounds.summary()["updates_applied"] == 3


# ------------------------------------------------------------------ lost and restarted edges
def test_a_lost_edges_task_closes_after_the_grace_time(rounds: Desk) -> None:
    rounds.update("a", 0, 2, 0, 0)
    rounds.update("b", 1, 4, 0, 0)
    assert (
        rounds.hear("c", EdgeLost("c"), now=5 * S) == []
        and rounds.hear("c", EdgeLost("c"), now=6 * S) == []
    )
    assert rounds.coordinator.next_due() == 15 * S and rounds.wake(15 * S - 1) == []
    assert rounds.wake(15 * S) == [
        "evaluate v1",
        "a <- task 3 v1 (3 0 0)",
        "b <- task 4 v1 (3 0 0)",
    ]
    assert [event["event"] for event in rounds.events() if event.get("edge") == "c"] == [
        "edge_joined",
        "edge_lost",
        "task_closed",
    ]
    assert rounds.update("c", 2, 9, 9, 9, now=16 * S) == [f"c {ACK} 2"], (
        "too late, but it must not offer it for ever"
    )
    assert rounds.update("c", 2, 9, 9, 9, now=17 * S) == [f"c {ACK} 2"]
    assert rounds.facts("discarded") == [
        {"t": 16.0, "fact": "discarded", "edge": "c", "task": 2, "reason": "task closed"}
    ]
    assert rounds.summary()["updates_discarded"] == {"task closed": 1}


def test_an_edge_that_is_back_in_time_keeps_its_task(rounds: Desk) -> None:
    rounds.hear("c", EdgeLost("c"), now=5 * S)
    assert rounds.hear("c", Joined(1, [2]), now=14 * S) == []
    assert rounds.wake(15 * S) == []
    assert (
        rounds.update("c", 2, 1, 1, 1, now=16 * S) == [f"c {ACK} 2"]
        and rounds.counters.updates_accepted == 1
    )


def test_a_restarted_edge_has_forgotten_its_task(rounds: Desk) -> None:
    """The edge joins without the task: it closes at once, and the edge can work again."""
    rounds.update("a", 0, 2, 0, 0)
    for edge in "bc":
        rounds.hear(edge, EdgeLost(edge), now=1 * S)
    assert rounds.hear("b", Joined(1, []), now=2 * S) == []
    assert rounds.hear("c", Joined(1, [77]), now=3 * S) == [
        "c <- CancelTask 77",
        "evaluate v1",
        "a <- task 3 v1 (2 0 0)",
        "b <- task 4 v1 (2 0 0)",
    ]
    reasons = [event["reason"] for event in rounds.events() if event.get("event") == "task_closed"]
    assert reasons == ["edge restarted or lost its task"] * 2 and rounds.wake(60 * S) == []


# ------------------------------------------------------------------ updates that cannot be used
BAD = {
    "not finite": [
        Update(0, 0, {"weights": vector(1, np.nan, 1)}, {"samples": 1.0}),
        Update(0, 0, {"weights": vector(1, 1, -np.inf)}, {"samples": 1.0}),
        Update(0, 0, {"weights": vector(1, 1, 1)}, {"samples": 1.0, "loss": float("inf")}),
    ],
    "wrong length": [
        Update(0, 0, {"weights": vector(1, 1)}, {"samples": 1.0}),
        Update(0, 0, {"w": vector(1, 1, 1)}, {"samples": 1.0}),
        Update(0, 0, {"weights": vector(1, 1, 1), "control": vector(1)}, {"samples": 1.0}),
        Update(0, 0, {}, {"samples": 1.0}),
    ],
    "wrong base version": [Update(0, 3, {"weights": vector(1, 1, 1)}, {"samples": 1.0})],
    "no samples": [
        Update(0, 0, {"weights": vector(1, 1, 1)}, {}),
        Update(0, 0, {"weights": vector(1, 1, 1)}, {"samples": -1.0}),
    ],
}


@pytest.mark.parametrize(
    ("reason", "update"),
    [(reason, update) for reason, updates in BAD.items() for update in updates],
)
def test_an_update_that_cannot_be_used_is_discarded_with_its_reason(
    rounds: Desk, reason: str, update: Update
) -> None:
    assert rounds.hear("a", update, now=S) == [f"a {ACK} 0"]
    rounds.update("b", 1, 2, 0, 0)
    assert rounds.update("c", 2, 4, 0, 0)[2:] == [
        "a <- task 3 v1 (3 0 0)",
        "b <- task 4 v1 (3 0 0)",
        "c <- task 5 v1 (3 0 0)",
    ], "the round went on without it"
    [fact] = rounds.facts("discarded")
    sizes = {name: array.size for name, array in update.vectors.items()}
    more = (
        {"found": sizes, "expected": dict.fromkeys([*sizes, "weights"], 3)}
        if reason == "wrong length"
        else {}
    )
    assert fact == {"t": 1.0, "fact": "discarded", "edge": "a", "task": 0, "reason": reason} | more
    assert [e["reason"] for e in rounds.events() if e.get("event") == "task_closed"] == [reason]
    assert rounds.update("a", 0, 1, 1, 1) == [f"a {ACK} 0"], "sent again, it stays discarded"
    ended = rounds.summary()
    assert (ended["updates_applied"], ended["updates_discarded"]) == (2, {reason: 1})


def test_the_first_model_that_is_not_finite_is_recorded_and_each_is_scored(tmp_path: Path) -> None:
    """A method may diverge and recover; neither ends the run. An older score would hold on."""
    values = iter((1.0, np.inf, 2.0, np.nan))

    def answer(event: ev.Event, now: int) -> list[do.Decision]:
        return [do.Publish(vector(next(values), 0, 0))]

    desk = scripted(tmp_path, {ev.EdgeJoined: answer}, evaluation={"every_versions": 100})
    assert [line for line in desk.start("a", "b", "c") if "evaluate" in line] == [
        "evaluate v0",
        "evaluate v2",
    ]
    assert "evaluate v4" in desk.hear("d", Joined(1, []), now=S)
    assert desk.facts("diverged") == [{"t": 0.0, "fact": "diverged", "version": 2}]
    assert desk.counters.diverged_at == 2 and desk.summary()["versions"] == 4
    assert desk.counters.version_s == 1.0


# ------------------------------------------------------------------ the end
def test_stop_at_a_version(tmp_path: Path) -> None:
    desk = Desk(tmp_path, make(FedAsync, alpha=0.5, concurrency=1), stop={"versions": 2})
    desk.start("a")
    desk.update("a", 0, 1, 0, 0)
    assert desk.update("a", 1, 1, 0, 0, version=1, now=3 * S) == [
        f"a {ACK} 1",
        "evaluate v2",
        "a <- task 2 v2 (0.75 0 0)",
        "finish: versions",
    ]
    assert desk.events()[-1] == {"t": 3.0, "fact": "finished", "reason": "versions"}
    assert (
        desk.update("a", 2, 1, 0, 0, version=2) == desk.ready("a", 2) == desk.wake(99 * S) == []
        and desk.coordinator.next_due() == FOREVER
    )
    assert (
        desk.lines(desk.coordinator.finish("again", 4 * S)) == []
        and desk.events()[-1]["fact"] == "finished"
    )


@pytest.mark.parametrize(
    ("strategy", "reason"),
    [
        (make(FedAvg, clients_per_round=2), "no round delivers: not finite"),
        (make(FedAsync, concurrency=2), "no task delivers: not finite"),
    ],
)
def test_a_run_in_which_nobody_can_deliver_ends(
    tmp_path: Path, strategy: Strategy, reason: str
) -> None:
    """A learning rate makes every model infinite, and only versions could stop the run.

    After one delivery the count begins again.
    """
    desk, refused = Desk(tmp_path, strategy), 0
    desk.start("a", "b", "c")
    for number in range(10 + 2 * MOST_FAILED):
        task, size = desk.coordinator.tasks.open[number], np.inf if number not in (8, 9) else 1.0
        lines = desk.update(task.edge, number, size, 0, 0, version=task.version)
        refused += size == np.inf
    assert lines[0] == f"{task.edge} {ACK} {number}" and lines[-1] == f"finish: {reason}"
    assert (
        desk.summary()["updates_discarded"]
        == {"not finite": refused}
        == {"not finite": 8 + 2 * MOST_FAILED}
    )


# ------------------------------------------------------------------ evaluation
def evaluated(tmp_path: Path, **evaluation: Any) -> list[str]:
    desk = Desk(
        tmp_path, make(FedAsync, concurrency=1), stop={"versions": 5}, evaluation=evaluation
    )
    lines = desk.start("a")
    for version in range(5):
        lines += desk.wake((2 * version + 1) * S)
        lines += desk.update("a", version, 1, 0, 0, version=version, now=(2 * version + 1) * S)
    return [line for line in lines if line.startswith("evaluate")]


def test_every_so_many_seconds_if_there_is_something_new(tmp_path: Path) -> None:
    """Alarms at 2, 6 (handled at 3), 7, ... s: version 0 is not evaluated twice."""
    assert evaluated(tmp_path, every_versions=0, every_s=2.0) == [
        "evaluate v0",
        "evaluate v1",
        "evaluate v2",
        "evaluate v3",
        "evaluate v4",
        "evaluate v5",
    ]


# ------------------------------------------------------------------ the strategy's mistakes
def raising(event: ev.Event, now: int) -> list[do.Decision]:
    raise ZeroDivisionError("no weights at all")


def mistake(tmp_path: Path, answer: Any) -> str:
    desk = scripted(tmp_path, {ev.RunStarted: [assign("a")], ev.UpdateArrived: answer})
    desk.start("a", "b")
    with pytest.raises(Bug) as caught:
        desk.update("a", 0, 1, 1, 1, now=5)
    return f"{caught.value} / {caught.value.__cause__}"


def test_a_strategy_that_raises_ends_the_run_with_its_story(tmp_path: Path) -> None:
    story = mistake(tmp_path, raising)
    assert story.splitlines()[0].startswith(
        "Scripted failed at {'event': 'update_arrived', 'edge': 'a', 'task': 0, 'base_version': 0"
    )
    assert [line.split("'")[3] for line in story.splitlines()[1:]] == [
        "edge_joined",
        "edge_joined",
        "run_started",
        "update_arrived",
    ]
    assert story.endswith("/ no weights at all")


MISTAKES: list[tuple[Any, str]] = [
    ([assign("b"), assign("b")], "cannot assign to 'b': it is busy"),
    ([assign("b", "b")], "cannot assign to 'b': it is busy"),
    ([assign("z")], "cannot assign to 'z': it is not connected"),
    ([do.Assign(("b",), {})], "an Assign brings nothing, expected 'weights'"),
    ([do.Assign(("b",), {"w": vector(1, 2, 3)})], "an Assign brings 'w', expected 'weights'"),
    (
        [do.Assign(("b",), {"weights": [1.0, 2.0, 3.0]})],
        "holds 'weights': a list, expected a float32 numpy array, such as one of 3 elements",
    ),
    (
        [do.Assign(("b",), {"weights": vector(1, 2, 3)}, {"mu": "x"})],
        "'mu': 'x', expected a number",
    ),
    ([do.Publish([1.0, 2.0, 3.0])], "published a list, expected float32 (3,), a numpy array"),
    ([do.Publish(None)], "published None, expected float32 (3,), a numpy array"),
    ([do.Publish(vector(1, 2))], "published float32 (2,), expected float32 (3,)"),
    ([do.Publish(np.zeros(3))], "published float64 (3,), expected float32 (3,)"),
    (
        [do.Discard(7, "x")],
        "task 7 cannot be discarded now: only the update that has just arrived can",
    ),
    ([do.Cancel("b", 9)], "edge 'b' has no open task 9"),
    ([do.Cancel("a", 0)], "edge 'a' has no open task 0"),  # it has just delivered
    ([assign("b"), do.Cancel("a", 1)], "edge 'a' has no open task 1"),
    ([assign("b"), do.SendFresh("a", 1, None)], "edge 'a' has no open task 1"),
    ([do.Grant("a", 7)], "edge 'a' has no open task 7"),
    (
        [assign("b"), do.Grant("b", 1)],
        "cannot grant the uplink for task 1: edge 'b' does not wait for it",
    ),
    (["publish"], "not a decision: 'publish'"),
    (None, "found NoneType"),
]


@pytest.mark.parametrize(("answer", "why"), MISTAKES)
def test_a_decision_that_cannot_be_carried_out_is_a_bug(
    tmp_path: Path, answer: Any, why: str
) -> None:
    assert why in mistake(tmp_path, lambda event, now: answer).splitlines()[-1]


# ------------------------------------------------------------------ pushes
class Takes(LocalRule):
    def pushed(self, run: Any, model: np.ndarray, version: int, numbers: Any) -> None:
        pass


class Anew(LocalRule):
    on_push = "restart"


def push(*edges: str, **more: Any) -> do.Push:
    return do.Push(edges, {"weights": vector(4, 5, 6)}, **more)


def pushing(folder: Path, rule: type[LocalRule], pushes: list[do.Decision]) -> Desk:
    """A strategy that gives two tasks, and pushes at 1 s."""
    alarm = do.SetAlarm("push", S)
    desk = scripted(
        folder, {ev.RunStarted: [assign("a", "b"), alarm], ev.AlarmRang: lambda event, now: pushes}
    )
    desk.coordinator.strategy.rule = rule
    desk.start("a", "b", "c")
    return desk


def test_a_push_goes_to_open_tasks_and_its_arrival_is_counted(tmp_path: Path) -> None:
    desk = pushing(tmp_path, Takes, [push("a", "b", version=7, numbers={"share": 0.5})])
    assert desk.wake(S) == ["a <- push 0 v7 (4 5 6)", "b <- push 1 v7 (4 5 6)"]
    assert desk.events()[-1]["decisions"] == [
        {"do": "push", "edges": ["a", "b"], "numbers": {"share": 0.5}, "version": 7}
        | {"replaces": True, "tasks": [0, 1]}
    ]
    assert desk.hear("a", PushArrived(0, 7), now=2 * S) == []
    assert desk.hear("b", PushReplaced(1, 7), now=2 * S) == []
    desk.update("a", 0, 1, 1, 1, now=3 * S)
    assert desk.events()[-1]["numbers"] == {"samples": 1.0, "pushes_late": 1.0}
    row = {"t": 2.0, "edge": "a", "task": 0, "of_version": 7}
    assert desk.facts("push_arrived", "push_replaced") == [
        row | {"fact": "push_arrived"},
        row | {"fact": "push_replaced", "edge": "b", "task": 1},
    ]


def test_an_update_of_a_task_that_began_anew_counts_from_the_pushed_model(tmp_path: Path) -> None:
    desk = pushing(tmp_path, Anew, [push("a", version=7)])
    desk.wake(S)
    assert desk.coordinator.tasks.open[0].version == 0, "it is the edge that begins anew"
    desk.hear("a", PushArrived(0, 7), now=2 * S)
    desk.update("a", 0, 1, 1, 1, version=7, now=3 * S)
    event = desk.events()[-1]
    assert (event["event"], event["base_version"]) == ("update_arrived", 7)
    desk.update("b", 1, 1, 1, 1, version=7, now=3 * S)
    assert desk.facts("discarded")[0]["reason"] == "wrong base version", "that was another edge"


@pytest.mark.parametrize(
    ("rule", "pushes", "why"),
    [
        (Takes, [push("c")], "cannot push to edge 'c': it has no open task"),
        (
            Takes,
            [do.Push(("a",), {"weights": vector(1, 2)})],
            "cannot push to 'a': float32 (2,), expected float32 (3,), as its task has it",
        ),
        (Takes, [do.Push(("a",), {"w": vector(1)})], "a Push brings 'w', expected 'weights'"),
        (Takes, [do.Push(("a",), {"weights": None})], "cannot push to 'a': None, expected float32"),
        (Takes, [push("a", numbers={"x": np.inf})], "its number 'x' is inf"),
        (Takes, [push(broadcast=(3, 4))], "a broadcast in slots (3, 4) to no edge"),
        (
            LocalRule,
            [push("a")],
            "Scripted pushes, but its rule LocalRule has no `pushed`: write `def pushed(self,"
            " run, model, version, numbers): ...`, which changes run.weights, or set on_push ="
            ' "restart"',
        ),
        (
            type("Odd", (Takes,), {"on_push": "again"}),
            [push("a")],
            'Odd.on_push = \'again\': expected "go_on" or "restart"',
        ),
    ],
)
def test_a_push_that_cannot_be_sent_is_a_bug(
    tmp_path: Path, rule: type[LocalRule], pushes: list[do.Decision], why: str
) -> None:
    with pytest.raises(Bug) as caught:
        pushing(tmp_path, rule, pushes).wake(S)
    assert why in str(caught.value.__cause__)


# ------------------------------------------------------------------ the other decisions
def alarms(desk: Desk) -> list[str]:
    return [
        f"{event['name']} {event['t']:g}"
        for event in desk.events()
        if event.get("event") == "alarm_rang"
    ]


def test_alarms_ring_once_at_their_last_moment(tmp_path: Path) -> None:
    desk = scripted(
        tmp_path,
        {
            ev.RunStarted: [
                do.SetAlarm("x", 5 * S),
                do.SetAlarm("y", 2 * S),
                do.SetAlarm("x", 3 * S),
                do.SetAlarm("close 1", 2 * S),
            ]
        },
    )
    desk.start("a")
    for second in (1, 2, 3, 4, 5, 6):
        desk.wake(second * S)
    assert alarms(desk) == [
        "y 2",
        "close 1 2",
        "x 3",
    ], "a strategy's alarm is its own, whatever its name"


def test_a_cancelled_task_is_not_wanted_any_more(tmp_path: Path) -> None:
    desk = scripted(
        tmp_path,
        {
            ev.RunStarted: [assign("a"), do.SetAlarm("x", S)],
            ev.AlarmRang: [do.Cancel("a", 0), assign("a")],
        },
    )
    desk.start("a")
    assert desk.wake(S) == ["a <- CancelTask 0", "a <- task 1 v0 (0 0 0)"]
    assert desk.update("a", 0, 1, 1, 1) == [f"a {ACK} 0"]
    assert [fact["reason"] for fact in desk.facts("discarded")] == ["task closed"]


def test_the_uplink_is_granted_once(tmp_path: Path) -> None:
    desk = scripted(
        tmp_path,
        {ev.RunStarted: [assign("a")], ev.UpdateReady: [do.Grant("a", 0), do.Grant("a", 0)]},
    )
    desk.coordinator.strategy.schedules_uplink = True
    desk.start("a")
    with pytest.raises(Bug) as caught:
        desk.ready("a", 0)
    assert (
        str(caught.value.__cause__)
        == "cannot grant the uplink for task 0: edge 'a' does not wait for it"
    )


def test_what_is_remembered_of_closed_tasks_does_not_grow_for_ever() -> None:
    tasks = Tasks()
    for _ in range(MOST_CLOSED + 2):
        tasks.remove(tasks.add("a", 0, vector(0)), delivered=False, late="closed")
    assert len(tasks.closed) == MOST_CLOSED
    assert not tasks.late("a", 1) and tasks.late("a", 2) and not tasks.late("a", 2)


def test_a_request_for_a_fresher_model(tmp_path: Path) -> None:
    answers = iter(
        [
            [do.SendFresh("a", 0, None)],
            [do.Publish(vector(1, 2, 3)), do.SendFresh("a", 0, vector(1, 2, 3))],
        ]
    )
    desk = scripted(
        tmp_path,
        {ev.RunStarted: [assign("a")], ev.FreshRequested: lambda event, now: next(answers)},
    )
    desk.start("a")
    assert desk.hear("a", FreshRequest(0, 0, 4)) == ["a <- NothingNewer 0"]
    assert desk.hear("a", FreshRequest(0, 0, 6), now=S) == [
        "evaluate v1",
        "a <- fresh 0 v1 (1 2 3)",
    ]
    nothing, fresh = (event for event in desk.events() if event.get("event") == "fresh_requested")
    assert nothing["decisions"] == [{"do": "send_fresh", "edge": "a", "task": 0, "version": None}]
    assert fresh | {"decisions": []} == {
        "t": 1.0,
        "event": "fresh_requested",
        "version": 0,
        "edge": "a",
        "task": 0,
        "base_version": 0,
        "step": 6,
        "until_ns": 0,
        "decisions": [],
    }
    assert fresh["decisions"][1]["version"] == 1


def test_whoever_asks_for_a_closed_task_is_called_off(rounds: Desk) -> None:
    rounds.hear("c", EdgeLost("c"), now=0)
    rounds.wake(10 * S)
    assert rounds.hear("c", FreshRequest(2, 0, 4)) == ["c <- CancelTask 2"], (
        "else it would wait for an answer for ever"
    )


def test_a_task_that_edges_would_refuse_is_the_strategys_fault(tmp_path: Path) -> None:
    """Edges accept at most 64 vectors, of eight models and one MiB in total."""
    many = {"weights": vector(1, 2, 3), **{f"v{n}": vector(1) for n in range(64)}}
    long = {"weights": vector(1, 2, 3), "more": np.zeros(300_000, np.float32)}
    for number, (vectors, told) in enumerate(
        ((many, "65 vectors, at most 64"), (long, "bytes of vectors, at most"))
    ):
        desk = scripted(tmp_path / str(number), {ev.RunStarted: [do.Assign(("a",), vectors)]})
        with pytest.raises(Bug) as caught:
            desk.start("a")
        assert told in str(caught.value.__cause__)


def test_joining_without_a_decision_is_recorded_in_its_place(tmp_path: Path) -> None:
    """Such events are recorded together; the lines and the counts are as of each alone."""

    def answer(event: ev.EdgeJoined, now: int) -> list[do.Decision]:
        return [do.SetAlarm("c has joined", S)] if event.edge == "c" else []

    desk = scripted(tmp_path, {ev.EdgeJoined: answer})
    desk.start("d", "a", "c", "b")
    joined = {"t": 0.0, "event": "edge_joined", "version": 0, "samples": 1}
    alarm = {"do": "set_alarm", "name": "c has joined", "at": 1.0}
    assert desk.events()[:4] == [
        {**joined, "edge": "a", "decisions": []},
        {**joined, "edge": "b", "decisions": []},
        {**joined, "edge": "c", "decisions": [alarm]},
        {**joined, "edge": "d", "decisions": []},
    ]
    assert desk.events()[4]["event"] == "run_started" and "edge_joined" in desk.counters.marks


# ------------------------------------------------------------------ what a strategy gets
def test_what_a_strategy_gets_is_read_only(tmp_path: Path) -> None:
    """The journal, the edges and the evaluation share these vectors."""
    heard: list[ev.UpdateArrived] = []
    model = assign("a")
    desk = scripted(
        tmp_path,
        {ev.RunStarted: [model], ev.UpdateArrived: lambda event, now: heard.append(event) or []},
    )
    desk.start("a")
    desk.update("a", 0, 1, 1, 1, now=5)
    (update,) = heard
    for vector_of in (update.base, *update.vectors.values(), *model.vectors.values()):
        with pytest.raises(ValueError, match="read-only"):
            vector_of += 1


# ------------------------------------------------------------------ a task that takes too long is
@dataclass
class Limits:
    """Limits of every task: 1 s of download, 10 s of training, 2 s of upload."""

    total_ns: int | None = None
    training: int = 10 * S

    def download_ns(
        self, edge: str, size_bytes: int, slots: tuple[int, ...] | None, now: int
    ) -> int:
        return S

    def training_ns(self, edge: str, samples: int, task: Assignment, now: int) -> int:
        return self.training

    def upload_ns(self, edge: str, size_bytes: int, now: int) -> int:
        return 2 * S


def desk_of(folder: Path, limits: Limits | None) -> Desk:
    """FedAvg's first round: tasks 0, 1 and 2 belong to a, b and c."""
    desk = Desk(folder, make(FedAvg, clients_per_round=3), limits=limits)
    desk.start("a", "b", "c")
    for number, edge in enumerate("abc"):
        desk.hear(edge, Started(number), S // 2)
    return desk


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return desk_of(tmp_path, Limits())


def closed(desk: Desk) -> list[tuple[float, str, str]]:
    return [
        (row["t"], row["edge"], row["reason"])
        for row in desk.events()
        if row.get("event") == "task_closed"
    ]


TRAINING = "timed out: training took more than 10 s"


def test_the_round_goes_on_without_an_edge_that_never_delivers(desk: Desk) -> None:
    desk.update("a", 0, 1, 1, 1), desk.update("b", 1, 3, 3, 3)
    assert desk.coordinator.next_due() == 10 * S + S // 2
    lines = desk.wake(desk.coordinator.next_due())
    assert lines[0] == "c <- CancelTask 2" and "c <- task 5 v1 (2 2 2)" in lines
    assert closed(desk) == [(10.5, "c", TRAINING)]
    assert desk.summary()["warnings"] == [
        "1 task of 1 edge (c) timed out",
        "1 edge (c) contributed nothing: 1 of 1 task had no use, mostly because of: timed out",
    ]


def test_every_phase_has_a_limit_of_its_own(tmp_path: Path) -> None:
    desk = Desk(tmp_path, make(FedAsync, concurrency=3), limits=Limits())
    desk.start("a", "b", "c")
    desk.hear("b", Started(1), S // 2), desk.hear("c", Started(2), S // 2)
    desk.hear("c", Ready(2, 100), 9 * S)
    for at_s in (1, 10.5, 11):
        assert desk.coordinator.next_due() <= at_s * S
        desk.wake(int(at_s * S))
    assert (1.0, "a", "timed out: download took more than 1 s") in closed(desk)
    assert (10.5, "b", TRAINING) in closed(desk)
    assert (11.0, "c", "timed out: upload took more than 2 s") in closed(desk)


def test_a_limit_of_all_together_counts_no_waiting(tmp_path: Path) -> None:
    desk = desk_of(tmp_path, Limits(total_ns=12 * S))
    desk.hear("a", Ready(0), 9 * S)
    desk.hear("b", FreshRequest(1, 0, 2), 6 * S)  # nothing newer: answered at once
    assert desk.coordinator.next_due() == 12 * S
    desk.wake(12 * S)
    assert {reason for _, _, reason in closed(desk)} == {
        "timed out: network.task_timeout_s = 12, in upload",
        "timed out: network.task_timeout_s = 12, in training",
    }


def test_the_time_of_a_lost_edge_does_not_count(desk: Desk) -> None:
    desk.hear("c", EdgeLost("c"), 4 * S)
    desk.hear("c", Joined(1, [2]), 13 * S)
    for edge, number in (("a", 0), ("b", 1)):
        desk.update(edge, number, 1, 1, 1, now=13 * S)
    assert desk.coordinator.alarms.at[DeadlineOver(2)][0] == 13 * S + S // 2 + 6 * S
    desk.hear("c", EdgeLost("c"), 14 * S)
    desk.wake(24 * S)
    assert closed(desk) == [(24.0, "c", "edge lost")], "the grace time is the limit then"


# ------------------------------------------------------------------ training that raises on an edg
REASON = "step 3 of 3, batch of 1 sample: ValueError: too small"


@pytest.fixture
def desk_failures(tmp_path: Path) -> Desk:
    """Tasks 0, 1 and 2 belong to a, b and c."""
    found = Desk(tmp_path, make(FedAvg, clients_per_round=3))
    found.start("a", "b", "c")
    return found


def failed(task: int, reason: str = REASON) -> TaskFailed:
    return TaskFailed(task, reason, "Traceback:\n  line 1\x1b[31m")


def test_the_round_goes_on_without_an_edge_that_fails(desk_failures: Desk) -> None:
    assert desk_failures.hear("c", failed(2), S) == ["c <- Acknowledged 2"]
    desk_failures.update("a", 0, 1, 1, 1)
    lines = desk_failures.update("b", 1, 3, 3, 3)
    assert lines[1].startswith("evaluate v1") and "c <- task 5 v1 (2 2 2)" in lines
    assert desk_failures.facts("training_failed") == [
        {
            "t": 1.0,
            "fact": "training_failed",
            "edge": "c",
            "task": 2,
            "reason": REASON,
            "trace": "Traceback:\n  line 1\\x1b[31m",
        }
    ]
    closed = [event for event in desk_failures.events() if event.get("event") == "task_closed"]
    assert [event["reason"] for event in closed] == [f"training failed: edge c, {REASON}"]
    assert desk_failures.summary()["training_failed"] == {"c": 1}


def test_with_most_edges_failing_the_run_ends_and_names_the_cause(desk_failures: Desk) -> None:
    desk_failures.hear("c", failed(2))
    lines = desk_failures.hear("a", failed(0), S)
    assert lines[-1] == f"finish: training fails on most edges: edge a, {REASON}"
    first, second = desk_failures.facts("training_failed")
    assert "trace" in first and "trace" not in second, "the same reason needs no second traceback"
    assert desk_failures.summary()["warnings"] == [
        f"training failed in 2 tasks of 2 edges (a, c), first: {REASON}"
    ]


def test_tracebacks_are_kept_of_few_reasons_only() -> None:
    """A peer may send any number of reasons."""
    failures = Failures()
    kept = [failures.add("a", f"reason {number}", "x")[1] for number in range(2 * MOST_TRACES)]
    assert kept == [{"trace": "x"}] * MOST_TRACES + [{}] * MOST_TRACES


# ------------------------------------------------------------------ the coordinator and edges that
def desk_absences(folder: Path, on_leave: str, *away: tuple[str, float, float]) -> Desk:
    """fedasync with the edges a and b, of which some are away from one second to another."""
    availability: dict[str, Any] = {"kind": "day_night", "on_leave": on_leave}
    edges = {"names": ["a", "b"], "availability": availability}
    strategy = make(load("fedasync"), concurrency=2)
    made = Desk(folder, strategy, edges=edges, network={"grace_s": 3.0}, stop={"emulated_s": 100})
    times = {
        edge: InOrder(
            [
                Fault(round(begin * S), who, "freeze", round((end - begin) * S))
                for who, begin, end in away
                if who == edge
            ]
        )
        for edge in "ab"
    }
    given = made.coordinator.experiment
    made.coordinator = Coordinator(strategy, given, made.record, absent=times)
    return made


def told(made: Desk) -> list[tuple[Any, ...]]:
    """The strategy's events about edges, with their moments."""
    return [
        (event["t"], event["event"], event["edge"])
        for event in made.events()
        if event.get("event") in ("edge_joined", "edge_lost", "task_closed")
    ]


def test_keep_pauses_a_task_and_goes_on(tmp_path: Path) -> None:
    made = desk_absences(tmp_path, "keep", ("a", 1, 3))
    made.start("a", "b")
    made.hear("a", Started(0), S // 2)
    assert made.wake(1 * S) == []
    assert made.hear("a", Ready(0), 2 * S) == [], "nothing is heard of an edge that is away"
    assert made.wake(3 * S) == ["grant a 0"]
    assert told(made) == [
        (0, "edge_joined", "a"),
        (0, "edge_joined", "b"),
        (1, "edge_lost", "a"),
        (3, "edge_joined", "a"),
    ]
    out = made.update("a", 0, 1, 1, 1, now=4 * S)
    assert out[0] == "a <- Acknowledged 0" and out[-1].startswith("a <- task 2")


def test_lose_closes_a_task_at_once(tmp_path: Path) -> None:
    made = desk_absences(tmp_path, "lose", ("a", 1, 3))
    made.start("a", "b")
    assert made.wake(1 * S) == ["a <- CancelTask 0"]
    assert told(made)[2:] == [(1, "edge_lost", "a"), (1, "task_closed", "a")]
    closed = [event for event in made.events() if event.get("event") == "task_closed"]
    assert [event["reason"] for event in closed] == ["edge left"]
    late = made.update("a", 0, 1, 1, 1, now=2 * S)
    assert late == [], "it was on its way; it is held"
    held, assigned = made.wake(3 * S)
    assert sorted((held, assigned))[0] == "a <- Acknowledged 0"
    assert [fact["reason"] for fact in made.facts("discarded")] == ["task closed"]


def test_an_edge_that_is_away_at_the_start_joins_when_it_comes(tmp_path: Path) -> None:
    made = desk_absences(tmp_path, "keep", ("a", 0, 5), ("a", 7, 8))
    assert [line.split(" (")[0] for line in made.start("a", "b")][1:] == ["b <- task 0 v0"]
    assert made.wake(5 * S)[0].startswith("a <- task 1")
    made.wake(7 * S)
    assert told(made) == [
        (0, "edge_joined", "b"),
        (5, "edge_joined", "a"),
        (7, "edge_lost", "a"),
    ]


# ------------------------------------------------------------------ edges that come back to a coor
ACK_RESUMPTION = "<- Acknowledged"


@pytest.fixture
def rounds_resumption(tmp_path: Path) -> Desk:
    """FedAvg's first round: tasks 0, 1 and 2 belong to a, b and c. All three edges train."""
    desk = Desk(tmp_path, make(FedAvg, clients_per_round=3))
    desk.start("a", "b", "c")
    for number, edge in enumerate("abc"):
        desk.hear(edge, Started(number), now=S)
    return desk


def test_an_edge_without_its_task_gets_the_same_task_again(rounds_resumption: Desk) -> None:
    assert rounds_resumption.hear("b", Joined(1, []), now=2 * S) == ["b <- task 1 v0 (0 0 0)"]
    assert rounds_resumption.hear("b", Joined(1, []), now=3 * S) == ["b <- task 1 v0 (0 0 0)"]
    rounds_resumption.hear("b", Started(1), now=4 * S)
    assert rounds_resumption.update("b", 1, 3, 0, 0, now=5 * S) == [f"b {ACK_RESUMPTION} 1"]
    assert rounds_resumption.counters.updates_accepted == 1
    assert not [row for row in rounds_resumption.events() if row.get("event") == "task_closed"]


def test_a_task_that_was_delivered_is_acknowledged_again(rounds_resumption: Desk) -> None:
    """A cancellation would make the edge forget what it has learned in this task."""
    rounds_resumption.update("a", 0, 3, 0, 0)
    assert rounds_resumption.hear("a", Joined(1, [0]), now=2 * S) == [f"a {ACK_RESUMPTION} 0"]
    assert rounds_resumption.ready("a", 0) == [f"a {ACK_RESUMPTION} 0"]
    assert [fact["task"] for fact in rounds_resumption.facts("duplicate")] == [0]


def test_an_offer_after_the_resumption_gets_the_same_grant(rounds_resumption: Desk) -> None:
    assert rounds_resumption.ready("a", 0) == ["grant a 0"]
    rounds_resumption.hear("a", Joined(1, [0]), now=2 * S)
    assert rounds_resumption.ready("a", 0) == ["grant a 0"]
    assert len(rounds_resumption.facts("update_ready")) == 1
    assert rounds_resumption.update("a", 0, 3, 0, 0) == [f"a {ACK_RESUMPTION} 0"]


def test_an_edge_that_lost_an_offered_update_trains_again_under_the_same_grant(
    rounds_resumption: Desk,
) -> None:
    rounds_resumption.ready("a", 0)
    assert rounds_resumption.hear("a", Joined(1, []), now=2 * S) == ["a <- task 0 v0 (0 0 0)"]
    rounds_resumption.hear("a", Started(0), now=3 * S)
    assert rounds_resumption.ready("a", 0) == ["grant a 0"]


def test_an_offer_after_a_broken_session_of_the_resumed_run_is_a_new_one(
    rounds_resumption: Desk,
) -> None:
    """As in any run: the transfer was forgotten, so the strategy schedules it again."""
    rounds_resumption.ready("a", 0)
    rounds_resumption.hear("a", Joined(1, [0]), now=2 * S)
    rounds_resumption.ready("a", 0)
    rounds_resumption.hear("a", EdgeLost("a"), now=3 * S)
    rounds_resumption.hear("a", Joined(1, [0]), now=3 * S)
    assert rounds_resumption.ready("a", 0) == ["grant a 0"]
    assert len(rounds_resumption.facts("update_ready")) == 2


# ------------------------------------------------------------------ a part of the run was lost


def test_an_update_of_an_unknown_task_is_discarded_with_its_reason(rounds_resumption: Desk) -> None:
    """The journal's last entries were lost: the edge knows more than this run."""
    assert rounds_resumption.hear("a", Joined(1, [0, 7]), now=2 * S) == ["a <- CancelTask 7"]
    assert rounds_resumption.ready("a", 7) == [f"a {ACK_RESUMPTION} 7"]
    assert rounds_resumption.ready("a", 7) == [f"a {ACK_RESUMPTION} 7"]
    assert [(fact["task"], fact["reason"]) for fact in rounds_resumption.facts("discarded")] == [
        (7, "unknown task")
    ]
    assert [fact["task"] for fact in rounds_resumption.facts("duplicate")] == [7]


def test_a_number_that_an_edge_knows_from_the_lost_part_is_not_given_to_it_again() -> None:
    tasks = Tasks()
    assert tasks.add("a", 0, vector(0, 0, 0)).number == 0
    tasks.knows("b", [1, 2, 5])
    assert tasks.add("a", 0, vector(0, 0, 0)).number == 1
    assert [tasks.add("b", 0, vector(0, 0, 0)).number for _ in range(3)] == [3, 4, 6]
    tasks.knows("b", [6])
    assert tasks.foreign == {}
    assert tasks.knows("b", [6, 7, 8]) == [7, 8], "6 is the last one that was given"


# ------------------------------------------------------------------ a strategy that schedules
class Scheduling(Strategy):
    """Assigns to each edge; grants the uplink and urges when the test's alarms ring."""

    schedules_uplink = True
    asked = 0

    def handle(self, event: ev.Event, now: int) -> list[do.Decision]:
        match event:
            case ev.EdgeJoined() if event.edge not in self.running:
                self.mark_running([event.edge])
                return [do.Assign((event.edge,), {"weights": self.weights})]
            case ev.UpdateReady():
                self.asked += 1
            case ev.AlarmRang("grant"):
                return [Grant("a", 0, (3, 4))]
            case ev.AlarmRang("urge"):
                return [do.Urge("a")]
            case ev.RunStarted():
                return [do.SetAlarm("urge", S), do.SetAlarm("grant", 2 * S)]
        return []


class Silent:
    """A recorder that writes nothing."""

    def event(self, *arguments: Any) -> None: ...

    fact = joined = link = snapshot = metrics = event


@pytest.fixture
def scheduling() -> Coordinator:
    coordinator = Coordinator(make(Scheduling), experiment(), Silent())
    coordinator.start({"a": 1}, 0)
    return coordinator


def test_an_offer_that_waits_for_its_grant_goes_on_waiting(scheduling: Coordinator) -> None:
    assert scheduling.receive("a", Ready(0, 8), S // 2) == []
    assert scheduling.receive("a", Joined(1, [0]), S // 2) == []
    assert scheduling.receive("a", Ready(0, 8), S // 2) == []
    assert scheduling.strategy.asked == 1
    assert scheduling.wake(2 * S)[-1:] == [Grant("a", 0, (3, 4))]
    scheduling.receive("a", Joined(1, [0]), 2 * S)
    assert scheduling.receive("a", Ready(0, 8), 2 * S) == [Grant("a", 0, (3, 4))]


def test_an_urged_edge_is_urged_again_if_it_still_trains(scheduling: Coordinator) -> None:
    assert scheduling.receive("a", Joined(1, [0]), 0) == []
    scheduling.wake(S)
    assert scheduling.receive("a", Joined(1, [0]), S) == [Send("a", UrgeTask(0))]
    scheduling.receive("a", Ready(0, 8), S)
    assert scheduling.receive("a", Joined(1, [0]), S) == []
    (again,) = scheduling.receive("a", Joined(1, []), S)
    assert isinstance(again.message, Assignment)


def test_an_edge_that_was_lost_while_it_was_urged_is_urged_when_it_is_back(
    scheduling: Coordinator,
) -> None:
    """A note to an edge without a session is lost; without it the edge would train to its end."""
    scheduling.receive("a", ev.EdgeLost("a"), S // 2)
    scheduling.wake(S)
    assert scheduling.receive("a", Joined(1, [0]), S) == [Send("a", UrgeTask(0))]
