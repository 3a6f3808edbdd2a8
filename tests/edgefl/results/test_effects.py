"""Differences of accuracies and speed-ups over pairs of runs, by hand."""

from __future__ import annotations

import math

import pytest

from edgefl.results.statistics import PairedEffect, Reached, difference, paired_test, speed_up


def reached(*x: float | None, end: float | None = 100.0) -> list[Reached]:
    return [Reached(each, end) for each in x]


def test_the_difference_is_the_mean_over_pairs() -> None:
    found = difference([0.9, 0.8, 0.7], [0.7, 0.7, 0.6], "t")
    assert found.size == pytest.approx((0.2 + 0.1 + 0.1) / 3)
    assert found.interval is not None and found.interval.low < found.size < found.interval.high
    assert found.test == paired_test([0.9, 0.8, 0.7], [0.7, 0.7, 0.6], "t")


def test_an_interval_has_no_impossible_differences() -> None:
    found = difference([0.9, 0.2], [0.7, 0.7], "t", largest=1)
    assert found.interval is not None and (found.interval.low, found.interval.high) == (-1, 1)


def test_no_difference_over_the_lucky_seeds_only() -> None:
    assert difference([0.9, None, 0.7], [0.7, 0.7, 0.6], "auto") == PairedEffect(3, 2)
    assert difference([], [], "auto") == PairedEffect(0, 0)


def test_the_speed_up_is_the_geometric_mean_of_the_ratios() -> None:
    """Ratios 2, 8 and 4: the third root of 64 is 4. The interval is that of the logarithms.

    log2: 1, 3, 2; mean 2, deviation 1; Student's t of two degrees at 95 %: 4.302653.
    """
    found = speed_up(reached(5, 1, 2), reached(10, 8, 8), "t")
    assert (found.size, found.bound, found.pairs, found.having) == (pytest.approx(4), "", 3, 3)
    assert found.interval is not None and found.test is not None
    half = 4.302653 / math.sqrt(3)
    bounds = found.interval.low, found.interval.high
    assert bounds == pytest.approx((2 ** (2 - half), 2 ** (2 + half)), rel=1e-6)
    assert found.test.p == paired_test([1.0, 3.0, 2.0], [0.0] * 3, "t").p


def test_twice_as_fast_and_half_as_fast_cancel() -> None:
    found = speed_up(reached(1, 2), reached(2, 1), "t")
    assert found.size == pytest.approx(1) and found.test is not None
    assert found.test.p == pytest.approx(1)


def test_a_baseline_that_never_gets_there_gives_a_bound() -> None:
    """The baseline needs more than the 100 of its end, so the ratios are 4 and above 20."""
    found = speed_up(reached(2, 5), reached(8, None), "t")
    assert found == PairedEffect(2, 1, pytest.approx(math.sqrt(4 * 20)), ">")
    found = speed_up(reached(8, None), reached(2, 5), "t")
    assert found == PairedEffect(2, 1, pytest.approx(math.sqrt(1 / (4 * 20))), "<")


def test_no_speed_up_if_each_misses_the_target_once_or_the_end_is_not_known() -> None:
    assert speed_up(reached(2, None), reached(None, 2), "t") == PairedEffect(2, 0)
    assert speed_up(reached(2, 5), reached(8, None, end=None), "t") == PairedEffect(2, 1)
    assert speed_up([], [], "t") == PairedEffect(0, 0)


def test_a_first_model_at_the_target_has_no_ratio() -> None:
    assert speed_up(reached(0.0), reached(4.0), "t").size is None
