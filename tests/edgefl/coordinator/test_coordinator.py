"""The coordinator in scripted sequences: its inputs, its outputs, and its files afterwards."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from builders import Desk, S, make, plain, vector

from edgefl.coordinator.tasks import MOST_CLOSED, Tasks
from edgefl.errors import Bug, UserError
from edgefl.protocol.messages import FreshRequest, Joined, Started, Update
from edgefl.results.tail import read_events
from edgefl.strategies.base import events_and_decisions as do
from edgefl.strategies.base import events_and_decisions as ev
from edgefl.strategies.base.events_and_decisions import EdgeLost
from edgefl.strategies.base.strategy import MOST_FAILED, Strategy
from edgefl.strategies.fedasync import FedAsync
from edgefl.strategies.fedavg import FedAvg
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


def test_a_late_offer_of_a_closed_task_is_refused_without_its_bytes(rounds: Desk) -> None:
    rounds.hear("c", EdgeLost("c"), now=0)
    rounds.wake(10 * S)
    assert rounds.ready("c", 2) == [f"c {ACK} 2"] and rounds.ready("c", 2) == [f"c {ACK} 2"]
    assert [fact["reason"] for fact in rounds.facts("discarded")] == ["task closed"]


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


def test_another_edges_task_is_not_delivered_for_it(rounds: Desk) -> None:
    assert rounds.update("b", 0, 9, 9, 9) == [f"b {ACK} 0"] and rounds.ready("b", 0) == [
        f"b {ACK} 0"
    ]
    assert rounds.update("a", 12345, 9, 9, 9) == [f"a {ACK} 12345"], (
        "a number that nobody was given"
    )
    assert rounds.counters.updates_received == 0 and sorted(rounds.coordinator.tasks.open) == [
        0,
        1,
        2,
    ]


def test_the_first_model_that_is_not_finite_is_recorded(tmp_path: Path) -> None:
    """A method may diverge and recover; neither ends the run."""
    values = iter((1.0, np.inf, 2.0, np.nan))

    def answer(event: ev.Event, now: int) -> list[do.Decision]:
        return [do.Publish(vector(next(values), 0, 0))]

    desk = scripted(tmp_path, {ev.EdgeJoined: answer})
    desk.start("a", "b", "c")
    desk.hear("d", Joined(1, []), now=S)
    assert desk.facts("diverged") == [{"t": 0.0, "fact": "diverged", "version": 2}]
    assert desk.counters.diverged_at == 2 and desk.summary()["versions"] == 4


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


def test_stop_after_updates(tmp_path: Path) -> None:
    """Discarded updates do not count."""
    desk = Desk(tmp_path, make(FedAvg, clients_per_round=3), stop={"updates": 2})
    desk.start("a", "b", "c")
    desk.update("a", 0, np.nan, 0, 0)
    assert desk.update("b", 1, 1, 0, 0) == [f"b {ACK} 1"]
    assert desk.update("c", 2, 1, 0, 0)[-1] == "finish: updates"


def test_stop_at_an_emulated_moment(tmp_path: Path) -> None:
    desk = Desk(
        tmp_path,
        make(FedAsync, concurrency=1),
        stop={"emulated_s": 2.5},
        evaluation={"every_versions": 3},
    )
    desk.start("a")
    desk.update("a", 0, 1, 0, 0)
    assert desk.coordinator.next_due() == 5 * S // 2
    assert desk.wake(5 * S // 2) == [
        "evaluate v1",
        "finish: emulated_s",
    ], "the last model is evaluated whatever the rhythm"


def test_finish_is_the_last_decision_that_is_carried_out(tmp_path: Path) -> None:
    script = {
        ev.RunStarted: [
            assign("a"),
            do.Finish("seen enough"),
            assign("b"),
            do.Publish(vector(1, 1, 1)),
        ]
    }
    desk = scripted(tmp_path, script)
    assert desk.start("a", "b") == ["evaluate v0", "a <- task 0 v0 (0 0 0)", "finish: seen enough"]
    assert [d["do"] for d in desk.events()[-2]["decisions"]] == [
        "assign",
        "finish",
    ] and desk.events()[-1]["fact"] == "finished"


def test_after_finish_the_strategy_hears_nothing(tmp_path: Path) -> None:
    """Finish when the first of three edges joins: the other two, and RunStarted, are too late."""
    desk = scripted(tmp_path, {ev.EdgeJoined: [do.Finish("no edge wanted")]})
    assert desk.start("a", "b", "c") == ["evaluate v0", "finish: no edge wanted"]
    assert [event.get("event", event.get("fact")) for event in desk.events()] == [
        "edge_joined",
        "finished",
    ]


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


def test_every_so_many_versions(tmp_path: Path) -> None:
    assert evaluated(tmp_path, every_versions=2) == [
        "evaluate v0",
        "evaluate v2",
        "evaluate v4",
        "evaluate v5",
    ]


def test_zero_versions_switches_the_rhythm_off(tmp_path: Path) -> None:
    assert evaluated(tmp_path, every_versions=0) == ["evaluate v0", "evaluate v5"]


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


def test_what_a_strategy_returns_is_blamed_on_the_lines_of_its_methods(tmp_path: Path) -> None:
    """The traceback no longer has a line of its file."""
    desk = scripted(tmp_path, {ev.RunStarted: lambda event, now: [do.Publish([1.0])]})
    with pytest.raises(Bug) as caught:
        desk.start("a")
    assert re.search(
        r"TypeError: published a list, expected float32 \(3,\), a numpy array"
        r" \(\w+\.py: Scripted; .*handle, line \d+.*\)$",
        caught.value.blame(),
    )


def test_a_number_that_an_update_has_not_tells_those_that_it_has(tmp_path: Path) -> None:
    for names in ("numbers", "vectors"):

        def answer(event: Any, now: int, names: str = names) -> list[do.Decision]:
            return [getattr(event, names)["local_steps"]]

        script = {ev.RunStarted: [assign("a")], ev.UpdateArrived: answer}
        desk = scripted(tmp_path / names, script)
        desk.start("a")
        with pytest.raises(Bug) as caught:
            desk.update("a", 0, 1, 1, 1, now=5)
        there = {"numbers": "'samples'", "vectors": "'weights'"}[names]
        told = f"MissingName: 'local_steps', expected one of {there} (test_coordinator.py, line "
        assert told in caught.value.blame() and isinstance(caught.value.__cause__, KeyError)


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


def test_what_may_be_acknowledged_is_in_the_files(rounds: Desk) -> None:
    """Its fate is an event with its decisions, or a fact."""
    rounds.update("a", 0, 1, 0, 0)
    rounds.update("b", 1, np.nan, 0, 0)
    rounds.record.flush_fates()
    events = read_events(rounds.folder / "events.jsonl")
    assert [event.get("event", event.get("fact")) for event in events[-3:]] == [
        "update_arrived",
        "discarded",
        "task_closed",
    ]


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


def test_what_a_person_can_mend_stays_one_line(tmp_path: Path) -> None:
    def full(event: ev.Event, now: int) -> list[do.Decision]:
        raise UserError("no room on the disk")

    with pytest.raises(UserError, match="no room on the disk"):
        scripted(tmp_path, {ev.RunStarted: full}).start("a")


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


def test_no_decision_is_a_list(tmp_path: Path) -> None:
    with pytest.raises(Bug, match="Scripted failed at"):
        scripted(tmp_path, {ev.EdgeJoined: None}).start("a")


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


def adding_up(event: Any, now: int) -> list[do.Decision]:
    event.vectors["weights"][:] += 1
    return []


def test_a_change_of_a_given_vector_is_one_line_with_the_method(tmp_path: Path) -> None:
    desk = scripted(tmp_path, {ev.RunStarted: [assign("a")], ev.UpdateArrived: adding_up})
    desk.start("a")
    with pytest.raises(Bug) as caught:
        desk.update("a", 0, 1, 1, 1, now=5)
    assert "adding_up changes a vector that it was given" in caught.value.blame()
    assert "copy()" in caught.value.blame() and "\n" not in caught.value.blame()


def leaving(event: Any, now: int) -> list[do.Decision]:
    raise SystemExit(3)


def test_a_strategy_that_exits_is_a_strategy_that_fails(tmp_path: Path) -> None:
    desk = scripted(tmp_path, {ev.RunStarted: leaving})
    with pytest.raises(Bug) as caught:
        desk.start("a")
    assert re.search(r"SystemExit: 3 \(test_coordinator.py, line \d+\)$", caught.value.blame())
