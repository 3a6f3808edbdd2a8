"""Devices: rates, the spread, native hardware, and the facts of the host."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emulator.compute import Native, Rate, even_speeds
from emulator.errors import BadValue
from emulator.host import host_facts


def test_a_rate_is_samples_per_second() -> None:
    assert Rate(100.0).duration_ns(250) == 2_500_000_000
    assert Rate(3.0).duration_ns(1) == 333_333_333
    assert Rate(5.0).duration_ns(0) == 0


def test_native_takes_the_time_it_takes() -> None:
    assert Native().duration_ns(10) is None


def test_spread_is_even_in_time_per_sample() -> None:
    rates = even_speeds(5, 100.0, 5.0, np.random.default_rng(1))
    assert sorted(100.0 / rate for rate in rates) == pytest.approx([1, 2, 3, 4, 5])
    assert rates == even_speeds(5, 100.0, 5.0, np.random.default_rng(1))
    assert any(
        even_speeds(5, 100.0, 5.0, np.random.default_rng(seed)) != rates for seed in range(2, 6)
    )
    assert even_speeds(1, 100.0, 5.0, np.random.default_rng(1)) == [100.0]


@settings(deadline=None)
@given(st.integers(2, 50), st.floats(0.1, 1e6), st.floats(1.0, 100.0), st.integers(0, 99))
def test_spread_reaches_both_ends(count: int, fastest: float, ratio: float, seed: int) -> None:
    rates = even_speeds(count, fastest, ratio, np.random.default_rng(seed))
    assert len(rates) == count
    assert max(rates) == pytest.approx(fastest)
    assert min(rates) == pytest.approx(fastest / ratio)


@pytest.mark.parametrize("rate", [0.0, -2.0, float("nan"), float("inf")])
def test_a_rate_must_be_above_zero(rate: float) -> None:
    with pytest.raises(BadValue, match="samples_per_s"):
        Rate(rate)
    with pytest.raises(BadValue, match="fastest_samples_per_s"):
        even_speeds(3, rate, 2.0, np.random.default_rng(0))


@pytest.mark.parametrize(("count", "ratio"), [(3, 0.5), (3, float("nan")), (0, 2.0)])
def test_spread_refuses(count: int, ratio: float) -> None:
    with pytest.raises(BadValue, match="expected 1 or more"):
        even_speeds(count, 10.0, ratio, np.random.default_rng(0))


def test_host_facts_are_plain_json() -> None:
    facts = host_facts()
    assert {"cores", "cpu_model", "governor", "kernel", "python", "memory_bytes"} == set(facts)
    assert facts["cores"] >= 1 and facts["cpu_model"]
    assert json.loads(json.dumps(facts)) == facts
