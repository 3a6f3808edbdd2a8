from __future__ import annotations

import pytest

from edgefl.live import series as module
from edgefl.live.series import MOST_BINS_SENT, MOST_SHARES, Shares, Slices
from edgefl.results.columns import MISSING, Texts
from edgefl.results.intervals import SLICE_TYPES, SliceColumns, packed

TEXTS = Texts()


def ended(begin_s: float, end_s: float, edge: int = 0, kind: str = "training") -> list[object]:
    return [edge, 0, kind, begin_s, end_s, 7, None]


def columns(one: list[object]) -> SliceColumns:
    edge, lane, kind, begin_s, end_s, task, _ = one
    row = (edge, lane, TEXTS.number(str(kind)), begin_s, end_s, task, MISSING)
    return SliceColumns(*packed([row], SLICE_TYPES))


def test_readers_get_what_is_new() -> None:
    slices = Slices(TEXTS)
    slices.extend(columns(ended(0, 1)))
    slices.extend(columns(ended(1, 2)))
    assert slices.total == 2
    assert slices.since(0) == [ended(0, 1), ended(1, 2)]
    assert slices.since(1) == [ended(1, 2)] and slices.since(2) == []
    assert slices.newest() == ([ended(0, 1), ended(1, 2)], 0.0)


def test_too_many_new_slices_are_a_gap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "GAP", 3)
    monkeypatch.setattr(module, "MOST_SENT", 2)
    slices = Slices(TEXTS)
    for second in range(4):
        slices.extend(columns(ended(second, second + 1)))
    assert slices.since(0) is None and slices.since(1) is not None
    assert slices.newest() == ([ended(2, 3), ended(3, 4)], 2.0)


def test_a_window_has_the_slices_that_touch_it() -> None:
    slices = Slices(TEXTS)
    for second in range(10):
        slices.extend(columns(ended(second, second + 1)))
    found = slices.window(2.5, 4.0, 100)
    assert found == {"exact": True, "slices": [ended(2, 3), ended(3, 4), ended(4, 5)]}


def test_a_window_that_is_too_full_has_shares_of_time() -> None:
    slices = Slices(TEXTS)
    for second in range(10):  # busy half of the time
        slices.extend(columns(ended(second, second + 0.5)))
    found = slices.window(0.0, 10.0, 3)
    assert not found["exact"] and found["bin_s"] == 0.25 and found["first_s"] == 0.0
    ((edge, lane, kind, shares),) = found["bins"]
    assert (edge, lane, kind) == (0, 0, "training")
    assert shares[:8] == [1, 1, 0, 0, 1, 1, 0, 0]


def test_dropped_slices_remain_as_shares() -> None:
    slices = Slices(TEXTS, most=3)
    for second in range(6):
        slices.extend(columns(ended(second, second + 1)))
    assert slices.window(3.5, 5.0, 100)["exact"]
    old = slices.window(0.0, 2.0, 100)
    assert not old["exact"]
    assert old["bins"][0][3][:8] == [1] * 8
    assert slices.newest()[1] == 3.0


@pytest.mark.parametrize("length_s", [0.01, 0.25, 3.7])
def test_shares_keep_all_seconds_as_bins_become_wider(length_s: float) -> None:
    shares, seconds = Shares(TEXTS), 0.0
    for step in range(500):
        begin = step * 4.0
        shares.extend(columns(ended(begin, begin + length_s)))
        seconds += length_s
    assert shares.bin_s == 2.0  # 0.25 s, doubled until 1024 bins hold 2000 s
    found = shares.window(0, 2000)
    assert len(found["bins"][0][3]) <= MOST_BINS_SENT < MOST_SHARES
    assert sum(found["bins"][0][3]) * found["bin_s"] == pytest.approx(seconds, rel=5e-2)
    assert max(found["bins"][0][3]) <= 1.0


def test_a_window_without_anything() -> None:
    assert Shares(TEXTS).window(5.0, 6.0)["bins"] == []
    assert Slices(TEXTS).window(5.0, 6.0, 5) == {"exact": True, "slices": []}
    assert Slices(TEXTS).window(-2.0, -1.0, 5)["bins"] == [], "before the run"
