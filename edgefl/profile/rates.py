"""The rate of a link from its busy periods: one number, or a trace where the rate varied.

The rule. A busy period is cut into steps of STEP_S (a shorter one is one step). The rate varied if
there are LEAST_STEPS steps of LEAST_STEP_S or longer, and the rates at 10 % and at 90 % of the busy
time differ by more than VARIED_SHARE of the one at 50 %. Otherwise it counts as constant: all bytes
divided by all busy time, so the transfers together take as long as they did.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from edgefl.results.measured import SHORT_S, Busy, Span

STEP_S = 1.0
LEAST_STEP_S = 0.05  # in a shorter time, the stamps of the two programs make the difference
LEAST_STEPS = 8
VARIED_SHARE = 0.25
LOW, MIDDLE, HIGH = 0.1, 0.5, 0.9  # shares of the busy time


@dataclass(frozen=True, slots=True)
class LinkRate:
    """A link's rate: ``bit_s``, or ``trace`` with rows (s, bit/s) if it varied.

    The last row of a trace has no rate: it ends the trace. ``low_bit_s`` and ``high_bit_s``: the
    rates at 10 % and 90 % of the busy time.
    """

    bit_s: float
    low_bit_s: float
    high_bit_s: float
    trace: tuple[tuple[float, float | None], ...] = ()


def link_rate(runs: Sequence[tuple[Sequence[Busy], float]]) -> LinkRate:
    """Return the rate of a link that was measured in ``runs``: (busy periods, length of the run).

    There is at least one busy period. A trace is that of the run with the most busy time, because
    two runs have no common time.
    """
    periods = [busy for of_run, _ in runs for busy in of_run]
    seconds = sum(max(busy.seconds, SHORT_S) for busy in periods)
    whole_bit_s = 8 * sum(busy.size_bytes for busy in periods) / seconds
    spans = [step for busy in periods for step in steps(busy)]
    low, high = (_at_share(spans, share) for share in (LOW, HIGH))
    if not varied(spans):
        return LinkRate(whole_bit_s, low, high)
    longest, until_s = max(runs, key=lambda run: sum(busy.seconds for busy in run[0]))
    return LinkRate(
        whole_bit_s, low, high, trace([step for busy in longest for step in steps(busy)], until_s)
    )


def steps(busy: Busy) -> list[Span]:
    """Join the steps of a busy period to steps of STEP_S or longer; the last one takes the rest."""
    found: list[Span] = []
    for step in busy.steps:
        if found and found[-1].ended_s - found[-1].began_s < STEP_S:
            last = found.pop()
            step = Span(last.began_s, step.ended_s, last.amount + step.amount)
        found.append(step)
    if len(found) > 1 and found[-1].ended_s - found[-1].began_s < STEP_S:
        rest, last = found.pop(), found.pop()
        found.append(Span(last.began_s, rest.ended_s, last.amount + rest.amount))
    return found


def varied(spans: Sequence[Span]) -> bool:
    """Whether the rate varied, by the rule of this module."""
    long = [span for span in spans if span.ended_s - span.began_s >= LEAST_STEP_S]
    if len(long) < LEAST_STEPS:
        return False
    low, middle, high = (_at_share(long, share) for share in (LOW, MIDDLE, HIGH))
    return high - low > VARIED_SHARE * middle


def trace(spans: Sequence[Span], until_s: float) -> tuple[tuple[float, float | None], ...]:
    """Return rows (s, bit/s) from 0 to ``until_s`` that pass through the measured ``spans``.

    Between two spans nothing was measured: each rate holds to the middle of the gap.
    """
    borders = [
        (before.ended_s + after.began_s) / 2 if before.ended_s < after.began_s else after.began_s
        for before, after in pairwise(spans)
    ]
    rows = [(at_s, 8 * span.per_s) for at_s, span in zip([0.0, *borders], spans, strict=True)]
    return (*rows, (max(until_s, spans[-1].ended_s), None))


def _at_share(spans: Sequence[Span], share: float) -> float:
    """The rate (bit/s) that is not exceeded in this share of the busy time."""
    sought_s = share * sum(span.ended_s - span.began_s for span in spans)
    passed_s = 0.0
    for span in sorted(spans, key=lambda span: span.per_s):
        passed_s += span.ended_s - span.began_s
        if passed_s >= sought_s:
            break
    return 8 * span.per_s
