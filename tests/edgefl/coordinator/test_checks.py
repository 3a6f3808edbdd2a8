"""Limits on an edge's weight, and updates that are not finite or too large."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from builders import Desk, make, vector

from edgefl.coordinator.coordinator import MOST_NAMES_OF_EDGE, TOO_LARGE, Claims
from edgefl.protocol.messages import Update
from edgefl.results.summary import warnings
from edgefl.strategies.fedavg import FedAvg
from edgefl.strategies.fedsa import FedSA
from edgefl.strategies.sasgd import SASGD
from edgefl.strategies.selection.selector import find

HUGE = 3e38  # a finite float32


def rounds(folder: Path, shares: dict[str, int] | None = None, **sections: Any) -> Desk:
    """FedAvg with both of two edges in each round; round 1 has begun."""
    desk = Desk(folder, make(FedAvg, clients_per_round=2), shares, **sections)
    desk.start(a=10, b=30)
    return desk


def facts(desk: Desk) -> list[dict[str, Any]]:
    return [
        {key: value for key, value in fact.items() if key not in ("t", "fact", "edge")}
        for fact in desk.facts("capped", "discarded")
    ]


# ------------------------------------------------------------------ samples
def test_an_update_weighs_no_more_than_the_samples_of_its_edge(tmp_path: Path) -> None:
    desk = rounds(tmp_path)
    desk.update("a", 0, 4, 0, 0, samples=1e308)
    assert "a <- task 2 v1 (1 3 0)" in desk.update("b", 1, 0, 4, 0, samples=30)
    assert facts(desk) == [{"number": "samples", "found": 1e308, "most": 10.0}]
    summary = desk.summary()
    assert summary["numbers_capped"] == {"a": 1} and summary["updates_applied"] == 2
    assert any("1 edge (a) reported more samples" in line for line in warnings(summary))


def test_an_edge_has_no_more_samples_than_its_share_where_that_is_known(tmp_path: Path) -> None:
    desk = rounds(tmp_path, {"b": 10})
    desk.update("a", 0, 4, 0, 0, samples=10)
    assert "a <- task 2 v1 (2 2 0)" in desk.update("b", 1, 0, 4, 0, samples=30)
    assert facts(desk) == [
        {"number": "samples", "found": 30, "most": 10},
        {"number": "samples", "found": 30.0, "most": 10.0},
    ]
    assert [event["samples"] for event in desk.events() if event.get("event") == "edge_joined"] == [
        10,
        10,
    ]


@pytest.mark.parametrize(
    ("samples", "reason"),
    [
        (math.nan, "not finite"),
        (math.inf, "not finite"),
        (-math.inf, "not finite"),
        (-1.0, "no samples"),
        (-1e308, "no samples"),
        (0.0, "no samples"),
        (5e-324, "no samples"),
    ],
)
def test_samples_that_are_no_number_of_samples(tmp_path: Path, samples: float, reason: str) -> None:
    desk = rounds(tmp_path)
    desk.update("a", 0, 4, 0, 0, samples=samples)
    assert "b <- task 3 v1 (0 4 0)" in desk.update("b", 1, 0, 4, 0, samples=30)
    assert facts(desk) == [{"task": 0, "reason": reason}]


@pytest.mark.parametrize("kind", ["selector", "strategy"])
def test_an_update_without_a_loss_is_discarded_where_one_is_needed(
    tmp_path: Path, kind: str
) -> None:
    options = {"concurrency": 2} if kind == "strategy" else {"clients_per_round": 2}
    made = make(FedSA if kind == "strategy" else FedAvg, **options)
    if kind == "selector":
        made.selector = find("oort", {})
    desk = Desk(tmp_path, made)
    desk.start(a=10, b=30)
    desk.update("a", 0, 4, 0, 0, samples=10)
    name = type(made if kind == "strategy" else made.selector).__name__
    reason = f"no loss, which {name} needs (a Flower app returns it as a metric)"
    assert facts(desk) == [{"task": 0, "reason": reason}]
    desk.hear("b", Update(1, 0, {"weights": vector(1, 2, 3)}, {"samples": 30.0, "loss": 2.0}))
    assert len(facts(desk)) == 1 and desk.summary()["updates_applied"] == 1


def test_a_gradients_batch_is_no_larger_than_a_batch() -> None:
    claims = Claims({}, batch_size=32)
    assert claims.joined("a", 10) == 10
    assert claims.capped("a", {"samples": 10.0, "batch": 32.0, "loss": 1e30}) == {}
    assert claims.capped("a", {"samples": 11.0, "batch": 33.0}) == {"samples": 10.0, "batch": 32.0}


def test_names_of_numbers_do_not_grow_without_end() -> None:
    """Each name is a column of an exported table; a strategy has some dozen, the same for all."""
    claims = Claims({}, batch_size=32)
    usual = {"samples": 5.0, "loss": 1.0}
    for edge in ("a", "b", "evil"):
        assert claims.names_fault(edge, usual) is None
    refused = [claims.names_fault("evil", {f"x{n}": 1.0}) for n in range(MOST_NAMES_OF_EDGE + 3)]
    assert refused == [None] * MOST_NAMES_OF_EDGE + ["too many names of numbers"] * 3
    assert claims.names_fault("evil", usual) is None and claims.names_fault("b", usual) is None
    assert claims.names_fault("b", {"mine": 1.0}) is None, "the others keep their own names"


def test_an_update_with_too_many_names_is_discarded_and_the_run_goes_on(tmp_path: Path) -> None:
    desk = rounds(tmp_path)
    names = {f"x{n}": 1.0 for n in range(MOST_NAMES_OF_EDGE)} | {"samples": 10.0}
    desk.hear("a", Update(0, 0, {"weights": vector(1, 2, 3)}, names))
    assert "b <- task 3 v1 (0 4 0)" in desk.update("b", 1, 0, 4, 0, samples=30)
    assert desk.summary()["updates_discarded"] == {"too many names of numbers": 1}


# ------------------------------------------------------------------ norm_bound
def test_an_update_that_moves_too_far_is_discarded_and_the_next_ones_count(tmp_path: Path) -> None:
    """One finite update of 3e38 in a mean would destroy the model."""
    desk = rounds(tmp_path, updates={"norm_bound": 5.0})
    desk.update("a", 0, HUGE, HUGE, HUGE, samples=10)
    assert "a <- task 2 v1 (3 4 0)" in desk.update("b", 1, 3, 4, 0, samples=30)
    (found,) = facts(desk)
    norm = float(np.float32(HUGE)) * math.sqrt(3)
    assert found.pop("norm") == pytest.approx(norm)
    assert found == {"task": 0, "reason": TOO_LARGE, "vector": "weights", "norm_bound": 5.0}
    # the distance to the model that it was given, (3 4 0)
    desk.update("a", 2, 3, 4, 5, version=1, samples=10)
    desk.update("b", 3, 3, 4, 5.1, version=1, samples=30)
    assert facts(desk)[1]["norm"] == pytest.approx(5.1)
    assert desk.summary()["updates_discarded"] == {TOO_LARGE: 2}


def test_a_gradient_is_measured_by_itself(tmp_path: Path) -> None:
    desk = Desk(tmp_path, make(SASGD, buffer_size=2), updates={"norm_bound": 5.0})
    desk.start(a=10, b=10)
    for edge, task, last in (("a", 0, 0.0), ("b", 1, 1.0)):
        vectors = {"gradient": vector(3, 4, last)}
        numbers = {"samples": 10.0, "batch": 10.0, "loss": 1.0}
        desk.hear(edge, Update(task, 0, vectors, numbers))
    (found,) = facts(desk)
    assert (found["vector"], found["norm"]) == ("gradient", pytest.approx(math.sqrt(26)))
