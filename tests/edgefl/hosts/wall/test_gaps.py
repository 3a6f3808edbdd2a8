"""A gap is time in which the pacing thread had work but did not run."""

from __future__ import annotations

from edgefl.hosts.wall.coordinator.gaps import Gaps

MS = 1_000_000
S = 1000 * MS


class Night:
    """A thread's turns, on a clock that the test moves."""

    def __init__(self, least_ns: int = 500 * MS) -> None:
        self.found: list[tuple[int, int]] = []
        self.gaps = Gaps(least_ns, lambda began, length: self.found.append((began, length)))
        self.now = 100 * S

    def turn(self, works: int, intends: int, sleeps: int) -> None:
        self.gaps.wakes(self.now)
        self.now += works
        self.gaps.sleeps(self.now, self.now + intends)
        self.now += sleeps


def test_a_long_sleep_that_was_intended_is_no_gap() -> None:
    night = Night()
    for _ in range(3):
        night.turn(works=MS, intends=60 * S, sleeps=60 * S)
        night.turn(works=MS, intends=60 * S, sleeps=S)  # a message arrived
    night.turn(works=0, intends=0, sleeps=0)
    assert night.found == []


def test_a_wake_that_comes_too_late_is_a_gap_from_the_moment_that_was_intended() -> None:
    night = Night()
    night.turn(works=MS, intends=200 * MS, sleeps=8_700 * MS)
    night.turn(works=MS, intends=0, sleeps=0)
    assert night.found == [(100 * S + 201 * MS, 8_500 * MS)]


def test_a_turn_that_takes_too_long_is_a_gap_too() -> None:
    night = Night()
    night.turn(works=9 * S, intends=MS, sleeps=MS)
    night.turn(works=MS, intends=0, sleeps=0)
    assert night.found == [(100 * S, 9 * S)]


def test_what_is_as_long_as_a_heartbeat_is_no_gap_yet() -> None:
    night = Night()
    night.turn(works=500 * MS, intends=S, sleeps=1_500 * MS)
    night.turn(works=0, intends=0, sleeps=0)
    assert night.found == []
    night.turn(works=0, intends=S, sleeps=1_500 * MS + 1)
    night.turn(works=0, intends=0, sleeps=0)
    assert [length for _, length in night.found] == [500 * MS + 1]


def test_a_moment_that_has_passed_counts_from_now() -> None:
    night = Night()
    night.turn(works=MS, intends=-5 * S, sleeps=0)
    night.turn(works=MS, intends=0, sleeps=0)
    assert night.found == []
