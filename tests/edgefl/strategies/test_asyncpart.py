"""AsyncPart (reconstructed) by hand: slots, weights, and the share of the model that a slot
replaces.
"""

from __future__ import annotations

from typing import Any

import pytest
from builders import S, Server, make

from edgefl.strategies.asyncpart import AsyncPart
from edgefl.strategies.base.events_and_decisions import AlarmRang, RunStarted


def slots(**options: Any) -> Server:
    return Server(
        make(AsyncPart, **{"slot_s": 5.0, "concurrency": 2, "staleness_exponent": 1.0} | options)
    )


def end(story: Server, second: int) -> list[str]:
    return story.give(AlarmRang("slot end"), second * S)


def test_a_slot_s_arrivals_are_fused_at_its_end() -> None:
    """c_i ~ n_i / n, all fresh and new: c = (1/4, 3/4); e = min(1, (1/4 + 3/4) 2 / 2) = 1."""
    story = slots()
    story.join("a", samples=1)
    story.join("b", samples=3)
    assert story.give(RunStarted()) == ["assign a,b <- 0 0 0", "alarm slot end at 5"]
    assert story.deliver("a", 4, 0, 8) == [] and story.deliver("b", 0, 4, 8) == [], (
        "no edge is replaced before the slot's end"
    )
    assert end(story, 5) == ["publish 1 3 8", "assign a,b <- 1 3 8", "alarm slot end at 10"]


def test_one_of_two_replaces_half_of_the_model() -> None:
    """w <- (1 - e) w + e w_i with e = min(1, (1/2) 2 / 2) = 1/2, from (0, 0, 0) and from (4, 0,
    0).
    """
    story = slots()
    story.start("a", "b")
    story.deliver("a", 8, 0, 0)
    assert end(story, 5)[0] == "publish 4 0 0"
    story.deliver("a", 0, 8, 0)
    assert end(story, 10)[0] == "publish 2 4 0"


def test_the_part_counts_devices_against_those_at_work() -> None:
    """m = 4, m' = 2: both that are at work deliver, half of all samples: e = (1/2) 4 / 2 = 1."""
    story = slots()
    story.start(*"abcd")
    for edge in list(story.open):
        story.deliver(edge, 6, 0, 0)
    assert end(story, 5)[0] == "publish 6 0 0"


@pytest.mark.parametrize(("gap", "share"), [(0, 1 / 2), (1, 1 / 3), (4, 1 / 6)])
def test_staleness_is_the_gap_plus_1(gap: int, share: float) -> None:
    """(1 + gap)^(-p), p = 1: against a fresh update of a, c of b = (1 / (gap + 1)) / (1 + 1 /
    (gap + 1)) = 1 / (gap + 2).
    """
    story = slots()
    story.start("a", "b")
    for slot in range(gap):
        story.deliver("a", 0, 0, 0)
        end(story, 5 * slot)
    story.strategy.participations = {}  # staleness alone
    story.deliver("a", 0, 0, 0)
    story.deliver("b", 6, 0, 0)
    end(story, 5 * gap + 5)
    assert story.weights[0] == pytest.approx(6 * share, rel=1e-6)


def test_who_has_taken_part_more_often_weighs_less() -> None:
    """b_i = 1 / (1 + participations of i so far): 1/3 against 1."""
    story = slots(staleness_exponent=0.0)
    story.start("a", "b")
    for slot in (1, 2):
        story.deliver("a", 0, 0, 0)
        end(story, 5 * slot)
    story.deliver("a", 4, 0, 0)
    story.deliver("b", 0, 4, 0)
    assert end(story, 15)[0] == "publish 1 3 0"
    assert story.strategy.participations == {"a": 3, "b": 1}
