"""Goodput under loss: the model's published form, its limits, and as part of compositions."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emulator.capacity.rates import Constant, Lowest
from emulator.capacity.service import served_at
from emulator.capacity.trace import Trace
from emulator.errors import BadValue
from emulator.links.loss import Lossy, goodput_bit_s, throughput_bit_s
from emulator.units import NS_PER_S

MS = NS_PER_S // 1000
GBIT = 10**9


def test_the_equation_by_hand() -> None:
    """s = 1460, R = 100 ms, p = 1 %, T0 = 400 ms: 1460 / (0.1 x 0.081650 + 0.4 x 0.183712 x 0.01
    x 1.0032) bytes/s.
    """
    assert throughput_bit_s(0.01, 100 * MS) == pytest.approx(
        8 * 1460 / (0.1 * 0.0816497 + 0.4 * 0.1837117 * 0.01 * 1.0032), rel=1e-6
    )
    assert goodput_bit_s(GBIT, 0.01, 100 * MS) == pytest.approx(
        0.99 * throughput_bit_s(0.01, 100 * MS), abs=1
    )


def test_a_slow_link_loses_what_is_sent_again_only() -> None:
    assert goodput_bit_s(1_000_000, 0.01, 20 * MS) == 990_000
    assert goodput_bit_s(1_000_000, 0.0, 20 * MS) == 1_000_000
    assert goodput_bit_s(0, 0.2, 20 * MS) == 0
    assert goodput_bit_s(1, 0.5, 10**15) == 1  # a rate above 0 stays above 0
    assert goodput_bit_s(10 * GBIT, 0.1, 0) < GBIT  # timeouts remain even without a round-trip time
    assert goodput_bit_s(GBIT, 1e-220, 0) == GBIT  # smaller losses cost no time that can be counted


@settings(deadline=None)
@given(
    st.integers(1, 10**11),
    st.floats(0, 0.5),
    st.floats(0, 0.5),
    st.integers(0, 10**10),
    st.integers(0, 10**10),
)
def test_more_loss_or_distance_never_helps(
    rate: int, loss: float, more: float, rtt: int, longer: int
) -> None:
    (less, more), (rtt, longer) = sorted((loss, more)), sorted((rtt, longer))
    assert 1 <= goodput_bit_s(rate, more, longer) <= goodput_bit_s(rate, less, rtt) <= rate
    assert goodput_bit_s(rate, less, rtt) <= goodput_bit_s(rate + 1, less, rtt)


def test_as_a_capacity() -> None:
    trace = Trace([(1_000_000, 10 * MS), (0, 5 * MS), (GBIT, 10 * MS)])
    lossy = Lossy(trace, 0.01, 100 * MS)
    most = goodput_bit_s(GBIT, 0.01, 100 * MS)
    assert [lossy.segment(t * MS) for t in (0, 10, 15)] == [
        (990_000, 10 * MS),
        (0, 15 * MS),
        (most, 25 * MS),
    ]
    twin = Trace([(990_000, 10 * MS), (0, 5 * MS), (most, 10 * MS)])
    for size in (1, 1000, 10**6, 10**12):
        assert served_at(lossy, 7 * MS, size) == served_at(twin, 7 * MS, size)
        assert served_at(Lowest(lossy, Constant(500_000)), 7 * MS, size) == served_at(
            Lowest(twin, Constant(500_000)), 7 * MS, size
        )
    assert lossy.cycle(0) is lossy.cycle(5)


@pytest.mark.parametrize("loss", [-0.1, 0.51, float("nan")])
def test_impossible_loss_is_refused(loss: float) -> None:
    with pytest.raises(BadValue, match="share of packets from 0 to 0.5"):
        goodput_bit_s(1, loss, 1)
    with pytest.raises(BadValue, match="share of packets"):
        Lossy(Constant(1), loss, 1)
