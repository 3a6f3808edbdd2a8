"""Mean, percentiles and outages of a trace, by hand; and its figure."""

from __future__ import annotations

import pytest

from emulator.capacity.trace import Trace, mahimahi_steps
from emulator.traces.rate_figure import rate_figure
from emulator.traces.rate_statistics import statistics_of
from emulator.units import NS_PER_S

S, MBIT = NS_PER_S, 1_000_000


def test_by_hand() -> None:
    steps = [(4 * MBIT, 2 * S), (0, 3 * S), (8 * MBIT, S), (0, S), (2 * MBIT, 3 * S)]
    numbers = statistics_of(Trace(steps), S, 100_000)
    assert numbers.rates_bit_s == [4 * MBIT] * 2 + [0] * 3 + [8 * MBIT, 0] + [2 * MBIT] * 3
    assert numbers.mean_bit_s == 2.2 * MBIT
    assert numbers.percentiles == {5: 0, 25: 0, 50: 2 * MBIT, 75: 4 * MBIT, 95: 8 * MBIT}
    assert (numbers.outage_share, numbers.longest_outage_ns) == (0.4, 3 * S)
    assert statistics_of(Trace(steps), S, 3 * MBIT).outage_share == 0.7
    assert statistics_of(Trace(steps), 2 * S, 1).rates_bit_s == [
        4 * MBIT,
        0,
        4 * MBIT,
        MBIT,
        2 * MBIT,
    ]


def test_a_window_that_is_not_whole_counts_only_in_the_mean() -> None:
    numbers = statistics_of(Trace([(MBIT, 3 * S), (5 * MBIT, S // 2)]), 2 * S, 1)
    assert numbers.rates_bit_s == [MBIT]
    assert numbers.mean_bit_s == pytest.approx(5.5 / 3.5 * MBIT)
    short = statistics_of(Trace([(8 * MBIT, S // 2)]), 60 * S, 1)
    assert (short.window_ns, short.rates_bit_s) == (S // 2, [8 * MBIT])


def test_mahimahi_s_opportunities_become_rates_of_windows() -> None:
    trace = Trace(mahimahi_steps(["100", "200", "300", "400", "2000"]))
    assert statistics_of(trace, S, 1).rates_bit_s == [4 * 12_000, 12_000]


@pytest.mark.parametrize(("kind", "begin"), [("png", b"\x89PNG"), ("pdf", b"%PDF"), ("svg", b"<")])
def test_a_figure_is_the_same_bytes_twice(kind: str, begin: bytes) -> None:
    numbers = statistics_of(Trace([(4 * MBIT, 2 * S), (0, 3 * S)]), S, 100_000)
    drawn = rate_figure(numbers, "a < b", kind)
    assert drawn.startswith(begin) and drawn == rate_figure(numbers, "a < b", kind)
