"""FedCompass by hand: speeds, groups that deliver together, late devices (Li et al. 2024)."""

from __future__ import annotations

from typing import Any

import pytest
from builders import S, Server, make

from edgefl.strategies.base.events_and_decisions import AlarmRang, Assign, Publish, Report, SetAlarm
from edgefl.strategies.fedcompass import FedCompass
from edgefl.vectors import Layout, LayoutEntry


def compass(**options: Any) -> Server:
    """Q_max = 10, Q_min = 2, lambda = 1.5; all of a step's weight is 1 if all are fresh."""
    return Server(make(FedCompass, **{"max_steps": 10, "alpha": 1.0} | options))


def steps_of(story: Server) -> dict[str, float]:
    """The steps of the tasks that the last event has led to."""
    assigned = [each for each in story.decisions if isinstance(each, Assign)]
    return {edge: each.numbers["most_steps"] for each in assigned for edge in each.edges}


def alarms(story: Server) -> list[tuple[str, float]]:
    return [(each.name, each.at_ns / S) for each in story.decisions if isinstance(each, SetAlarm)]


def reported(story: Server) -> dict[str, float]:
    return next(each.values for each in story.decisions if isinstance(each, Report))


def at(story: Server, edge: str, second: float, *by: float, steps: float = 10) -> list[str]:
    return story.move(edge, *(by or (0, 0, 0)), steps=steps, now=round(second * S))


def begun() -> Server:
    """a needs 1 s for a step, b 2 s; a has a group of its own, b the second one."""
    story = compass()
    story.start("a", "b")
    assert steps_of(story) == {"a": 10, "b": 10}
    assert story.decisions[0].numbers == {"epochs": 10, "most_steps": 10}
    at(story, "a", 10)
    assert steps_of(story) == {"a": 10} and alarms(story) == [("group 0", 10 + 1.5 * 10)]
    at(story, "b", 20)
    # a's group would be back at 25 + 10 * 1 s: 15 s are 7 steps of b
    assert steps_of(story) == {"b": 7} and alarms(story) == [("group 1", 20 + 1.5 * 14)]
    return story


def test_a_first_update_makes_a_step_alone() -> None:
    """w <- w + alpha s(gap) / N D: gap 0 of a, then gap 1 of b."""
    story = compass(staleness_exponent=1.0)
    story.start("a", "b")
    assert at(story, "a", 1, 4, 0, 0)[:2] == ["report gathered=1 gap=0 groups=0", "publish 2 0 0"]
    assert at(story, "b", 2, 0, 4, 0)[:2] == ["report gathered=1 gap=1 groups=1", "publish 2 1 0"]


def test_devices_of_different_speed_join_to_deliver_together() -> None:
    """a comes back at 24: its speed is .1 * 1 + .9 * 1.4 = 1.36 s. b's group is expected at 34:
    floor(10 / 1.36) = 7 steps.
    """
    story = begun()
    at(story, "a", 24)
    assert story.strategy.speeds["a"] == pytest.approx(1.36 * S)
    assert steps_of(story) == {"a": 7} and alarms(story) == []
    assert at(story, "a", 33, steps=7) == [], "a waits for b"
    assert "a" not in story.open and "a" in story.strategy.idle
    at(story, "b", 34, steps=7)
    assert reported(story)["gathered"] == 2 and list(steps_of(story)) == ["a", "b"], "fastest first"


def test_the_group_steps_with_the_changes_of_all() -> None:
    """Both started from older versions: a from 3 (gap 0), b from 2 (gap 1); 1 / N each."""
    story = begun()
    at(story, "a", 24)
    at(story, "a", 33, 4, 0, 0, steps=7)
    at(story, "b", 34, 0, 4, 0, steps=7)
    assert story.weights == pytest.approx([2, 2 * 2**-0.5, 0])
    (published,) = [each for each in story.decisions if isinstance(each, Publish)]
    assert len(published.made_of or ()) == 2


