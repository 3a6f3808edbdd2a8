"""Samplers depend only on their arguments, so that the same command has the same trials."""

from __future__ import annotations

import sys
from collections.abc import Callable
from statistics import fmean

import pytest

from edgefl.errors import UserError
from edgefl.sweep.choice import BATCH, Listed, Sampler, Tried, find_sampler, from_share
from edgefl.sweep.metrics import metric
from edgefl.sweep.settings import GridAxis, Setting, ValueRange, settings

LISTS = (GridAxis("a", (1, 2, 3)), GridAxis("b", ("x", "y")))
SPANS = (
    GridAxis("rate", span=ValueRange(0.001, 0.1, True)),
    GridAxis("size", span=ValueRange(1, 9)),
)
ACCURACY = metric("final_accuracy")


def test_a_list_is_tried_once() -> None:
    one = Setting((("a", 1),))
    assert Listed((one,)).next([]) == [one] and Listed((one,)).next([Tried(one, None)]) == []


def test_random_settings_differ_and_are_the_same_again() -> None:
    drawn = find_sampler("random")(SPANS, 30, ACCURACY, 11).next([])
    assert drawn == find_sampler("random")(SPANS, 30, ACCURACY, 11).next([])
    assert len(set(drawn)) == len(drawn) == 30
    assert drawn != find_sampler("random")(SPANS, 30, ACCURACY, 12).next([])
    assert all(0.001 <= each["rate"] <= 0.1 and each["size"] in range(1, 10) for each in drawn)
    below = sum(each["rate"] < 0.01 for each in drawn)
    assert 8 <= below <= 22, "half of the draws on a logarithmic scale"


def test_random_settings_of_lists_are_at_most_all_of_them() -> None:
    assert find_sampler("random")(LISTS, 6, ACCURACY, 1).next([]) == settings(LISTS)
    some = find_sampler("random")(LISTS, 4, ACCURACY, 1).next([])
    assert len(set(some)) == 4 and set(some) <= set(settings(LISTS))
    few = (GridAxis("a", span=ValueRange(1, 3)),)
    assert len(find_sampler("random")(few, 10, ACCURACY, 1).next([])) == 3, "no more whole numbers"


@pytest.mark.parametrize(
    ("span", "share", "expected"),
    [
        (ValueRange(0.0, 1.0), 0.25, 0.25),
        (ValueRange(0.01, 100.0, True), 0.5, 1.0),
        (ValueRange(0.01, 100.0, True), 1.0, 100.0),
        (ValueRange(1, 4), 0.5, 2),
        (ValueRange(1, 4), 1.0, 4),
    ],
)
def test_the_number_at_a_share_of_a_span(span: ValueRange, share: float, expected: float) -> None:
    assert from_share(span, share) == expected


def asked(sampler: Sampler, score: Callable[[Setting], float | None]) -> list[Setting]:
    tried: list[Tried] = []
    while settings := sampler.next(tried):
        assert len(settings) <= BATCH
        tried += [Tried(each, score(each)) for each in settings]
    return [each.setting for each in tried]


def test_optuna_learns_and_is_the_same_again() -> None:
    pytest.importorskip("optuna", reason="the extra optuna is not installed")
    axes = (GridAxis("x", span=ValueRange(0.0, 1.0)),)

    def score(setting: Setting) -> float | None:
        away = abs(float(setting["x"]) - 0.7)
        return None if away > 0.6 else -away  # None: as of a run that died

    found = asked(find_sampler("optuna")(axes, 40, ACCURACY, 11), score)
    assert len(found) == 40 and found == asked(
        find_sampler("optuna")(axes, 40, ACCURACY, 11), score
    )
    away = [abs(each["x"] - 0.7) for each in found]
    assert fmean(away[-20:]) < 0.2 < fmean(away[:10]), "the first ten are random"
    least = find_sampler("optuna")(axes, 40, metric("final_loss"), 11)
    assert fmean(abs(each["x"] - 0.7) for each in asked(least, score)[-20:]) > 0.2, "minimised"


def test_optuna_takes_lists_and_whole_numbers() -> None:
    pytest.importorskip("optuna", reason="the extra optuna is not installed")
    lists = find_sampler("optuna")(LISTS, 5, ACCURACY, 1).next([])
    assert len(lists) == BATCH and set(lists) <= set(settings(LISTS))
    spans = find_sampler("optuna")(SPANS, 2, ACCURACY, 1).next([])
    assert len(spans) == 2 and all(
        each["size"] in range(1, 10) and 0.001 <= each["rate"] <= 0.1 for each in spans
    )


def test_optuna_is_an_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == "optuna"]:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(UserError, match=r"--sampler optuna needs .*edgefl\[optuna\]"):
        find_sampler("optuna")(SPANS, 3, ACCURACY, 1)


def test_an_unknown_sampler_names_the_nearest() -> None:
    with pytest.raises(UserError, match=r"--sampler rndom: unknown sampler \(nearest: 'random'\)"):
        find_sampler("rndom")
