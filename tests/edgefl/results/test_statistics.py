"""Intervals, paired tests and effects over a baseline: by hand, and against scipy on known data."""

from __future__ import annotations

import math
from inspect import signature
from statistics import NormalDist

import numpy as np
import pytest
from scipy import stats

from edgefl.results import statistics as own
from edgefl.results.statistics import PairedEffect, Reached, difference, paired_test, speed_up

# accuracies of two strategies over ten seeds, and a few of them
FEDAVG = [0.896, 0.921, 0.884, 0.902, 0.915, 0.871, 0.908, 0.893, 0.899, 0.911]
FEDBUFF = [0.948, 0.931, 0.912, 0.899, 0.944, 0.921, 0.918, 0.907, 0.935, 0.940]
SAMPLES = {
    "two": [1.0, 4.0],
    "three": [2.0, 4.0, 9.0],
    "five": FEDBUFF[:5],
    "six": FEDAVG[:6],
    "ten": FEDAVG,
    "skewed": [1.0, 1.1, 1.2, 1.3, 2.0, 3.5, 9.0, 30.0],
}


SEED = "rng" if "rng" in signature(stats.bootstrap).parameters else "random_state"  # scipy < 1.15


@pytest.mark.parametrize("name", SAMPLES)
def test_students_interval_is_that_of_scipy(name: str) -> None:
    values = SAMPLES[name]
    expected = stats.t.interval(0.95, len(values) - 1, loc=np.mean(values), scale=stats.sem(values))
    found = own.interval(values, "t")
    assert found is not None
    assert (found.low, found.high) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("name", SAMPLES)
def test_the_bootstrap_is_the_expanded_percentile_interval_of_scipy(name: str) -> None:
    """scipy has the percentile interval; Hesterberg's has the quantiles of a larger confidence.

    With up to six values ours has all resamples; scipy's random ones have a standard error. The
    quantiles' densities are unknown, so the allowed difference is a share of the width.
    """
    values, n = SAMPLES[name], len(SAMPLES[name])
    share = NormalDist().cdf(-math.sqrt(n / (n - 1)) * stats.t.ppf(0.975, n - 1))
    expected = stats.bootstrap(
        (values,),
        np.mean,
        confidence_level=1 - 2 * share,
        method="percentile",
        n_resamples=50_000,
        **{SEED: np.random.default_rng(1)},
    ).confidence_interval
    found = own.interval(values, "resampling")
    assert found is not None
    allowed = 0.03 * (expected.high - expected.low)
    assert found.low == pytest.approx(expected.low, abs=allowed)
    assert found.high == pytest.approx(expected.high, abs=allowed)


@pytest.mark.parametrize("n", [2, 3, 5, 6, 10])
def test_the_permutation_test_is_that_of_scipy(n: int) -> None:
    values, baseline = FEDBUFF[:n], FEDAVG[:n]
    expected = stats.permutation_test(
        (values, baseline),
        lambda x, y, axis: np.mean(x - y, axis=axis),
        permutation_type="samples",
        n_resamples=np.inf,
    ).pvalue
    found = own.paired_test(values, baseline, "resampling")
    assert found.p == pytest.approx(expected)
    assert found.difference == pytest.approx(np.mean(values) - np.mean(baseline))


def test_a_sampled_permutation_test_is_near_that_of_scipy() -> None:
    """Twenty pairs: p by N random sign changes has a standard error of sqrt(p (1-p) / N)."""
    values, baseline = (np.array(each + each) for each in (FEDBUFF, FEDAVG))
    values[::3] -= 0.04  # p is near the middle, where there is something to differ
    expected = stats.permutation_test(
        (values, baseline),
        lambda x, y, axis: np.mean(x - y, axis=axis),
        permutation_type="samples",
        n_resamples=50_000,
        **{SEED: np.random.default_rng(2)},
    ).pvalue
    found = own.paired_test(values.tolist(), baseline.tolist())
    assert found.method == "resampling" and found.p is not None
    assert found.p == pytest.approx(expected, abs=5 * math.sqrt(0.25 / own.RESAMPLES))
    assert found == own.paired_test(values.tolist(), baseline.tolist()), (
        "it depends on nothing else"
    )


@pytest.mark.parametrize("n", [2, 3, 5, 10])
def test_the_paired_t_test_is_that_of_scipy(n: int) -> None:
    expected = stats.ttest_rel(FEDBUFF[:n], FEDAVG[:n]).pvalue
    assert own.paired_test(FEDBUFF[:n], FEDAVG[:n], "t").p == pytest.approx(expected, rel=1e-9)


def test_the_permutation_test_by_hand() -> None:
    """Differences 1, 2, 4: the sums of all signs are +-7, +-5, +-3, +-1; two are as far as 7."""
    assert own.paired_test([1, 2, 4], [0, 0, 0], "resampling").p == 2 / 8
    # -1, 2, 4: the sum 5 is reached or passed by +-5 and +-7
    assert own.paired_test([-1, 2, 4], [0, 0, 0], "resampling").p == 4 / 8
    # equal sums that floats round differently still count as equal
    assert own.paired_test([0.1, 0.2, 0.3], [0, 0, 0], "resampling").p == 2 / 8


def test_differences_that_do_not_vary() -> None:
    for method in ("resampling", "t"):
        assert own.paired_test([1, 2, 3], [1, 2, 3], method).p == 1  # type: ignore[arg-type]  # both are methods
    assert own.paired_test([2, 3, 4], [1, 2, 3], "t").p == 0
    assert own.interval([5.0, 5.0, 5.0], "t") == own.Interval(5.0, 5.0, "t")
    assert own.interval([5.0] * 7) == own.Interval(5.0, 5.0, "resampling")


