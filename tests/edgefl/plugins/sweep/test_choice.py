"""Which setting is best, what is tried next, and samplers that depend only on their arguments."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from statistics import fmean
from typing import Any

import orjson
import pytest

from edgefl.plugins.sweep.choice import (
    Tried,
    best_of,
    between,
    beyond,
    edges,
    metric,
    next_setting,
)
from edgefl.plugins.sweep.search import BATCH, Sampler, sampler
from edgefl.plugins.sweep.settings import GridAxis, Setting, ValueRange, settings

ACCURACY, LOSS = metric("final_accuracy"), metric("final_loss")


def tried(key: str, **scores: float | None) -> list[Tried]:
    return [Tried(Setting(((key, float(value[1:])),)), score) for value, score in scores.items()]


def test_the_best_is_the_first_of_equals_and_never_one_without_a_number() -> None:
    found = tried("a", _1=None, _2=0.5, _3=0.9, _4=0.9)
    best = best_of(found, ACCURACY)
    assert best is not None and best.setting["a"] == 3.0
    best = best_of(found, LOSS)
    assert best is not None and best.setting["a"] == 2.0
    assert best_of(tried("a", _1=None), ACCURACY) is None and best_of([], ACCURACY) is None


@pytest.mark.parametrize(
    ("versions", "diverged_at", "stability"), [(9, None, 0.0), (9, 3, None), (0, None, None)]
)
def test_a_dead_model_is_not_stable(
    tmp_path: Path, versions: int, diverged_at: int | None, stability: float | None
) -> None:
    facts: dict[str, Any] = {"versions": versions, "diverged_at_version": diverged_at}
    facts |= {"final_accuracy": 0.1, "stability": 0.0, "fidelity": {"verdict": "faithful"}}
    (tmp_path / "summary.json").write_bytes(orjson.dumps(facts))
    assert metric("stability").of(tmp_path) == stability
    assert ACCURACY.of(tmp_path) == 0.1, "a bad one, which counts"


@pytest.mark.parametrize(
    ("values", "largest", "expected"),
    [
        ([0.01, 0.1], True, 1.0),  # by ratio
        ([0.0, 0.5], True, 1.0),  # 0 has no ratio: by difference
        ([0.0, 0.5], False, -0.5),
        ([2, 4, 8], True, 16),
        ([1, 2], False, None),  # 1/2 rounds to a value that is there, or to no positive one
    ],
)
def test_the_value_beyond_an_edge(
    values: list[float], largest: bool, expected: float | None
) -> None:
    made = beyond(values, largest)
    assert made == expected and type(made) is type(expected)


@pytest.mark.parametrize(
    ("values", "value", "expected"),
    [
        ([0.01, 0.1, 1.0], 0.1, 0.03162),  # both gaps are equal: the lower one
        ([0.1, 0.2, 10.0], 0.2, 1.414),
        ([1, 2, 4], 2, 3),
    ],
)
def test_the_value_in_a_gap(values: list[float], value: float, expected: float | None) -> None:
    assert between(values, value) == expected


def test_an_edge_needs_numbers_and_several_values() -> None:
    axes = (GridAxis("a", (1.0, 2.0)), GridAxis("b", ("x", "y")), GridAxis("c", (3,)))
    found = [
        Tried(Setting((("a", 1.0), ("b", "x"), ("c", 3))), 0.1),
        Tried(Setting((("a", 2.0), ("b", "y"), ("c", 3))), 0.2),
    ]
    (edge,) = edges(axes, found, ACCURACY)
    assert (edge.axis.key, edge.value, edge.largest, edge.beyond) == ("a", 2.0, True, 4.0)
    assert edges(axes, [], ACCURACY) == []


def test_a_method_at_an_edge_goes_on_and_one_that_is_not_fills_a_gap() -> None:
    axes = (GridAxis("a", (0.1, 1.0, 10.0)),)
    at_edge = tried("a", **{"_0.1": 0.1, "_1": 0.2, "_10": 0.3})
    assert next_setting(axes, at_edge, ACCURACY) == Setting((("a", 100.0),))
    inside = tried("a", **{"_0.1": 0.1, "_1": 0.3, "_10": 0.2})
    assert next_setting(axes, inside, ACCURACY) == Setting((("a", 0.3162),))
    corner = [Tried(Setting((("a", a), ("b", b))), a + b) for a in (1.0, 2.0) for b in (10.0, 20.0)]
    both = (GridAxis("a", (1.0, 2.0)), GridAxis("b", (10.0, 20.0)))
    assert next_setting(both, corner, ACCURACY) == Setting((("a", 4.0), ("b", 20.0)))
    assert next_setting(both, corner, LOSS) == Setting((("a", 0.5), ("b", 10.0)))
    more = [*corner, Tried(Setting((("a", 4.0), ("b", 20.0))), 1.0)]
    assert next_setting(both, more, ACCURACY) == Setting((("a", 2.0), ("b", 40.0))), "one at a time"
    ends = next_setting(both, corner, ACCURACY, lambda setting: setting["a"] <= 2.0)
    assert ends == Setting((("a", 2.0), ("b", 40.0))), "the range of a ends at 2"
    inner = next_setting(
        both, corner, ACCURACY, lambda setting: setting["a"] <= 2.0 and setting["b"] <= 20.0
    )
    assert inner == Setting((("a", 1.414), ("b", 20.0))), "no edge can move: the gap of a"
    words = (GridAxis("b", ("x", "y")),)
    assert next_setting(words, [Tried(Setting((("b", "x"),)), 1.0)], ACCURACY) is None


LISTS = (GridAxis("a", (1, 2, 3)), GridAxis("b", ("x", "y")))
SPANS = (
    GridAxis("rate", span=ValueRange(0.001, 0.1, True)),
    GridAxis("size", span=ValueRange(1, 9)),
)
ACCURACY = metric("final_accuracy")


def test_random_settings_of_lists_are_at_most_all_of_them() -> None:
    assert sampler("random", LISTS, 6, ACCURACY, 1).next([]) == settings(LISTS)
    some = sampler("random", LISTS, 4, ACCURACY, 1).next([])
    assert len(set(some)) == 4 and set(some) <= set(settings(LISTS))
    few = (GridAxis("a", span=ValueRange(1, 3)),)
    assert len(sampler("random", few, 10, ACCURACY, 1).next([])) == 3, "no more whole numbers"


def asked(chooses: Sampler, score: Callable[[Setting], float | None]) -> list[Setting]:
    tried: list[Tried] = []
    while settings := chooses.next(tried):
        assert len(settings) <= BATCH
        tried += [Tried(each, score(each)) for each in settings]
    return [each.setting for each in tried]


@pytest.mark.slow
def test_optuna_learns_and_is_the_same_again() -> None:
    pytest.importorskip("optuna", reason="the extra optuna is not installed")
    axes = (GridAxis("x", span=ValueRange(0.0, 1.0)),)

    def score(setting: Setting) -> float | None:
        away = abs(float(setting["x"]) - 0.7)
        return None if away > 0.6 else -away  # None: as of a run that died

    found = asked(sampler("optuna", axes, 40, ACCURACY, 11), score)
    assert len(found) == 40 and found == asked(sampler("optuna", axes, 40, ACCURACY, 11), score)
    away = [abs(each["x"] - 0.7) for each in found]
    assert fmean(away[-20:]) < 0.2 < fmean(away[:10]), "the first ten are random"
    least = sampler("optuna", axes, 40, metric("final_loss"), 11)
    assert fmean(abs(each["x"] - 0.7) for each in asked(least, score)[-20:]) > 0.2, "minimised"


def test_optuna_takes_lists_and_whole_numbers() -> None:
    pytest.importorskip("optuna", reason="the extra optuna is not installed")
    lists = sampler("optuna", LISTS, 5, ACCURACY, 1).next([])
    assert len(lists) == BATCH and set(lists) <= set(settings(LISTS))
    spans = sampler("optuna", SPANS, 2, ACCURACY, 1).next([])
    assert len(spans) == 2 and all(
        each["size"] in range(1, 10) and 0.001 <= each["rate"] <= 0.1 for each in spans
    )
