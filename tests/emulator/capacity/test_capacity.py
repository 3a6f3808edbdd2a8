"""Capacities, the arithmetic over them, and delays: closed forms and properties."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emulator.capacity.constant import Constant
from emulator.capacity.service import AtOnce, Curve, Steady, bytes_served, served_at
from emulator.delay.latency import Latency
from emulator.errors import BadValue
from emulator.units import FOREVER, NS_PER_S


class Steps:
    """A capacity of steps (rate_bit_s, length_ns), repeated forever, as in traces and slots."""

    def __init__(self, steps: list[tuple[int, int]]) -> None:
        self.steps = steps
        self.period_ns = sum(length_ns for _, length_ns in steps)

    def segment(self, t_ns: int) -> tuple[int, int]:
        begin_ns = t_ns - t_ns % self.period_ns
        for rate_bit_s, length_ns in self.steps:
            if t_ns < begin_ns + length_ns:
                return rate_bit_s, begin_ns + length_ns
            begin_ns += length_ns
        raise AssertionError("a moment lies in its period")


class Until:
    """``rate_bit_s`` up to ``end_ns``, then 0 forever."""

    def __init__(self, rate_bit_s: int, end_ns: int) -> None:
        self.rate_bit_s, self.end_ns = rate_bit_s, end_ns

    def segment(self, t_ns: int) -> tuple[int, int]:
        return (self.rate_bit_s, self.end_ns) if t_ns < self.end_ns else (0, FOREVER)


rates = st.integers(0, 10**10)
step_lists = st.lists(st.tuples(rates, st.integers(1, 10**9)), min_size=1, max_size=5).filter(
    lambda steps: any(rate >= 10**6 and length >= 10**6 for rate, length in steps)
)
capacities = st.one_of(st.integers(10**3, 10**11).map(Constant), step_lists.map(Steps))
moments = st.integers(0, 10**15)


def test_constant_serves_in_closed_form() -> None:
    two_mbit = Constant(2_000_000)
    assert served_at(two_mbit, 0, 250_000) == NS_PER_S  # 0.25 MB at 2 Mbit/s take 1 s
    assert bytes_served(two_mbit, 0, NS_PER_S) == 250_000
    assert bytes_served(two_mbit, 5, NS_PER_S + 4) == 249_999
    assert served_at(Constant(3), 7, 1) == 7 + 2_666_666_667  # 8/3 s, rounded up


def test_nothing_takes_no_time_and_no_time_serves_nothing() -> None:
    assert served_at(Constant(1), 42, 0) == 42
    assert bytes_served(Constant(10**12), 42, 42) == bytes_served(Constant(10**12), 42, 41) == 0


def test_steps_serve_piece_by_piece() -> None:
    slots = Steps(
        [(8_000, 10_000_000), (0, 30_000_000)]
    )  # 1 byte per ms for 10 ms, then 30 ms without service
    assert (
        served_at(slots, 0, 10) == 10_000_000
    )  # the last byte ends with its slot, not with the next one
    assert served_at(slots, 0, 11) == 41_000_000
    assert served_at(slots, 15_000_000, 10) == 50_000_000
    assert [bytes_served(slots, 0, t * 1_000_000) for t in (9, 10, 39, 40, 45, 80)] == [
        9,
        10,
        10,
        10,
        15,
        20,
    ]


def test_a_capacity_that_ends_never_serves_the_rest() -> None:
    second = Until(8, NS_PER_S)
    assert served_at(second, 0, 1) == NS_PER_S
    assert served_at(second, 0, 2) == FOREVER
    assert served_at(Constant(1), FOREVER, 1) == FOREVER
    assert served_at(Constant(1), 0, 10**18) == FOREVER
    assert bytes_served(second, 0, FOREVER) == 1


def test_a_segment_must_move_on() -> None:
    class Stuck:
        def segment(self, t_ns: int) -> tuple[int, int]:
            return 1, t_ns

    with pytest.raises(ValueError, match="segment at 3 ns ends at 3 ns"):
        served_at(Stuck(), 3, 1)


@settings(deadline=None)
@given(capacities, moments, st.integers(1, 10**5))
def test_when_is_the_smallest_moment_that_serves(
    capacity: Constant | Steps, start: int, size: int
) -> None:
    end = served_at(capacity, start, size)
    assert bytes_served(capacity, start, end) >= size
    assert bytes_served(capacity, start, end - 1) < size


@settings(deadline=None)
@given(capacities, moments, st.lists(st.integers(0, 10**10), min_size=1, max_size=5))
def test_a_kept_curve_answers_like_a_fresh_one_in_any_order(
    capacity: Constant | Steps, start: int, offsets: list[int]
) -> None:
    curve = Curve(capacity, start)
    for offset in offsets:
        assert curve.served(start + offset) == bytes_served(capacity, start, start + offset)
    assert curve.when(1000) == served_at(capacity, start, 1000)


@settings(deadline=None)
@given(capacities, moments, st.integers(0, 10**9), st.integers(0, 10**9))
def test_service_adds_up(capacity: Constant | Steps, start: int, first: int, second: int) -> None:
    middle, end = start + first, start + first + second
    parts = bytes_served(capacity, start, middle) + bytes_served(capacity, middle, end)
    assert bytes_served(capacity, start, end) - parts in (0, 1)  # each part is rounded down


def test_unshaped_serves_at_once() -> None:
    curve = AtOnce(5)
    assert (curve.served(4), curve.when(10**12)) == (0, 5)
    assert curve.served(5) >= 10**12


@pytest.mark.parametrize("rate", [0, -1, 2e6, True, "2mbit"])
def test_constant_refuses(rate: object) -> None:
    with pytest.raises(BadValue, match="bit/s above 0"):
        Constant(rate)


@pytest.mark.parametrize("delay", [-1, 0.5])
def test_latency_refuses(delay: object) -> None:
    with pytest.raises(BadValue, match="0 or more"):
        Latency(delay)


@settings(deadline=None)
@given(st.integers(0, 10**12), moments)
def test_departure_inverts_arrival(delay: int, sent: int) -> None:
    latency = Latency(delay)
    assert latency.departure(latency.arrival(sent)) == sent
    assert latency.arrival(FOREVER) == FOREVER


@given(
    st.integers(1, 10**12),
    st.integers(0, 10**15),
    st.integers(0, 10**12),
    st.integers(-(10**10), 10**16),
)
def test_a_constant_rate_has_a_closed_form(
    rate_bit_s: int, start_ns: int, size_bytes: int, later_ns: int
) -> None:
    """The short form of a constant rate, used on plain links, equals the curve to the ns."""
    steady, curve = Steady(rate_bit_s, start_ns), Curve(Constant(rate_bit_s), start_ns)
    assert steady.when(size_bytes) == curve.when(size_bytes)
    assert steady.served(start_ns + later_ns) == curve.served(start_ns + later_ns)


def test_a_constant_rate_that_takes_for_ever_says_so() -> None:
    steady, curve = Steady(1, FOREVER - 5), Curve(Constant(1), FOREVER - 5)
    assert (
        steady.when(10) == curve.when(10) == FOREVER
        and steady.when(0) == curve.when(0) == FOREVER - 5
    )
