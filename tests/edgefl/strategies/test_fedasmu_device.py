"""FedASMU's device side: one request, one merge, the memory and the reported numbers (Algorithm
2; eqs. 9-11).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from merging import local_run, loss, rule
from torch import nn
from trainers import FakeTask, half_square, linear_trainer

from edgefl.edges.training import LocalRun, Trainer, TrainingPlan
from edgefl.models.workspace import Workspace
from edgefl.strategies.dissemination.device import Refresh
from edgefl.strategies.fedasmu import FedASMUOptions
from edgefl.streams import Streams

FRESH = np.array([0, 2, 0], dtype=np.float32)


def test_eqs_9_and_10_by_hand() -> None:
    """g = 4 from 1, g - o + 1 = 4: phi = 2 / 2 (1 - 1/2) = 1/2, mu = 2: beta = 1/2. w <- (w +
    w_g) / 2.
    """
    device = rule(mu_beta=2.0, gamma0=2.0, upsilon0=1.0)
    run = local_run(2.0, 0.0, 1.0, version=0, refresh_point=2.0)
    device.merge(run, FRESH, 3)
    assert run.weights.tolist() == [1, 1, 0.5]
    numbers = device.payload(run)[1]
    assert (
        numbers["beta"],
        numbers["fresh_version"],
        numbers["refresh_point"],
        numbers["asked"],
        numbers["merged"],
        numbers["merge_step"],
    ) == (0.5, 3, 2, 1, 1, 6)


def test_the_reward_is_the_loss_before_minus_the_loss_after_and_moves_the_baseline() -> None:
    """F = (4 + 4 * 1) / 2 = 4 before; (1 + 2 + 4/4) / 2 = 2 after: R = 2, b <- (1 - 0.1) 0 + 0.1
    R.
    """
    device = rule(mu_beta=2.0, gamma0=2.0, upsilon0=1.0)
    run = local_run(2.0, 0.0, 1.0, refresh_point=3.0)
    assert float(loss(run.weights)) == 4
    device.merge(run, FRESH, 3)
    numbers = device.payload(run)[1]
    assert (numbers["reward"], numbers["baseline"]) == (pytest.approx(2.0), pytest.approx(0.2))
    again = local_run(2.0, 0.0, 1.0, task=2, memory=dict(run.memory), draw=0.9)
    device.merge(again, FRESH, 3)
    second = device.payload(again)[1]
    assert second["baseline"] == pytest.approx(0.9 * 0.2 + 0.1 * second["reward"])


def test_a9_a_task_merges_once() -> None:
    """After the first reception every later epoch would have merged again."""
    device, run = rule(), local_run(2.0, 0.0, 1.0, refresh_point=3.0)
    device.merge(run, FRESH, 3)
    once, told = run.weights.clone(), device.payload(run)[1]
    device.merge(run, FRESH + 1, 9)
    assert torch.equal(run.weights, once) and device.payload(run)[1] == told
    next_task = local_run(2.0, 0.0, 1.0, task=2, memory=run.memory, draw=0.9)
    device.merge(next_task, FRESH, 3)
    assert not torch.equal(next_task.weights, torch.tensor([2.0, 0.0, 1.0]))


def test_a9_the_request_stands_after_l_epochs() -> None:
    """The text ("the requesting decision after the l-th local epoch"), not the listing, which asks
    at the start of epoch l*: three of five epochs are done at l* = 3.
    """
    assert rule(selector="fixed", refresh_point=3).checkpoint(local_run(0.0)) == 3 * 3


def test_without_a_merge_nothing_is_told_of_one() -> None:
    numbers = rule(gamma0=0.7).payload(local_run(1.0, 1.0, 1.0))[1]
    assert numbers == {
        "learning_rate": 0.1,
        "refresh_point": 2,
        "asked": 1,
        "merged": 0,
        "gamma": 0.7,
        "upsilon": 0.5,
        "baseline": 0.0,
    }


def test_small_steps_of_the_controls_are_not_lost_between_tasks() -> None:
    """At the printed rates a step is 1e-9 of gamma, which one float32 would lose in rounding; a
    hundred steps must add up.
    """
    device, memory, gamma = rule(eta_gamma=1e-9, upsilon0=0.0), {}, 1.0
    for task in range(100):
        run = local_run(2.0, 0.0, 1.0, task=task, memory=memory, draw=0.9, refresh_point=3.0)
        device.merge(run, FRESH, 3)
        memory, before = dict(run.memory), gamma
        gamma = device.payload(run)[1]["gamma"]
        assert gamma != before
    assert 1e-8 < abs(gamma - 1.0) < 1e-6
    assert all(np.asarray(vector).dtype == np.float32 for vector in memory.values())


# ------------------------------------------------------------------ with the real trainer
ROWS = torch.eye(3).repeat(2, 1)


@pytest.mark.parametrize(("point", "step"), [(1, 1), (3, 3), (4, 4), (9, 4)])
def test_if_an_epoch_is_one_batch_refresh_points_count_batches(point: int, step: int) -> None:
    """Five epochs are five steps, as eqs. 4 and 6 are printed: the last point is 4."""
    plan = TrainingPlan(epochs=5, batch_size=3, learning_rate=0.1, batches_per_epoch=1)
    device = Refresh(FedASMUOptions(selector="fixed", refresh_point=point))
    run = linear_trainer(plan, ROWS, torch.ones(6, 1)).begin(
        FakeTask({"weights": np.zeros(3, np.float32)}), device, {}
    )
    assert (run.steps, run.checkpoint) == (5, step)
    assert device.payload(run)[1]["refresh_point"] == step


def trained(memory: dict[str, Any] | None = None) -> tuple[Trainer, LocalRun, Refresh]:
    """Five epochs of two batches of three, stopped at the request of refresh point 1."""
    plan = TrainingPlan(epochs=5, batch_size=3, learning_rate=0.1)
    trainer = Trainer(
        Workspace(lambda: nn.Linear(3, 1, bias=False)),
        ROWS,
        torch.ones(6, 1),
        half_square,
        plan,
        Streams(1),
        "e1",
    )
    device = Refresh(FedASMUOptions(selector="fixed", refresh_point=1))
    run = trainer.begin(FakeTask({"weights": np.zeros(3, np.float32)}), device, memory or {})
    assert run.checkpoint == 2 and trainer.advance(run, device, run.checkpoint)
    return trainer, run, device


def test_the_probe_is_the_batch_to_come_and_training_does_not_notice() -> None:
    """The probe gives loss and gradient at any weights, for the batch of the next step."""
    trainer, run, device = trained()
    expected, before = [], run.weights.clone()

    def spy(rows: Any, fresh: np.ndarray, version: int) -> None:
        expected.append(rows.probe(rows.weights))

    device.merge = spy
    trainer.merge(run, device, FRESH, 1)
    assert torch.equal(run.weights, before) and run.probe is None
    (value, gradient), done = expected[0], run.loss_sum
    trainer.advance(run, device, 3)
    assert run.loss_sum - done == pytest.approx(value)
    assert torch.allclose(run.weights, before - 0.1 * gradient)
