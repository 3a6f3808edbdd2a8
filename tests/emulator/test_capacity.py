"""Capacities, their compositions, and the bytes that they serve: closed forms and properties."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emulator.capacity import Capacity, service
from emulator.capacity.rates import Constant, Gated, Lowest, OnOff, Slotted, Windows
from emulator.capacity.service import Curve, Steady, bytes_served, served_at
from emulator.capacity.trace import Trace
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


def test_a_capacity_that_ends_never_serves_the_rest() -> None:
    second = Until(8, NS_PER_S)
    assert served_at(second, 0, 1) == NS_PER_S
    assert served_at(second, 0, 2) == FOREVER
    assert served_at(Constant(1), FOREVER, 1) == FOREVER
    assert served_at(Constant(1), 0, 10**18) == FOREVER
    assert bytes_served(second, 0, FOREVER) == 1


@settings(deadline=None)
@given(capacities, moments, st.lists(st.integers(0, 10**10), min_size=1, max_size=5))
def test_a_kept_curve_answers_like_a_fresh_one_in_any_order(
    capacity: Constant | Steps, start: int, offsets: list[int]
) -> None:
    curve = Curve(capacity, start)
    for offset in offsets:
        assert curve.served(start + offset) == bytes_served(capacity, start, start + offset)
    assert curve.when(1000) == served_at(capacity, start, 1000)


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
near_moments = st.integers(0, 10**6)


@settings(deadline=None)
@given(st.lists(parts, min_size=1, max_size=3), near_moments)
def test_lowest_is_the_lowest_until_it_changes(of: list[Capacity], t: int) -> None:
    rate, until = Lowest(*of).segment(t)
    assert until > t
    for moment in {t, (t + min(until, t + 10**5)) // 2, min(until, t + 10**5) - 1}:
        assert rate == min(part.segment(moment)[0] for part in of)


@settings(deadline=None)
@given(st.lists(parts, min_size=1, max_size=3), near_moments, st.integers(0, 50_000))
@pytest.mark.slow
def test_tables_serve_like_walks(of: list[Capacity], start: int, length: int) -> None:
    walked = Lowest(*(Bare(part) for part in of))
    assert bytes_served(Lowest(*of), start, start + length) == bytes_served(
        walked, start, start + length
    )
    if bytes_served(walked, start, start + length) > 0:
        size = bytes_served(walked, start, start + length)
        assert served_at(Lowest(*of), start, size) == served_at(walked, start, size)


@settings(deadline=None)
@given(st.lists(parts, min_size=1, max_size=3), near_moments, st.integers(1, 10**12))
@pytest.mark.slow
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


@settings(deadline=None)
@given(st.lists(parts, min_size=1, max_size=3), near_moments, near_moments, st.integers(0, 50_000))
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


window_lists = (
    st.lists(st.integers(0, 10**6), unique=True, max_size=12)
    .map(sorted)
    .map(lambda borders: list(zip(borders[::2], borders[1::2])))
)


@settings(deadline=None)
@given(window_lists, st.integers(0, 10**6), st.integers(0, 10**6))
def test_service_is_the_time_outside_the_windows(
    closed: list[tuple[int, int]], start: int, length: int
) -> None:
    rate = 8 * NS_PER_S  # 1 byte per ns
    inside = sum(max(0, min(end, start + length) - max(begin, start)) for begin, end in closed)
    gate = Windows(closed, rate)
    assert bytes_served(gate, start, start + length) == length - inside
    size = length - inside
    assert served_at(gate, start, size) <= start + length
    assert bytes_served(gate, start, served_at(gate, start, size)) == size


@pytest.mark.parametrize(
    ("closed", "words"),
    [
        ([(5, 5)], "an end after the begin"),
        ([(0, 5), (4, 9)], "before the previous outage ends"),
    ],
)
def test_impossible_windows_are_refused(closed: list[tuple[int, int]], words: str) -> None:
    with pytest.raises(BadValue, match=words):
        Windows(closed)


def test_the_process_has_the_means_it_was_given() -> None:
    process = OnOff(np.random.default_rng(3), 30 * MS, 10 * MS, rate_bit_s=8000)
    assert process.segment(0)[0] == 8000
    assert bytes_served(process, 0, 1000 * NS_PER_S) == pytest.approx(750_000, rel=0.03)
    lengths: dict[int, list[int]] = {0: [], 8000: []}
    t = 0
    while t < 100 * NS_PER_S:
        rate, until = process.segment(t)
        lengths[rate].append(until - t)
        t = until
    assert np.mean(lengths[8000]) == pytest.approx(30 * MS, rel=0.1) and np.std(
        lengths[8000]
    ) == pytest.approx(30 * MS, rel=0.1)
    assert np.mean(lengths[0]) == pytest.approx(10 * MS, rel=0.1)
    assert process.segment(FOREVER) == (0, FOREVER)


slot_tables = st.integers(1, 8).flatmap(
    lambda slots: st.tuples(
        st.integers(2, 10**6),
        st.just(slots),
        st.lists(st.integers(0, 3), min_size=slots, max_size=slots),
        st.integers(0, 10**6),
    )
)


@settings(deadline=None)
@given(slot_tables, st.data())
def test_devices_never_overlap(table: tuple[int, int, list[int], int], data: st.DataObject) -> None:
    slot_ns, slots, owners, offset_ns = table
    guard_ns = data.draw(st.integers(0, slot_ns - 1))
    gates = {
        owner: Slotted(
            slot_ns, slots, {n for n in range(slots) if owners[n] == owner}, guard_ns, 5, offset_ns
        )
        for owner in set(owners)
    }
    for t in data.draw(st.lists(st.integers(0, 10**9), min_size=1, max_size=10)):
        number, within_ns = divmod((t - offset_ns) % (slots * slot_ns), slot_ns)
        open_now = {owner for owner, gate in gates.items() if gate.segment(t)[0]}
        assert open_now == ({owners[number]} if within_ns < slot_ns - guard_ns else set())


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            (10, 4, [1], 10),
            "guard 0.000000010 s: expected 0 or more and less than the slot, 0.000000010 s",
        ),
        ((10, 4, [1], -1), "guard"),
        ((10, 4, []), "expected one or more of 0 to 3"),
        ((10, 4, [1, 4]), r"own slots \[1, 4\]"),
        ((0, 4, [1]), "expected 1 or more"),
        ((10, 0, [0]), "expected 1 or more"),
    ],
)
def test_impossible_frames_are_refused(arguments: tuple, words: str) -> None:
    with pytest.raises(BadValue, match=words):
        Slotted(*arguments)
