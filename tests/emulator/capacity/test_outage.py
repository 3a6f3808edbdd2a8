"""Outages: windows, and an on/off process that depends only on its seed."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emulator.capacity.outage import OnOff, Windows
from emulator.capacity.service import bytes_served, served_at
from emulator.errors import BadValue
from emulator.units import FOREVER, NS_PER_S

MS = NS_PER_S // 1000


def test_windows_stop_the_service() -> None:
    gate = Windows(
        [(10 * MS, 20 * MS), (20 * MS, 30 * MS), (50 * MS, 60 * MS)], rate_bit_s=8000
    )  # 1 byte per ms
    assert [gate.segment(t * MS) for t in (0, 10, 25, 30, 60)] == [
        (8000, 10 * MS),
        (0, 30 * MS),
        (0, 30 * MS),
        (8000, 50 * MS),
        (8000, FOREVER),
    ]
    assert [served_at(gate, 0, size) for size in (10, 11, 30, 31, 1000)] == [
        10 * MS,
        31 * MS,
        50 * MS,
        61 * MS,
        1030 * MS,
    ]
    assert [bytes_served(gate, 5 * MS, t * MS) for t in (10, 20, 40, 55, 70)] == [5, 5, 15, 25, 35]


def test_an_outage_may_never_end() -> None:
    gate = Windows([(10 * MS, FOREVER)], rate_bit_s=8000)
    assert gate.segment(10 * MS) == (0, FOREVER)
    assert (served_at(gate, 0, 10), served_at(gate, 0, 11), served_at(gate, 20 * MS, 1)) == (
        10 * MS,
        FOREVER,
        FOREVER,
    )
    assert bytes_served(gate, 0, FOREVER) == 10
    assert Windows([], rate_bit_s=5).segment(3) == (5, FOREVER)


windows = (
    st.lists(st.integers(0, 10**6), unique=True, max_size=12)
    .map(sorted)
    .map(lambda borders: list(zip(borders[::2], borders[1::2])))
)


@settings(deadline=None)
@given(windows, st.integers(0, 10**6), st.integers(0, 10**6))
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
        ([(-1, 5)], "expected 0 or more"),
        ([(0, 5), (4, 9)], "before the previous outage ends"),
    ],
)
def test_impossible_windows_are_refused(closed: list[tuple[int, int]], words: str) -> None:
    with pytest.raises(BadValue, match=words):
        Windows(closed)


@settings(deadline=None)
@given(st.integers(0, 99), st.lists(st.integers(0, 10**11), min_size=1, max_size=20))
def test_the_process_depends_on_its_seed_alone(seed: int, moments: list[int]) -> None:
    one, other = (OnOff(np.random.default_rng(seed), 100 * MS, 20 * MS) for _ in range(2))
    assert [one.segment(t) for t in moments] == list(
        reversed([other.segment(t) for t in reversed(moments)])
    )
    for t in moments:
        rate, until = one.segment(t)
        assert t < until and one.segment(until - 1)[0] == rate != one.segment(until)[0]


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


def test_the_process_needs_means() -> None:
    for means in ((0, 5), (5, 0), (float("inf"), 5)):
        with pytest.raises(BadValue, match="1 ns or more"):
            OnOff(np.random.default_rng(0), *means)
