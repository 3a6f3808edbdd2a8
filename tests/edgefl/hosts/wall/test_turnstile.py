"""Which edges train when: the earliest emulated deadline first, and never more than there are
turns.
"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from edgefl.hosts.wall.fleet.turnstile import SILENCE_S, Turnstile


def test_the_earliest_deadline_goes_first_and_the_others_wait() -> None:
    turns = Turnstile(1)
    for edge, due in (("late", 300), ("early", 100), ("middle", 200)):
        turns.want(edge, due)
    assert turns.grants(0.0) == ["early"]
    assert turns.grants(0.1) == []
    turns.done("early")
    assert turns.grants(0.1) == ["middle"]
    turns.done("middle")
    assert turns.grants(0.2) == ["late"]


def test_equal_deadlines_go_in_order_of_asking() -> None:
    turns = Turnstile(2)
    for edge in ("b", "a", "c"):
        turns.want(edge, 7)
    assert turns.grants(0.0) == ["b", "a"]


def test_a_frozen_edge_neither_holds_a_turn_nor_gets_one() -> None:
    turns = Turnstile(1)
    turns.want("a", 1)
    assert turns.grants(0.0) == ["a"]
    turns.freeze("a")
    turns.want("a", 2)
    turns.want("b", 3)
    assert turns.grants(0.1) == ["b"]
    turns.done("b")
    assert turns.grants(0.2) == []
    turns.thaw("a")
    assert turns.grants(0.3) == ["a"]


def test_a_silent_holder_is_passed_over() -> None:
    turns = Turnstile(1)
    turns.want("frozen", 1)
    turns.want("next", 2)
    assert turns.grants(0.0) == ["frozen"]
    assert turns.grants(SILENCE_S) == []
    assert turns.grants(SILENCE_S + 0.001) == ["next"]
    turns.done("frozen")  # it continues and gives back a turn that it no longer has
    assert turns.grants(SILENCE_S + 0.002) == []


def test_an_edge_that_ended_neither_holds_nor_waits() -> None:
    turns = Turnstile(1)
    turns.want("dead", 1)
    turns.want("alive", 5)
    assert turns.grants(0.0) == ["dead"]
    turns.want("dead", 2)
    turns.gone("dead")
    assert turns.grants(0.0) == ["alive"]
    turns.done("alive")
    assert turns.grants(0.0) == []


@given(st.lists(st.tuples(st.integers(0, 50), st.booleans()), max_size=60), st.integers(1, 3))
def test_never_more_holders_than_turns_and_nobody_is_forgotten(
    script: list[tuple[int, bool]], size: int
) -> None:
    turns, holding, served = Turnstile(size), [], 0
    for number, (due, give_back) in enumerate(script):
        turns.want(f"e{number}", due)
        if give_back and holding:
            turns.done(holding.pop(0))
        granted = turns.grants(0.0)
        holding += granted
        served += len(granted)
        assert len(holding) <= size
    while holding:
        turns.done(holding.pop())
        granted = turns.grants(0.0)
        holding += granted
        served += len(granted)
    assert served == len(script)
