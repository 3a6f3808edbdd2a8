"""Devices with equal, different, random, throttled or shared speeds.

Every duration is checked by hand or against a slow but simple computation.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emulator.compute import (
    LONG,
    MEDIUM,
    MILD,
    SHORT,
    Bursts,
    Bursty,
    Drawn,
    Memoryless,
    Rate,
    RuntimeClass,
    Steps,
    Throttled,
    even_speeds,
    jitter_factor,
    lognormal_speeds,
    read_device_table,
    runtime_classes,
    table_speeds,
)
from emulator.errors import BadValue
from emulator.faults import Fault, Slowed, Timeline
from emulator.units import FOREVER


def test_spread_is_even_in_time_per_sample() -> None:
    rates = even_speeds(5, 100.0, 5.0, np.random.default_rng(1))
    assert sorted(100.0 / rate for rate in rates) == pytest.approx([1, 2, 3, 4, 5])
    assert rates == even_speeds(5, 100.0, 5.0, np.random.default_rng(1))
    assert any(
        even_speeds(5, 100.0, 5.0, np.random.default_rng(seed)) != rates for seed in range(2, 6)
    )
    assert even_speeds(1, 100.0, 5.0, np.random.default_rng(1)) == [100.0]


@pytest.mark.parametrize("rate", [0.0, float("nan")])
def test_a_rate_must_be_above_zero(rate: float) -> None:
    with pytest.raises(BadValue, match="samples_per_s"):
        Rate(rate)
    with pytest.raises(BadValue, match="fastest_samples_per_s"):
        even_speeds(3, rate, 2.0, np.random.default_rng(0))


def test_a_device_that_is_far_too_slow_takes_for_ever() -> None:
    assert Rate(1e-300).duration_ns(1e10) == FOREVER


S = 1_000_000_000


def seeded(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


# ---------------------------------------------------------------------- differences between devices
def test_lognormal_has_its_median_and_its_sigma() -> None:
    rates = lognormal_speeds(2001, 100.0, 0.5, seeded(1))
    logs = np.log(np.array(rates) / 100.0)
    assert np.median(logs) == pytest.approx(0.0, abs=0.05)
    assert np.std(logs) == pytest.approx(0.5, rel=0.05)
    assert (
        rates
        == lognormal_speeds(2001, 100.0, 0.5, seeded(1))
        != lognormal_speeds(2001, 100.0, 0.5, seeded(2))
    )


def test_the_ranges_of_the_runtime_classes() -> None:
    """ALGORITHMS 1.8, in units of 10 s: short U(1,2), medium U(3,5), long U(50,80), mild
    U(10,20).
    """
    assert [(c.low_ns // S, c.high_ns // S) for c in (SHORT, MEDIUM, LONG, MILD)] == [
        (10, 20),
        (30, 50),
        (500, 800),
        (100, 200),
    ]


# ---------------------------------------------------------------------- runtime classes


@settings(deadline=None)
@given(st.sampled_from([SHORT, MEDIUM, LONG, MILD]), st.integers(0, 2**32), st.integers(0, 10**15))
def test_a_task_stays_in_its_class(runtime: RuntimeClass, seed: int, start_ns: int) -> None:
    device = Drawn(runtime, task_samples=600, seed=seed)
    task_ns = device.duration_ns(600, start_ns)
    assert runtime.low_ns <= task_ns <= runtime.high_ns
    assert device.duration_ns(600, start_ns) == task_ns  # for every caller, at every call
    assert device.duration_ns(300, start_ns) == pytest.approx(task_ns / 2, abs=1)
    assert device.duration_ns(0, start_ns) == 0


def classes(sizes: Sequence[float], seed: int = 3, gamma: float = 1.0) -> list[str]:
    return [each.name for each in runtime_classes(sizes, LONG, seeded(seed), gamma)]


def test_devices_with_much_data_tend_to_be_slow() -> None:
    """argmax over p_c r^(k_c / gamma), p ~ Dirichlet(3, 2, 1): FedEcho, "clients with larger
    datasets sometimes require more training time".
    """
    sizes = [100.0] * 300 + [3000.0] * 100
    drawn = classes(sizes)
    small, large = Counter(drawn[:300]), Counter(drawn[300:])
    assert (
        small["short"] > 0.8 * 300
        and small["long"] == 0
        and large["short"] < 0.2 * 100
        and large["long"] == 40
    )
    assert drawn == classes(sizes) != classes(sizes, seed=4)


@settings(deadline=None)
@given(
    st.lists(st.floats(0.1, 1e6), min_size=1, max_size=60),
    st.integers(0, 2**32),
    st.sampled_from([1e-3, 0.1, 1.0, 50.0]),
)
def test_at_most_a_tenth_is_long(sizes: list[float], seed: int, gamma: float) -> None:
    """ "We ensure that no more than 10 % of the clients are assigned to the large-delay group"."""
    drawn = runtime_classes(sizes, MILD, seeded(seed), gamma)
    assert (
        len(drawn) == len(sizes)
        and {SHORT, MEDIUM, MILD} >= set(drawn)
        and drawn.count(MILD) <= len(sizes) // 10
    )


def test_runtime_classes_refuse() -> None:
    with pytest.raises(BadValue, match="size of a device's data 0"):
        runtime_classes([5.0, 0.0], LONG, seeded(3))
    with pytest.raises(BadValue, match="gamma 0"):
        runtime_classes([5.0], LONG, seeded(3), gamma=0.0)
    with pytest.raises(BadValue, match="devices 0"):
        runtime_classes([], LONG, seeded(3))
    with pytest.raises(BadValue, match="task_samples"):
        Drawn(SHORT, 0, 1)
    with pytest.raises(BadValue, match="runtime class odd: high"):
        RuntimeClass("odd", 20, 10)


# ---------------------------------------------------------------------- thermal throttling
def hot_phone() -> Throttled:
    """100 samples/s for 10 s of work, then 50; cold again after 20 s of idle time."""
    return Throttled(100.0, 50.0, budget_ns=10 * S, recovery_ns=20 * S)


def test_a_throttled_device_by_hand() -> None:
    phone = hot_phone()
    assert phone.duration_ns(500, 0) == 5 * S  # half of the budget
    assert (
        phone.duration_ns(1500, 5 * S) == 5 * S + 20 * S
    )  # 500 more with the rest of the budget, 1000 at half the speed
    assert phone.duration_ns(100, 30 * S) == 2 * S  # still hot
    assert phone.budget_left_ns(32 * S) == 0
    assert phone.budget_left_ns(36 * S) == 2 * S  # 4 s of 20 s idle time restore 2 s of 10 s
    assert phone.duration_ns(300, 36 * S) == 2 * S + 2 * S
    assert (
        phone.budget_left_ns(60 * S) == 10 * S == phone.budget_left_ns(1000 * S)
    )  # 20 s later it is full, and does not grow


def test_a_device_that_is_slowed_does_not_cool_down_meanwhile() -> None:
    """Work of 10 s, at a tenth of the speed, takes 100 s, and leaves it hot. Standing still cools:
    5 s of 20 s restore 2.5 s of 10 s.
    """
    phone = hot_phone()
    slow = Slowed(phone, Timeline([Fault(0, "e", "slow", 100 * S, 0.1)]))
    assert slow.duration_ns(1000, 0) == 100 * S
    assert phone.budget_left_ns(50 * S) == 5 * S, "if it is cancelled half way"
    assert slow.duration_ns(1000, 100 * S) == 20 * S
    phone = hot_phone()
    frozen = Slowed(phone, Timeline([Fault(2 * S, "e", "freeze", 5 * S)]))
    assert frozen.duration_ns(1000, 0) == 15 * S and phone.budget_left_ns(15 * S) == 2.5 * S


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((0.0, 1.0, 1, 1), "samples_per_s"),
        ((2.0, 3.0, 1, 1), "expected at most samples_per_s"),
        ((2.0, 1.0, 1, 0), "recovery"),
        ((2.0, 1.0, 1.5, 1), "budget"),
    ],
)
def test_throttled_refuses(arguments: tuple[Any, ...], words: str) -> None:
    with pytest.raises(BadValue, match=words):
        Throttled(*arguments)


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 40), st.integers(0, 30)), min_size=1, max_size=6),
    st.integers(0, 30),
    st.integers(1, 4),
    st.integers(1, 4),
)
def test_throttling_against_a_count_of_every_nanosecond(
    stretches: list[tuple[int, int]], budget: int, slowdown: int, recovery: int
) -> None:
    """One sample takes 1 ns cold and ``slowdown`` ns hot; 1 ns idle restores 1/recovery ns."""
    device = Throttled(float(S), S / slowdown, budget, max(1, budget * recovery))
    now, left = 0, Fraction(budget)
    for samples, idle in stretches:
        left = Fraction(math.floor(left))  # whole ns, as the device counts
        took = 0
        for _ in range(samples):
            took += 1 if left >= 1 else slowdown
            left = max(Fraction(0), left - 1)
        assert device.duration_ns(samples, now) == took
        now += took + idle
        left = min(Fraction(budget), left + Fraction(idle, recovery))


# ---------------------------------------------------------------------- bursts of other work
def test_steps_by_hand() -> None:
    device = Bursty(100.0, Steps([10 * S, 20 * S], [0.5, 1.0]))
    assert device.duration_ns(1500, 0) == 20 * S  # 10 s at full speed, 5 s of work at half
    assert device.duration_ns(1500, 15 * S) == 17_500_000_000  # 5 s at half are 2.5 s, then 12.5 s
    assert device.duration_ns(1500, 20 * S) == 15 * S
    assert device.duration_ns(0, 12 * S) == 0


@pytest.mark.parametrize(
    ("starts", "factors"),
    [
        ([5, 0], [1.0, 0.5]),
        ([0], []),
        ([-1], [0.5]),
        ([0], [0.0]),
    ],
)
def test_steps_refuse(starts: list[Any], factors: list[float]) -> None:
    with pytest.raises(BadValue, match="steps"):
        Steps(starts, factors)


@settings(deadline=None)
@given(st.integers(0, 99), st.lists(st.integers(0, 10**11), min_size=1, max_size=10))
def test_bursts_do_not_depend_on_the_questions(seed: int, moments: list[int]) -> None:
    one, other = (Bursts(S, S // 2, 0.5, seeded(seed)) for _ in range(2))
    assert {t: one.segment(t) for t in moments} == {t: other.segment(t) for t in reversed(moments)}
    assert all(one.segment(t)[1] > t for t in moments)


@settings(deadline=None)
@given(
    st.integers(0, 99),
    st.integers(0, 10**11),
    st.integers(0, 20_000),
    st.sampled_from([0.1, 0.5, 1.0, 3.0]),
)
def test_a_bursty_duration_is_the_smallest_that_does_the_work(
    seed: int, start_ns: int, samples: int, factor: float
) -> None:
    pace = Bursts(S, S // 2, factor, seeded(seed))
    device = Bursty(1000.0, pace)
    took, need = device.duration_ns(samples, start_ns), Rate(1000.0).duration_ns(samples)
    assert _done(pace, start_ns, start_ns + took) >= need
    assert took == 0 or _done(pace, start_ns, start_ns + took - 1) < need
    first = device.duration_ns(samples // 2, start_ns)
    assert first + device.duration_ns(samples - samples // 2, start_ns + first) == pytest.approx(
        took, abs=math.ceil(1 / min(factor, 1.0)) + 1
    )


def _done(pace: Bursts, now: int, end: int) -> Fraction:
    done = Fraction(0)
    while now < end:
        factor, until = pace.segment(now)
        done += (min(until, end) - now) * Fraction(factor)
        now = min(until, end)
    return done


# ---------------------------------------------------------------------- callers


TABLE = """Model, AI Score ,Latency ms
Pixel 3,100,40
"Galaxy, S9",400,10
Moto G,50.5,1e2

