"""A machine that slept: told from two clocks, whatever happens between reading them."""

from __future__ import annotations

import sys
import time

import pytest

from edgefl.hosts.wall.sleep_watch import (
    LEAST_NS,
    LOOK_EVERY_NS,
    MOST_READING_NS,
    SleepWatch,
)
from edgefl.hosts.wall.system import OWN_SYSTEM

S = 1_000_000_000


def looks(*readings: tuple[int, int, int]) -> list[int]:
    watch = SleepWatch()
    return [watch.look(*reading) for reading in readings]


def test_a_machine_that_is_awake_never_slept() -> None:
    # the two clocks count from different moments
    assert looks(*((n * S, 7 * S + n * S + 5, n * S + 10) for n in range(100))) == [0] * 100


def test_each_sleep_is_found_once_with_its_length() -> None:
    found = looks(
        (0, 50 * S, 0), (S, 651 * S, S), (2 * S, 652 * S, 2 * S), (3 * S, 3653 * S, 3 * S)
    )
    assert found == [0, 600 * S, 0, 3000 * S]


def test_a_thread_that_was_interrupted_between_two_readings_has_not_slept() -> None:
    """It was stopped for 30 s, first before the second reading, then after it."""
    assert looks((0, 50 * S, 0), (S, 81 * S, 31 * S), (32 * S, 82 * S, 32 * S)) == [0, 0, 0]
    assert looks((0, 50 * S, 0), (S, 51 * S, 31 * S), (32 * S, 82 * S, 32 * S)) == [0, 0, 0]
    # the first reading was inexact: a sleep after it is found by the second one on
    assert (
        looks((0, 80 * S, 30 * S), (31 * S, 81 * S, 31 * S), (32 * S, 92 * S, 32 * S))[2] == 10 * S
    )


def test_clocks_that_drift_apart_slowly_are_no_sleep() -> None:
    """As on Windows, where the two clocks have different sources."""
    drift = LEAST_NS // 1000
    assert looks(*((n * S, n * (S + drift), n * S) for n in range(10_000))) == [0] * 10_000
    assert MOST_READING_NS < LEAST_NS


def test_a_short_sleep_is_not_reported() -> None:
    assert looks((0, 0, 0), (S, 2 * S - 1, S), (2 * S, 3 * S - 1, 2 * S)) == [0, 0, 0]
    assert looks((0, 0, 0), (S, 2 * S, S)) == [0, S]


def test_a_look_is_due_now_and_then_and_at_once_after_a_sleep() -> None:
    watch, began_ns = SleepWatch(), 7 * S
    assert watch.is_due(began_ns), "the first one"
    assert [watch.is_due(began_ns + part) for part in (0, 1, LOOK_EVERY_NS - 1)] == [False] * 3
    assert watch.is_due(began_ns + LOOK_EVERY_NS)
    assert not watch.is_due(began_ns + LOOK_EVERY_NS + 1)
    assert watch.is_due(began_ns + LOOK_EVERY_NS + 1 + LEAST_NS), "the machine slept"
    assert watch.is_due(0), "a clock that was set back"


@pytest.mark.skipif(sys.platform != "linux", reason="the clocks of Linux")
def test_the_clocks_of_this_machine() -> None:
    before, passed, after = OWN_SYSTEM.sleep_reading()
    assert before <= after <= time.monotonic_ns()
    assert passed >= before, "it counts sleep, too, since the machine has started"
    assert abs(passed - time.clock_gettime_ns(time.CLOCK_BOOTTIME)) < 10 * S
