"""When a link's rate counts as constant, and what its trace is where it varied; by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgefl.profile.edge_profile import LEAST_STEPS, STEP_S, link_rate, steps, trace, varied
from edgefl.results.measured import Busy, Span
from emulator.capacity.trace import csv_steps

RUN_S = 100.0


def transfers(*rates_byte_s: float, seconds: float = 0.5, every_s: float = 2.0) -> list[Busy]:
    return [
        Busy((Span(every_s * at, every_s * at + seconds, rate * seconds),))
        for at, rate in enumerate(rates_byte_s)
    ]


# ------------------------------------------------------------------ the rule
@pytest.mark.parametrize(
    ("rates_byte_s", "is_varied"),
    [
        ([100.0] * 8, False),
        # a tenth of the time at each end does not count
        ([10.0, *[100.0] * 18, 500.0], False),
        # at 10 % of the time 80, at 90 % 105: exactly a quarter of the middle
        ([80.0] * 2 + [100.0] * 6 + [105.0] * 2, False),
        ([79.0] * 2 + [100.0] * 6 + [105.0] * 2, True),
        ([50.0] * 5 + [100.0] * 5, True),
        ([50.0] * 3 + [100.0] * 4, False),  # too few to tell
    ],
)
def test_a_rate_varied_if_it_differs_by_more_than_a_quarter(
    rates_byte_s: list[float], is_varied: bool
) -> None:
    spans = [busy.steps[0] for busy in transfers(*rates_byte_s)]
    assert varied(spans) is is_varied


def test_the_time_counts_and_not_the_number_of_transfers() -> None:
    short = [Span(at, at + 0.06, 0.06 * 10) for at in range(8)]
    long = [Span(at, at + 5.0, 5.0 * 100) for at in range(10, 60, 10)]
    assert not varied([*short, *long])  # 0.5 of 25.5 s


def test_very_short_transfers_never_make_a_trace() -> None:
    periods = transfers(*[10.0, 100.0] * LEAST_STEPS, seconds=0.04)
    assert link_rate([(periods, RUN_S)]).trace == ()


# ------------------------------------------------------------------ a constant rate
def test_a_constant_rate_gives_all_bytes_all_their_time() -> None:
    periods = [
        Busy((Span(0.0, 1.0, 1000.0),)),
        Busy((Span(2.0, 5.0, 2400.0),)),
        Busy((Span(9.0, 10.0, 1100.0),)),
    ]
    found = link_rate([(periods, RUN_S)])
    assert (found.bit_s, found.trace) == (8 * 4500 / 5, ())
    assert (found.low_bit_s, found.high_bit_s) == (8 * 800, 8 * 1100)


def test_several_runs_count_together() -> None:
    runs = [(transfers(100.0, 100.0), RUN_S), (transfers(200.0, 200.0), RUN_S)]
    assert link_rate(runs).bit_s == 8 * 150


# ------------------------------------------------------------------ steps of a long transfer
@pytest.mark.parametrize(
    ("parts_s", "steps_s"),
    [
        ([0.25, 0.25], [0.5]),
        ([0.5, 0.5, 0.5], [1.5]),  # the rest is too short for a step
        ([0.5, 0.75, 0.5, 0.5], [1.25, 1.0]),
        ([3.0, 0.5], [3.5]),
    ],
)
def test_a_long_transfer_is_cut_into_steps(parts_s: list[float], steps_s: list[float]) -> None:
    at_s, parts = 0.0, []
    for part_s in parts_s:
        parts.append(Span(at_s, at_s + part_s, 100.0))
        at_s += part_s
    found = steps(Busy(tuple(parts)))
    assert [step.ended_s - step.began_s for step in found] == steps_s
    assert sum(step.amount for step in found) == 100.0 * len(parts_s)
    assert len(found) == 1 or all(length >= STEP_S for length in steps_s)


# ------------------------------------------------------------------ a trace
def test_a_trace_holds_each_rate_to_the_middle_of_the_gap() -> None:
    spans = [Span(2.0, 3.0, 1000.0), Span(5.0, 6.0, 4000.0), Span(6.0, 8.0, 2000.0)]
    assert trace(spans, 10.0) == ((0.0, 8000.0), (4.0, 32_000.0), (6.0, 8000.0), (10.0, None))


def test_a_trace_of_one_run_ends_with_the_run_that_was_busy_longest() -> None:
    slow_and_fast = transfers(*[100.0] * 5, *[400.0] * 5)
    runs = [(transfers(*[100.0] * 3), 50.0), (slow_and_fast, RUN_S)]
    found = link_rate(runs)
    assert found.trace[0] == (0.0, 800.0) and found.trace[-1] == (RUN_S, None)
    assert len(found.trace) == 11 and found.trace[5] == (9.25, 3200.0)


def test_the_emulator_reads_the_trace_with_the_bytes_that_were_measured(tmp_path: Path) -> None:
    spans = [Span(1.0, 3.0, 2000.0), Span(5.0, 6.0, 4000.0)]
    lines = [f"{at_s},{'' if bit_s is None else bit_s}" for at_s, bit_s in trace(spans, 8.0)]
    (slow, slow_ns), (fast, fast_ns) = csv_steps(lines)
    assert (slow, fast) == (8000, 32_000) and (slow_ns, fast_ns) == (4 * 10**9, 4 * 10**9)
