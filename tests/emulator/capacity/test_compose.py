"""Compositions: lowest and gated capacities, closed forms of periods, and ones without service."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emulator.capacity import Capacity, service
from emulator.capacity.compose import Gated, Lowest
from emulator.capacity.constant import Constant
from emulator.capacity.cycle import Cycle
from emulator.capacity.outage import OnOff, Windows
from emulator.capacity.service import Curve, bytes_served, served_at
from emulator.capacity.slotted import Slotted
from emulator.capacity.trace import Trace
from emulator.errors import BadValue
from emulator.units import FOREVER, NS_PER_S

MS = NS_PER_S // 1000


class Bare:
    """A capacity without a table, so that the segments of its compositions must be read."""

    def __init__(self, capacity: Capacity) -> None:
        self.segment = capacity.segment


traces = (
    st.lists(
        st.tuples(st.sampled_from([0, 8 * 10**8, 8 * 10**9, 10**10 + 1]), st.integers(1, 2000)),
        min_size=1,
        max_size=4,
    )
    .filter(lambda steps: any(rate for rate, _ in steps))
    .map(Trace)
)
slots = st.tuples(
    st.integers(2, 3000), st.integers(1, 4), st.integers(0, 1), st.integers(0, 5000)
).map(lambda t: Slotted(t[0], t[1], [0], t[2], offset_ns=t[3]))
outages = (
    st.lists(st.integers(0, 10**5), unique=True, max_size=6)
    .map(sorted)
    .map(lambda at: Windows(list(zip(at[::2], at[1::2]))))
)
parts = st.one_of(st.integers(1, 10**10).map(Constant), traces, slots, outages)
moments = st.integers(0, 10**6)


@settings(deadline=None)
@given(st.lists(parts, min_size=1, max_size=3), moments)
def test_lowest_is_the_lowest_until_it_changes(of: list[Capacity], t: int) -> None:
    rate, until = Lowest(*of).segment(t)
    assert until > t
    for moment in {t, (t + min(until, t + 10**5)) // 2, min(until, t + 10**5) - 1}:
        assert rate == min(part.segment(moment)[0] for part in of)


@settings(deadline=None)
@given(parts, parts, moments)
def test_gated_is_one_while_the_other_is_open(capacity: Capacity, gate: Capacity, t: int) -> None:
    rate, until = Gated(capacity, gate).segment(t)
    assert until > t
    for moment in {t, (t + min(until, t + 10**5)) // 2, min(until, t + 10**5) - 1}:
        assert rate == (capacity.segment(moment)[0] if gate.segment(moment)[0] else 0)


@settings(deadline=None)
@given(st.lists(parts, min_size=1, max_size=3), moments, st.integers(0, 50_000))
def test_tables_serve_like_walks(of: list[Capacity], start: int, length: int) -> None:
    walked = Lowest(*(Bare(part) for part in of))
    assert bytes_served(Lowest(*of), start, start + length) == bytes_served(
        walked, start, start + length
    )
    if bytes_served(walked, start, start + length) > 0:
        size = bytes_served(walked, start, start + length)
        assert served_at(Lowest(*of), start, size) == served_at(walked, start, size)


@settings(deadline=None)
@given(st.lists(parts, min_size=1, max_size=3), moments, st.integers(1, 10**12))
def test_when_is_the_smallest_moment(of: list[Capacity], start: int, size: int) -> None:
    curve = Curve(Lowest(Constant(10**10), *of), start)
    try:
        end = curve.when(size)
    except BadValue:  # three parts that meet pairwise only, without a common period to see it by
        return
    assert end == FOREVER or curve.served(end) >= size > curve.served(end - 1)


def test_an_outage_and_slots_cut_a_link() -> None:
    link = Lowest(
        Constant(8000), Slotted(10 * MS, 2, [0]), Windows([(20 * MS, 25 * MS)])
    )  # 1 byte per ms in [0, 10), [25, 30), [40, 50), ...
    assert [served_at(link, 0, size) for size in (10, 11, 15, 16, 10**9 + 15)] == [
        10 * MS,
        26 * MS,
        30 * MS,
        41 * MS,
        (40 + 20 * (10**8 - 1) + 10) * MS,
    ]
    assert link.segment(20 * MS) == (0, 25 * MS)


def test_caps_of_caps() -> None:
    cell = Lowest(Lowest(Constant(9), Constant(7)), Trace([(8, 10), (3, 10)]))
    assert [cell.segment(t) for t in (0, 10, 20)] == [(7, 10), (3, 20), (7, 30)]


def test_what_never_serves_says_so() -> None:
    never = Lowest(Slotted(10, 2, [0]), Slotted(10, 2, [1]))
    assert never.segment(3) == (0, FOREVER)
    assert (served_at(never, 0, 1), bytes_served(never, 0, FOREVER)) == (FOREVER, 0)
    ended = Lowest(Trace([(5, 3), (0, 3)]), Windows([(7, FOREVER)]))
    assert ended.segment(8) == (0, FOREVER)
    assert Lowest(Bare(Trace([(5, 3), (0, 3)])), Windows([(7, FOREVER)])).segment(9) == (0, FOREVER)


def test_a_search_without_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "MAX_IDLE_SEGMENTS", 1000)
    never = Lowest(Bare(Slotted(10, 2, [0])), Bare(Slotted(10, 2, [1])))
    with pytest.raises(BadValue, match="are its parts ever open together"):
        served_at(never, 0, 1)


def test_a_long_common_period_is_walked() -> None:
    first, second = (
        Trace([(8 * NS_PER_S, 10**9 + 7), (0, 1)]),
        Trace([(8 * NS_PER_S, 10**9 + 9), (0, 5)]),
    )
    both = Lowest(first, second)
    assert both.cycle(0) is None
    assert served_at(both, 0, 10**10) == served_at(Lowest(Bare(first), Bare(second)), 0, 10**10)


def test_first_byte_traces_begin_with_what_they_are_part_of() -> None:
    part = Lowest(Constant(8000), Trace([(16_000, 10 * MS), (0, 10 * MS)], start="first_byte"))
    assert Curve(part, 7 * MS).when(11) == 28 * MS


def test_a_process_gates_a_link() -> None:
    link = Gated(Constant(8000), OnOff(np.random.default_rng(1), 30 * MS, 10 * MS))
    assert bytes_served(link, 0, 400 * NS_PER_S) == pytest.approx(300_000, rel=0.05)


def test_nothing_is_no_capacity() -> None:
    with pytest.raises(BadValue, match="one or more"):
        Lowest()


@settings(deadline=None)
@given(st.lists(parts, min_size=1, max_size=3), moments, moments, st.integers(0, 50_000))
def test_a_saved_capacity_serves_as_it_did(
    of: list[Capacity], before: int, start: int, length: int
) -> None:
    for whole in (Lowest(*of), Gated(of[0], of[-1])):
        whole.segment(before)  # this may compute the table, which is not saved
        saved = object.__new__(type(whole))
        saved.restore(whole.state())
        assert bytes_served(saved, start, start + length) == bytes_served(
            whole, start, start + length
        )
        assert vars(saved).keys() == vars(whole).keys()


@settings(deadline=None)
@given(traces, moments, moments)
def test_a_saved_cycle_is_the_same(trace: Trace, begins: int, t: int) -> None:
    cycle = trace.cycle(0).moved(begins)
    saved = object.__new__(Cycle)
    saved.restore(cycle.state())
    assert all(getattr(saved, name) == getattr(cycle, name) for name in Cycle.__slots__)
    assert saved.done(begins + t) == cycle.done(begins + t)
