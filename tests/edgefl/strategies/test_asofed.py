"""ASO-Fed by hand: the device's memory, its step factor, the server's sample share and the
feature step (Chen et al. 2020).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from builders import S, Server, make, vector
from trainers import FakeTask, finished, linear_trainer

from edgefl.edges.training import TrainingPlan
from edgefl.strategies.asofed import ASOFed, ASOFedOptions, Memory, attend, step_factor
from edgefl.strategies.base.events_and_decisions import (
    Assign,
    EdgeJoined,
    Event,
    RunStarted,
    UpdateArrived,
)
from edgefl.vectors import Layout, LayoutEntry


def task(factor: float = 1.0) -> FakeTask:
    return FakeTask({"weights": np.zeros(3, np.float32)}, numbers={"step_factor": factor})


def sent(
    memory: dict[str, Any], factor: float = 1.0, beta: float = 0.25, rate: float = 0.5
) -> tuple[list[float], dict[str, list[float]]]:
    """Take one step from w = 0, where the gradient is (-1, -4, 0): (update, memory)."""
    taught, rule = linear_trainer(TrainingPlan(1, 2, rate)), Memory(ASOFedOptions(beta=beta))
    run = finished(taught, rule, task(factor), memory)
    vectors, _ = taught.payload(run, rule)
    assert set(vectors) == {"weights"}
    return vectors["weights"].tolist(), {
        name: value.tolist() for name, value in taught.remembered(run, rule).items()
    }


def test_the_first_time_it_is_a_plain_step_and_the_gradient_is_kept() -> None:
    """zeta = g - 0 + 0; z = w - r eta zeta; h <- 0; v <- g."""
    up, kept = sent({})
    assert up == [0.5, 2.0, 0.0] and kept == {"h": [0, 0, 0], "v": [-1, -4, 0]}


def test_zeta_uses_the_old_h_and_v() -> None:
    """g = (-1, -4, 0), v = (1, 0, 2), h = (4, 4, 0): zeta = g - v + h = (2, 0, -2); z = 0 - 0.5
    zeta; h <- 0.25 h + 0.75 v = (1.75, 1, 1.5); v <- g.
    """
    up, kept = sent({"v": vector(1, 0, 2), "h": vector(4, 4, 0)})
    assert up == [-1.0, 0.0, 1.0] and kept == {"h": [1.75, 1.0, 1.5], "v": [-1, -4, 0]}


def test_the_step_factor_multiplies_the_way() -> None:
    """z = w - r eta zeta with r = 3."""
    assert sent({}, factor=3.0)[0] == [1.5, 6.0, 0.0]


# ------------------------------------------------------------------ server
def test_the_model_moves_by_the_share_of_all_samples() -> None:
    """w <- w - (n_k / N)(w_sent - z): n = 1 of 4, and no staleness weight: b's gap is 1."""
    story = Server(make(ASOFed, concurrency=2))
    story.join("a", samples=1)
    story.join("b", samples=3)
    story.give(RunStarted())
    assert story.deliver("a", 4, 8, 0, samples=1)[0] == "publish 1 2 0"
    assert story.deliver("b", 4, 0, 4, samples=3)[0] == "publish 4 2 3", (
        "b began at (0, 0, 0): + 3/4 (4, 0, 4)"
    )


def test_the_step_factor_is_the_logarithm_of_the_mean_delay() -> None:
    """r_k = max(1, log(mean delay of k so far)), in seconds; 1 before there is one."""
    assert [step_factor(delay) for delay in (None, 0.0, 0.5, 2.0, math.e)] == [1, 1, 1, 1, 1]
    assert step_factor(math.e**2) == pytest.approx(2)


def test_delays_are_counted_from_task_to_update() -> None:
    strategy = make(ASOFed, concurrency=1)
    strategy.handle(EdgeJoined("a", 1), 0)

    def factor(event: Event, seconds: int) -> float:
        return next(
            decision.numbers["step_factor"]
            for decision in strategy.handle(event, seconds * S)
            if isinstance(decision, Assign)
        )

    update = UpdateArrived(
        "a", 0, 0, vector(0, 0, 0), {"weights": vector(0, 0, 0)}, {"samples": 1.0}
    )
    assert factor(RunStarted(), 5) == 1
    assert [factor(update, 25), factor(update, 65)] == pytest.approx(
        [math.log(20), math.log(30)]
    ), "the mean of 20 s and 40 s is 30 s"


def test_the_feature_step_by_hand() -> None:
    """a_ij = e^|W_ij| / sum_j e^|W_ij|, W_ij <- a_ij W_ij, row by row, first layer only."""
    two = Layout(
        (
            LayoutEntry("bias", (1,), 0, "parameter", "x"),
            LayoutEntry("w", (2, 2), 1, "parameter", "x"),
            LayoutEntry("v", (1, 2), 5, "parameter", "y"),
        )
    )
    weights = vector(9, math.log(3), 0, -2, 2, 7, 7)
    attend(weights, two)
    assert weights == pytest.approx([9, 0.75 * math.log(3), 0, -1, 1, 7, 7], rel=1e-6)


def test_the_feature_step_comes_once_in_so_many_updates_and_by_default_never() -> None:
    strategy = make(ASOFed, concurrency=1, feature_every=2)
    strategy.layout = Layout(
        (LayoutEntry("w", (1, 2), 0, "parameter", ""), LayoutEntry("b", (1,), 2, "parameter", ""))
    )
    story = Server(strategy)
    story.start("a")
    assert story.deliver("a", 8, 8, 8)[0] == "publish 8 8 8"
    assert story.deliver("a", 8, 8, 8)[0] == "publish 4 4 8"
    assert ASOFedOptions().feature_every is None
