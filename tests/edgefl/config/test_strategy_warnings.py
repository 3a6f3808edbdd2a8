"""A strategy that asks for more edges than exist gets all of them, with a warning."""

from __future__ import annotations

from pathlib import Path

import pytest
from builders import experiment

from edgefl.loading.names import strategy_warnings
from edgefl.strategies.base import catalog

EDGES = 6


def options_of(name: str) -> set[str]:
    return set(catalog.load(name, None).Options.model_fields)


AT_WORK = [
    (name, key)
    for name in catalog.strategy_names()
    for key in ("clients_per_round", "concurrency", "clients_per_trigger")
    if key in options_of(name)
]


def said(name: str, **options: int) -> list[str]:
    given = experiment(edges={"count": EDGES}, strategies=[{"strategy": name, **options}])
    return [line for line in strategy_warnings(given, None) if "than the number of edges" in line]


@pytest.mark.parametrize(("name", "key"), AT_WORK)
def test_more_than_there_are_edges_is_told(name: str, key: str) -> None:
    assert said(name, **{key: EDGES + 1}) == [
        f"{name}: {key} = 7 is more than the number of edges: all 6 work at the same time"
    ]
    assert said(name, **{key: EDGES}) == []


def test_both_frames_are_among_them() -> None:
    found = set(AT_WORK)
    assert {("fedavg", "clients_per_round"), ("fedasync", "concurrency")} <= found
    assert {("fedssmu", "clients_per_round"), ("fedbuff", "clients_per_trigger")} <= found


@pytest.mark.parametrize("name", ["fedavg", "fedasync"])
def test_a_default_above_the_number_of_edges_is_not(name: str) -> None:
    assert said(name) == []


RULE = """
from edgefl.api import LocalRule, load_strategy

class Own(LocalRule):
    def {method}(self, *given):
        return None

class Mine(load_strategy("fedasync")):
    rule = Own
"""


@pytest.mark.parametrize(
    ("method", "told"),
    [
        ("checkpoint", ["x: Own asks for fresher models (checkpoint), but has no merge"]),
        ("merge", ["x: Own has a merge, but never asks for a fresher model (checkpoint)"]),
        ("begin", []),
    ],
)
def test_a_rule_that_asks_and_cannot_merge(tmp_path: Path, method: str, told: list[str]) -> None:
    (tmp_path / "own.py").write_text(RULE.format(method=method))
    entry = {"strategy": "own.py:Mine", "label": "x", "concurrency": 1}
    assert strategy_warnings(experiment(strategies=[entry]), tmp_path) == told