def test_a_group_is_not_waited_for_longer_than_its_latest_moment() -> None:
    """At 41 s a's update makes the step. b comes at 43: it gets work at once, and its update waits
    for the step of a's new group.
    """
    story = begun()
    at(story, "a", 24)
    at(story, "a", 33, 4, 0, 0, steps=7)
    story.give(AlarmRang("group 1"), 41 * S)
    assert reported(story)["gathered"] == 1 and set(steps_of(story)) == {"a"}
    version = story.version
    at(story, "b", 43, 0, 4, 0, steps=7)
    assert story.version == version and set(steps_of(story)) == {"b"}, "late"
    assert len(story.strategy.late) == 1
    at(story, "a", 50)
    if story.version == version:  # b is in a's group
        at(story, "b", 51)
    assert story.version == version + 1 and reported(story)["gathered"] >= 2
    assert story.strategy.late == [] and story.weights[1] > 0


def test_an_alarm_of_a_group_that_is_over_changes_nothing() -> None:
    story = begun()
    at(story, "a", 24)
    assert story.give(AlarmRang("group 0"), 25 * S) == []
    assert story.give(AlarmRang("group 1"), 41 * S) == [], "nobody has arrived"
    at(story, "a", 42, steps=7)
    assert len(story.strategy.late) == 1, "both come too late"


def test_a_group_does_not_wait_for_a_device_that_is_gone() -> None:
    story = begun()
    at(story, "a", 24)
    at(story, "a", 33, 4, 0, 0, steps=7)
    story.lose("b")
    assert story.close("b")[0] == "report gathered=1 gap=0 groups=0"
    assert set(steps_of(story)) == {"a"}
    assert steps_of(story)["a"] and story.join("b")[0].startswith("assign b")


def test_a_device_that_fails_gets_another_task() -> None:
    story = begun()
    assert story.close("b", "failed")[0].startswith("assign b")
    assert story.strategy.group_of["b"] in story.strategy.groups
    awaited = [edge for group in story.strategy.groups.values() for edge in group.awaited]
    assert sorted(awaited) == ["a", "b"], "each in one group"


@pytest.mark.parametrize(
    ("speed", "steps", "joins"),
    [
        (1.0, 10, True),  # 10 s are left
        (2.5, 4, True),
        (5.0, 2, True),
        (0.5, 10, False),  # 20 steps would fit, more than Q_max
        (6.0, 3, False),  # one step is below Q_min; 15 + 10 * .7 = 22 s until the next arrival
        (15.0, 2, False),  # 1 step until then: Q_min
    ],
)
def test_the_steps_of_a_device(speed: float, steps: int, joins: bool) -> None:
    """A group is expected in 10 s and waited for 15 s; its device needs 0.7 s for a step."""
    story = compass()
    strategy = story.strategy
    story.start("x", "y")
    at(story, "x", 7)
    strategy.groups[0].expected_ns, strategy.groups[0].latest_ns = 17 * S, 22 * S
    strategy.speeds["y"], strategy.most["y"] = speed * S, 10
    found, created = strategy._schedule("y", 7 * S)
    assert (found, created is None) == (steps, joins)


def test_without_max_steps_a_device_s_own_epochs_are_the_most() -> None:
    """b has a fourth of a's samples, so its first task has fewer steps."""
    story = compass(max_steps=None)
    story.start("a", "b")
    assert story.decisions[0].numbers == {}
    at(story, "a", 8, steps=8)
    assert steps_of(story) == {"a": 8}
    at(story, "b", 9, steps=2)
    assert steps_of(story)["b"] <= 2


def test_shares_by_samples() -> None:
    strategy = make(FedCompass, weighting="samples")
    strategy.known = {"a": 1, "b": 3}
    assert [strategy._share(edge) for edge in "ab"] == [0.25, 0.75]


def test_a_run_in_which_no_task_delivers_ends() -> None:
    story = compass()
    story.start("a")
    lines: list[str] = []
    for _ in range(100):
        lines = story.close("a", "training failed")
    assert lines == ["finish: no task delivers: training failed"]


def test_normalisation_buffers_are_mixed() -> None:
    strategy = make(FedCompass, (0, 1), alpha=1.0)
    strategy.layout = Layout(
        (LayoutEntry("w", (1,), 0, "parameter", ""), LayoutEntry("v", (1,), 1, "buffer", ""))
    )
    story = Server(strategy)
    story.start("a", "b")
    assert story.deliver("a", 2, 5, steps=1, now=S)[1] == "publish 1 3"