def test_too_few_values() -> None:
    assert own.interval([]) is None and own.interval([1.0]) is None
    assert own.paired_test([], []) == own.PairedTest(0, 0.0, None, "t")
    assert own.paired_test([3], [1]) == own.PairedTest(1, 2.0, None, "t")
    with pytest.raises(ValueError, match="zip"):
        own.paired_test([1, 2], [1])


def test_a_base_install_has_no_intervals_and_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own, "HAS_SCIPY", False)
    assert own.interval(FEDAVG) is None
    assert own.paired_test(FEDBUFF, FEDAVG).p is None


def test_auto_resamples_from_six_seeds_on() -> None:
    """With five seeds the smallest p is 2/32 = 0.0625: nothing is below 0.05."""
    assert [own.chosen(n) for n in (2, 5, 6, 30)] == ["t", "t", "resampling", "resampling"]
    rising = [float(n) for n in range(1, 7)]
    assert own.paired_test(rising[:5], [0] * 5, "resampling").p == 0.0625
    assert own.paired_test(rising, [0] * 6).p == 0.03125


def test_several_permutation_tests_need_more_seeds() -> None:
    """One test: 2/64 is below 0.05; two tests: 4/64 is not, 4/128 is; 19 tests: 38/1024."""
    assert [own.pairs_needed(tests) for tests in (1, 2, 19)] == [6, 7, 10]
    assert own.smallest_p(6, 2) == 4 / 64 and own.smallest_p(2, 9) == 1.0


def test_holms_adjustment_by_hand() -> None:
    """Three tests: 0.01 * 3, then 0.02 * 2, then 0.03 * 1, which must not be below the former."""
    assert own.holm([0.03, 0.01, 0.02]) == pytest.approx([0.04, 0.03, 0.04])
    assert own.holm([0.5, None, 0.6]) == [1.0, None, 1.0]
    assert own.holm([]) == []


@pytest.mark.slow
def test_intervals_cover_the_mean_as_often_as_they_say() -> None:
    """500 samples of ten normal values: the share that covers lies near 95 %.

    Three standard errors of a share of 0.95 over 500 are 0.029; the bootstrap's own share is 0.94.
    """
    rng = np.random.default_rng(3)
    for method in ("resampling", "t"):
        found = [own.interval(rng.normal(size=10).tolist(), method) for _ in range(500)]  # type: ignore[arg-type]  # both are methods
        covering = sum(each.low <= 0 <= each.high for each in found if each is not None)
        assert abs(covering / 500 - 0.945) < 0.034


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
    assert found.test.p == pytest.approx(paired_test([1.0, 3.0, 2.0], [0.0] * 3, "t").p)


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


# ------------------------------------------------------------------ how many seeds are needed
@pytest.mark.parametrize(("effect", "seeds"), [(0.2, 199), (0.5, 34), (0.8, 15), (2.5, 4)])
def test_the_seeds_that_a_paired_t_test_needs(effect: float, seeds: int) -> None:
    """Cohen (1988): 80 % power, two-sided at .05; the first three are in every table."""
    assert own.seeds_needed(effect) == own.seeds_needed(-effect) == seeds
    assert own.power(effect, seeds) >= 0.8 > own.power(effect, seeds - 1)
    assert own.seeds_needed(effect, 0.99) > seeds, "a stricter test needs more"
    assert own.seeds_needed(0.0) is None and own.seeds_needed(0.05) is None


@pytest.mark.parametrize("confidence", [0.95, 0.99])
def test_a_larger_effect_never_needs_more_seeds(confidence: float) -> None:
    """SciPy's noncentral t is NaN for many effects of this grid, from about 4 on."""
    effects = [*np.geomspace(0.3, 100, 800), 1e3, 1e6, 1e9, math.inf]
    seeds = [own.seeds_needed(effect, confidence) for effect in effects]
    assert seeds == sorted(seeds, reverse=True) and seeds[-4:] == [2, 2, 2, 2]
    assert own.power(6.0, 2) == pytest.approx(1 - stats.nct.cdf(12.706, 1, 6.0 * 2**0.5), abs=1e-3)
    assert own.seeds_needed(6.0) == 3 and own.power(math.inf, 2) == own.power(1e9, 9) == 1.0


@pytest.mark.parametrize(("effect", "n"), [(2.5, 3), (1.0, 10), (0.5, 34)])
def test_the_power_is_that_of_simulated_experiments(effect: float, n: int) -> None:
    rng = np.random.default_rng(4)
    drawn = rng.normal(effect, 1.0, (20_000, n))
    t = drawn.mean(axis=1) / drawn.std(axis=1, ddof=1) * n**0.5
    told = np.mean(np.abs(t) > stats.t.ppf(0.975, n - 1))
    assert own.power(effect, n) == pytest.approx(told, abs=0.01)


def test_a_difference_says_how_many_seeds_it_needs() -> None:
    found = difference([0.8, 0.82, 0.84], [0.7, 0.75, 0.8], "t")  # .10, .07, .04
    assert found.seeds == own.seeds_needed(0.07 / 0.03) == 4
    smaller = difference([0.8, 0.82, 0.84], [0.7, 0.75, 0.8], "t", matters=0.01)
    assert smaller.seeds == own.seeds_needed(1 / 3) == 73
    assert difference([0.8], [0.7], "t").seeds is None
    assert difference([0.5, 0.75], [0.25, 0.5], "t").seeds == 2, "no scatter at all"
    assert difference([0.5, 0.75], [0.5, 0.75], "t").seeds is None, "no difference at all"
    reached = [Reached(10.0, 90.0), Reached(12.0, 90.0)]
    later = [Reached(20.0, 90.0), Reached(30.0, 90.0)]
    assert speed_up(reached, later, "t").seeds == own.seeds_needed(5.11, 0.95)
