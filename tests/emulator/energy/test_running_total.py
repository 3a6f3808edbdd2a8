"""The sum of powers over time, exact in whole femtojoules."""

from __future__ import annotations

import random

from emulator.energy.running_total import RunningTotal
from emulator.units import FOREVER


def test_a_power_counts_from_its_moment_on() -> None:
    total = RunningTotal()
    total.change(5, 10)
    assert [total.at(now) for now in (10, 11, 30)] == [0, 5, 100]


def test_a_change_in_the_past_is_made_up_for() -> None:
    total = RunningTotal()
    total.change(2, 0)
    assert total.at(100) == 200
    total.change(3, 60)
    total.change(-3, 90)  # 90 more, all of it in the past
    assert total.at(100) == 290 and total.at(101) == 292


def test_the_order_of_changes_does_not_matter() -> None:
    rng = random.Random(1)
    changes = [(rng.randrange(1, 9), rng.randrange(100)) for _ in range(50)]
    whole = sum(power * (200 - at) for power, at in changes)
    for _ in range(5):
        rng.shuffle(changes)
        total = RunningTotal()
        for number, (power, at) in enumerate(changes):
            total.change(power, at)
            total.at(number)  # some changes are in the past then, others in the future
        assert total.at(200) == whole


def test_the_moment_of_a_target_is_the_first_at_which_it_is_reached() -> None:
    total = RunningTotal()
    assert total.reaches(1) == FOREVER
    total.change(3, 0)
    assert total.reaches(10) == 4 and total.at(3) < 10 <= total.at(4)
    assert total.reaches(10) == 4, "it has been reached"
    total.add(90)
    assert total.reaches(102) == 4


def test_a_target_is_looked_for_no_later_than_it_is_reached() -> None:
    total = RunningTotal()
    total.change(1, 0)
    total.change(9, 50)  # still to come: the moment may be as early as if it flowed already
    total.change(-9, 55)
    due = total.reaches(100)
    assert due == 10
    looks = 0
    while total.at(due) < 100:
        due, looks = total.reaches(100), looks + 1
        assert looks < 10
    assert due == 55 and total.fj == 100


def test_a_target_out_of_reach_of_an_int64_is_never_reached() -> None:
    total = RunningTotal()
    total.change(1, 0)
    assert total.reaches(2**70) == FOREVER