"""


def table(tmp_path: Path, text: str = TABLE) -> Path:
    path = tmp_path / "phones.csv"
    path.write_text(text)
    return path


def test_a_column_is_read(tmp_path: Path) -> None:
    assert read_device_table(table(tmp_path), "AI Score") == [100, 400, 50.5]
    assert read_device_table(table(tmp_path, "\ufeff" + TABLE), "Latency ms") == [40, 10, 100]


@pytest.mark.parametrize(
    ("text", "column", "said"),
    [
        (TABLE, "AI Scor", "column 'AI Scor' does not exist: did you mean AI Score?"),
        ("", "AI Score", "column 'AI Score' does not exist"),
        (TABLE.replace("400", "fast"), "AI Score", r"line 3 \(Galaxy, S9\): AI Score: .* 'fast'"),
        (TABLE.replace("400", "0"), "AI Score", "line 3 .* a number above 0, found '0'"),
        (TABLE.replace(",1e2", ""), "Latency ms", r"line 4 \(Moto G\): .* found ''"),
        ("Model,AI Score\n", "AI Score", "expected 1 to 10000 devices, found 0"),
        (TABLE + "9" * 200_000, "AI Score", "is no CSV .field larger than field limit"),
    ],
)
def test_a_wrong_table_is_one_line(tmp_path: Path, text: str, column: str, said: str) -> None:
    with pytest.raises(BadValue, match=said) as raised:
        read_device_table(table(tmp_path, text), column)
    assert "phones.csv" in str(raised.value) and "\n" not in str(raised.value)


def test_speeds_are_in_proportion_and_each_device_is_as_likely() -> None:
    """Of 1, 2 and 4 the middle is 2: scores give a half, one and two; times the reverse."""
    for measure, double in (("score", 4.0), ("time", 1.0)):
        rng = np.random.default_rng(7)
        speeds = table_speeds(3000, 10.0, [1.0, 2.0, 4.0], measure, rng)
        places = np.random.default_rng(7).integers(3, size=3000)
        counted = Counter(speeds)
        assert counted.keys() == {5.0, 10.0, 20.0}
        assert all(abs(count - 1000) < 150 for count in counted.values())  # 5.8 deviations
        drawn = [[1.0, 2.0, 4.0][place] for place in places]
        assert [speed == 20 for speed in speeds] == [value == double for value in drawn]
    with pytest.raises(BadValue, match="devices 0"):
        table_speeds(0, 10.0, [1.0], "score", np.random.default_rng())


def test_memoryless_times_are_exponential() -> None:
    """Mean and deviation are equal, a share of 1/e exceeds the mean, and there is no memory."""
    device = Memoryless(32.0, seed=1)
    times = np.array([device.duration_ns(16, start) for start in range(4000)]) / S
    assert times.mean() == pytest.approx(0.5, rel=0.05) and times.std() == pytest.approx(
        0.5, rel=0.08
    )
    assert (times > 0.5).mean() == pytest.approx(math.exp(-1), abs=0.03)
    left = times[times > 0.5] - 0.5
    assert left.mean() == pytest.approx(0.5, rel=0.1)


@pytest.mark.parametrize("wrong", [-0.1, 1.1, math.nan])
def test_a_wrong_jitter_is_told(wrong: float) -> None:
    with pytest.raises(BadValue, match=r"task jitter .*: expected 0 \(none\) to 1"):
        jitter_factor(wrong, np.random.default_rng(1))


def test_a_memoryless_time_depends_on_seed_and_moment_alone() -> None:
    one, other = Memoryless(32.0, seed=1), Memoryless(32.0, seed=2)
    assert (
        one.duration_ns(16, 7)
        == Memoryless(32.0, seed=1).duration_ns(16, 7)
        != other.duration_ns(16, 7)
    )
    assert one.duration_ns(16, 7) != one.duration_ns(16, 8)
    assert one.duration_ns(32, 7) == pytest.approx(2 * one.duration_ns(16, 7), abs=2), (
        "more work takes longer in proportion"
    )
    assert one.duration_ns(0, 7) == 0
    with pytest.raises(BadValue, match="samples_per_s"):
        Memoryless(0.0, seed=1)
