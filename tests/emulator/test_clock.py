"""The agenda and the two clocks."""

from __future__ import annotations

import pickle
import sys
import time

import pytest

from emulator.clock import Agenda, VirtualClock, WallClock, precise_timers
from emulator.errors import BadValue
from emulator.units import FOREVER, NS_PER_S, to_ns


def test_ties_come_out_in_the_order_they_were_put_in() -> None:
    agenda: Agenda[str] = Agenda()
    for at, item in ((5, "b"), (3, "a"), (5, "c"), (9, "d")):
        agenda.add(at, item)
    assert (agenda.next_due(), len(agenda)) == (3, 4)
    assert agenda.pop_due(2) == []
    assert agenda.pop_due(5) == [(3, "a"), (5, "b"), (5, "c")]
    assert (agenda.next_due(), len(agenda)) == (9, 1)
    assert agenda.pop_due(100) == [(9, "d")]
    assert (agenda.next_due(), agenda.pop_due(FOREVER)) == (FOREVER, [])


def test_what_is_cancelled_does_not_come_out() -> None:
    agenda: Agenda[str] = Agenda()
    first, second, third = (agenda.add(at, item) for at, item in ((3, "a"), (3, "b"), (7, "c")))
    agenda.cancel(first)
    assert (agenda.next_due(), len(agenda)) == (3, 2)
    assert agenda.pop_due(3) == [(3, "b")]
    agenda.cancel(second)  # it was popped: no effect, now or at the second call
    agenda.cancel(third), agenda.cancel(third)
    assert (agenda.next_due(), len(agenda), agenda.pop_due(FOREVER)) == (FOREVER, 0, [])


def test_cancelled_entries_take_no_room() -> None:
    """Adding and cancelling distant moments again and again must not fill the memory."""
    agenda: Agenda[bytes] = Agenda()
    agenda.add(1, b"first")
    item = bytes(10)
    for number in range(10_000):
        agenda.cancel(agenda.add(10**15 + number, item))
    assert len(agenda) == 1 and len(pickle.dumps(agenda)) < 5000
    assert sys.getrefcount(item) < 5, "a cancelled entry keeps its item"


def test_virtual_time_jumps_forward_only() -> None:
    clock = VirtualClock()
    assert clock.now() == 0
    clock.advance(7)
    clock.advance(7)
    assert clock.now() == 7
    with pytest.raises(ValueError, match="back from 7 to 6"):
        clock.advance(6)


def test_wall_time_is_monotonic_time_times_speed() -> None:
    clock = WallClock(speed=4.0)
    assert (clock.now(), clock.at_monotonic(time.monotonic_ns())) == (0, 0)
    assert clock.real_s_until(8_000_000_000) == pytest.approx(2.0)
    with pytest.raises(RuntimeError, match="started"):
        clock.wait_until(1)
    assert clock.began_unix_s is None
    before, before_unix_s = time.monotonic_ns(), time.time()
    clock.start()
    after = time.monotonic_ns()
    assert before_unix_s <= clock.began_unix_s <= time.time()
    stamp = after + 1_000_000
    assert 4_000_000 <= clock.at_monotonic(stamp) <= 4_000_000 + 4 * (after - before)
    assert clock.at_monotonic(stamp + 250) - clock.at_monotonic(stamp) == 1000
    assert clock.real_s_until(0) <= 0 < clock.real_s_until(10**15)


def test_waiting_never_ends_early() -> None:
    assert precise_timers() in (True, False)
    clock = WallClock(speed=3.0)
    clock.start()
    for moment in (1_000_000, 2_500_001, 2_500_001, 0, 4_000_003):
        clock.wait_until(moment)
        assert clock.now() >= moment


@pytest.mark.parametrize("speed", [0, -1.0, float("inf"), float("nan")])
def test_a_clock_needs_a_speed(speed: float) -> None:
    with pytest.raises(BadValue, match="speed"):
        WallClock(speed)


@pytest.mark.parametrize("seconds", [2**63 / NS_PER_S, 1e10, 1e300, float("inf")])
def test_a_time_that_no_run_reaches_is_for_ever(seconds: float) -> None:
    assert to_ns(seconds) == FOREVER
    assert to_ns(9e9) == 9 * 10**18
