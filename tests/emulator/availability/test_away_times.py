"""Times away: patterns that repeat, scaled and moved; random ones; refused intervals."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from emulator.availability.away_times import (
    ExponentialAbsences,
    Presence,
    periodic_absences,
    presence,
    share_there,
)
from emulator.errors import BadValue
from emulator.faults import Fault
from emulator.units import FOREVER, NS_PER_S

S = NS_PER_S


def first(absences: Iterable[Fault], count: int) -> list[tuple[float, float]]:
    return [(each.at_ns / S, each.until_ns / S) for each in itertools.islice(absences, count)]


def test_a_pattern_by_hand() -> None:
    pattern = presence([(6, 8), (1, 3)], 10, "p")
    assert pattern == Presence(((S, 3 * S), (6 * S, 8 * S)), 10 * S)
    assert first(periodic_absences("e", pattern), 4) == [(0, 1), (3, 6), (8, 11), (13, 16)]
    over_the_end = presence([(0, 2), (9, 10)], 10, "p")
    assert first(periodic_absences("e", over_the_end), 2) == [(2, 9), (12, 19)]
    assert share_there(periodic_absences("e", pattern), 10 * S) == pattern.share == 0.4


def test_always_and_never() -> None:
    assert list(periodic_absences("e", presence([(0, 10)], 10, "p"))) == []
    assert list(periodic_absences("e", presence([(0, 4), (4, 10)], 10, "p"))) == []
    (never,) = periodic_absences("e", presence([(3, 3)], 10, "p"))
    assert (never.at_ns, never.until_ns) == (0, FOREVER)


def test_scaled_and_moved() -> None:
    pattern = presence([(1, 3), (6, 8)], 10, "p")
    assert first(periodic_absences("e", pattern.scaled(0.1)), 2) == [(0, 0.1), (0.3, 0.6)]
    assert pattern.later(3 * S) == Presence(((0, S), (4 * S, 6 * S), (9 * S, 10 * S)), 10 * S)
    assert pattern.later(10 * S) == pattern


@given(st.lists(st.integers(0, 50), min_size=2, max_size=8, unique=True), st.integers(0, 200))
def test_a_moved_pattern_is_there_as_long_and_goes_on_without_end(
    moments: list[int], by: int
) -> None:
    ordered = sorted(moments[: len(moments) // 2 * 2])
    pattern = presence(list(zip(ordered[::2], ordered[1::2])), 60, "p")
    moved = pattern.later(by * S)
    assert moved.share == pytest.approx(pattern.share)
    away = list(itertools.islice(periodic_absences("e", moved), 20))
    assert all(a.until_ns < b.at_ns for a, b in itertools.pairwise(away))
    laps = 3 * 60 * S
    assert share_there(periodic_absences("e", moved), laps) == pytest.approx(pattern.share)


def test_random_times_follow_the_seed_and_their_means() -> None:
    def drawn(seed: int) -> ExponentialAbsences:
        return ExponentialAbsences("e", np.random.default_rng(seed), 30 * S, 10 * S)

    assert first(drawn(1), 5) == first(drawn(1), 5) != first(drawn(2), 5)
    assert share_there(drawn(3), 100_000 * S) == pytest.approx(0.75, abs=0.02)
    starts = [next(drawn(seed)).at_ns == 0 for seed in range(400)]
    assert np.mean(starts) == pytest.approx(0.25, abs=0.07), "away at the start as often as later"


@pytest.mark.parametrize(
    ("intervals", "period", "words"),
    [
        ([(1, 3), (2, 4)], 10, "p: interval 2 to 4 s overlaps the one before, which ends at 3 s"),
        ([(3, 1)], 10, "expected times in order, from 0 to 10 s"),
        ([(-1, 1)], 10, "expected times in order"),
        ([(1, 11)], 10, "expected times in order, from 0 to 10 s"),
        ([(1, 2)], 0, "expected a period above 0 s"),
        ([(1, float("nan"))], 10, "expected times in order"),
    ],
)
def test_refused_intervals(intervals: list[tuple[float, float]], period: float, words: str) -> None:
    with pytest.raises(BadValue) as caught:
        presence(intervals, period, "p")
    assert words in str(caught.value)
