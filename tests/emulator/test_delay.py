"""Jitter: it keeps order, has an exact inverse, depends only on its seed, and its distribution."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emulator.delay import DISTRIBUTIONS, Jitter
from emulator.errors import BadValue
from emulator.units import NS_PER_S

MS = NS_PER_S // 1000

jitters = st.builds(
    Jitter,
    st.integers(1, 10**8),
    st.integers(0, 10**8),
    st.sampled_from(DISTRIBUTIONS),
    st.integers(0, 2**70),
    st.sampled_from([10**6, 10**7, 3 * 10**8 + 1]),
)
moments = st.integers(-(10**9), 10**14)


@settings(deadline=None, max_examples=50)
@given(
    st.integers(0, 99), st.sampled_from(DISTRIBUTIONS), st.lists(moments, min_size=1, max_size=10)
)
def test_who_asks_and_when_changes_nothing(seed: int, distribution: str, asked: list[int]) -> None:
    one, other = (Jitter(30 * MS, 20 * MS, distribution, seed) for _ in range(2))
    assert [one.arrival(t) for t in asked] == list(
        reversed([other.arrival(t) for t in reversed(asked)])
    )


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
def test_arrival_is_the_latest_of_all_before(distribution: str) -> None:
    """Compare with the definition over 3 s, with two borders of blocks (1.024 s and 2.048 s)."""
    jitter = Jitter(20 * MS, 9 * MS, distribution, seed=5, epoch_ns=MS)
    # the same delays in epochs so long that no byte holds back one of the next epoch
    long = Jitter(20 * MS, 9 * MS, distribution, seed=5, epoch_ns=1000 * MS)
    moments = [epoch * 1000 * MS + 500 * MS for epoch in range(-1024, 3 * 1024)]
    delays = [long.arrival(moment) - moment for moment in moments]
    latest = 0
    for epoch, delay in enumerate(delays, -1024):
        if epoch >= 0:
            for since in (0, 400_000, MS - 1):
                assert jitter.arrival(epoch * MS + since) == max(latest, epoch * MS + since + delay)
        latest = max(latest, (epoch + 1) * MS - 1 + delay)


@pytest.mark.parametrize(
    ("distribution", "deviation"), [("normal", 5.0), ("uniform", 5 / 3**0.5), ("lognormal", 5.0)]
)
def test_the_delay_is_distributed_as_it_says(distribution: str, deviation: float) -> None:
    jitter = Jitter(
        40 * MS, 5 * MS, distribution, seed=7, epoch_ns=1000 * MS
    )  # in such long epochs bytes are not held back for long
    delays = (
        np.array(
            [
                jitter.arrival(epoch * 1000 * MS + 500 * MS) - (epoch * 1000 + 500) * MS
                for epoch in range(4000)
            ]
        )
        / MS
    )
    assert delays.mean() == pytest.approx(40, rel=0.01) and delays.std() == pytest.approx(
        deviation, rel=0.05
    )
    assert (np.mean((delays - 40) ** 3) > 20) == (distribution == "lognormal")  # the long tail


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            (1, 1, "norml"),
            "'norml' does not exist: did you mean normal\\? \\(valid: normal, ",
        ),
        ((-1, 1), "latency -1: expected a whole number of ns"),
        ((1, 0.5), "jitter 0.5"),
        ((1, 1, "normal", 0, 0), "epoch 0"),
        ((1, 1, "normal", -1), "seed -1"),
        ((0, 1, "lognormal"), "needs a mean delay above 0"),
        ((10**9, 10**12, "normal", 0, 1), "expected longer epochs"),
    ],
)
def test_impossible_jitter_is_refused(arguments: tuple, words: str) -> None:
    with pytest.raises(BadValue, match=words):
        Jitter(*arguments)


@settings(deadline=None)
@given(jitters, moments, moments)
def test_a_saved_jitter_goes_on_as_it_was(jitter: Jitter, before: int, after: int) -> None:
    jitter.arrival(before)
    saved: Jitter = object.__new__(Jitter)
    saved.restore(jitter.state())
    assert saved.arrival(after) == jitter.arrival(after)
    assert vars(saved).keys() == vars(jitter).keys()
