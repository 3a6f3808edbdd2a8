"""Numbers of a trace and their figure: its mean rate, percentiles over windows, and outages."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

from emulator.capacity.service import bytes_served
from emulator.capacity.trace import Trace
from emulator.units import NS_PER_S

PERCENTS = (5, 25, 50, 75, 95)
MOST_WINDOWS = 2_000_000


@dataclass(frozen=True, slots=True)
class RateStatistics:
    """Rates of equal windows of one period, in bit/s; an outage is a window below a threshold.

    ``percentiles``: of the windows, by nearest rank. ``longest_outage_ns``: of windows in a row; it
    does not go on over the end of the period.
    """

    window_ns: int
    rates_bit_s: list[float]
    mean_bit_s: float
    percentiles: dict[int, float]
    outage_bit_s: int
    outage_share: float
    longest_outage_ns: int


def statistics_of(trace: Trace, window_ns: int, outage_bit_s: int) -> RateStatistics:
    """Statistics over one period; a last window that is not whole is left out of the percentiles.

    A window longer than the period is cut to the period. A trace has at most ``MOST_WINDOWS``
    windows: longer ones are taken if it has more.
    """
    window_ns = max(min(window_ns, trace.period_ns), -(-trace.period_ns // MOST_WINDOWS))
    count = trace.period_ns // window_ns
    moments = [place * window_ns for place in range(count + 1)]
    rates = [
        bytes_served(trace, begin, end) * 8 * NS_PER_S / window_ns
        for begin, end in itertools.pairwise(moments)
    ]
    ordered = sorted(rates)
    low = [rate < outage_bit_s for rate in rates]
    longest = max((len(list(run)) for out, run in itertools.groupby(low) if out), default=0)
    return RateStatistics(
        window_ns=window_ns,
        rates_bit_s=rates,
        mean_bit_s=trace.mean_bit_s,
        percentiles={each: ordered[math.ceil(each * count / 100) - 1] for each in PERCENTS},
        outage_bit_s=outage_bit_s,
        outage_share=sum(low) / count,
        longest_outage_ns=longest * window_ns,
    )
