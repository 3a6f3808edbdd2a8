from __future__ import annotations

import pytest

from edgefl.live.series import LatestItems, ThinnedItems


def test_the_latest_items_for_readers_who_come_back() -> None:
    series: LatestItems[int] = LatestItems(5)
    for item in range(3):
        series.add(item)
    assert series.since(0) == [0, 1, 2] and series.since(2) == [2] and series.since(3) == []
    for item in range(3, 8):
        series.add(item)
    assert series.total == 8
    assert series.since(3) == [3, 4, 5, 6, 7] and series.since(6) == [6, 7]
    assert series.since(0) == [3, 4, 5, 6, 7], "older ones are dropped"


def test_a_thinned_series_reaches_back_to_its_beginning() -> None:
    series: ThinnedItems[int] = ThinnedItems(4)
    for item in range(5):
        series.add(item)
    assert series.since(0) == [0, 2, 4], "the first and the last one stay"
    assert series.since(3) == [4] and series.since(5) == []
    series.add(5)
    assert series.since(5) == [5] and series.total == 6


@pytest.mark.parametrize("count", [1, 2, 100, 12_345])
def test_a_thinned_series_is_bounded_and_keeps_its_ends(count: int) -> None:
    series: ThinnedItems[int] = ThinnedItems(50)
    for item in range(count):
        series.add(item)
    held = series.since(0)
    assert len(held) <= 50 and len(held) >= min(count, 25)
    assert held[0] == 0 and held[-1] == count - 1 and held == sorted(held)
