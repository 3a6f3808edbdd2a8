"""AdamW, state that stays on the edge, micro-batches and schedules, by hand and against torch."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from trainers import ANSWERS, ROWS, FakeTask, finished, half_square, linear_trainer

from edgefl.data.task import cross_entropy
from edgefl.edges.training import STEPS, Schedule, Trainer, TrainingPlan
from edgefl.models.workspace import Workspace
from edgefl.strategies.base.strategy import LocalRule
from edgefl.strategies.fedac import Controlled, FedACOptions
from edgefl.streams import Streams

ADAMW = TrainingPlan(1, 2, 0.5, optimizer="adamw", epsilon=1e-8)


def start_at(*numbers: float, **task: Any) -> FakeTask:
    return FakeTask({"weights": np.array(numbers, dtype=np.float32)}, **task)


def torch_adamw(steps: int, start: list[float], **options: Any) -> torch.Tensor:
    weight = torch.tensor([start], requires_grad=True)
    reference = torch.optim.AdamW([weight], **options)
    for _ in range(steps):
        reference.zero_grad()
        half_square(ROWS @ weight.T, ANSWERS).backward()
        reference.step()
    return weight.detach()[0]


def test_one_step_of_adamw_by_hand() -> None:
    """At (0, 0, 5) the gradient is (-1, -4, 0). The first step of Adam is the rate times the sign;
    the decay takes rate x decay = 0.05 of the weights: 5 -> 4.75.
    """
    plan = replace(ADAMW, weight_decay=0.1)
    run = finished(linear_trainer(plan), LocalRule(None), start_at(0, 0, 5))
    assert run.weights.tolist() == pytest.approx([0.5, 0.5, 4.75], abs=1e-6)


def test_adamw_is_that_of_torch() -> None:
    plan = replace(ADAMW, epochs=7, weight_decay=0.1, beta1=0.8, beta2=0.95, epsilon=1e-6)
    run = finished(linear_trainer(plan), LocalRule(None), start_at(0, 0, 5))
    options = {"lr": 0.5, "betas": (0.8, 0.95), "eps": 1e-6, "weight_decay": 0.1}
    torch.testing.assert_close(run.weights, torch_adamw(7, [0.0, 0.0, 5.0], **options))


@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_two_tasks_with_kept_state_are_one_long_task(optimizer: Any) -> None:
    kept = TrainingPlan(2, 2, 0.1, optimizer=optimizer, keeps_state=True)
    kept = kept if optimizer == "adamw" else replace(kept, momentum=0.5)
    rule, trainer = LocalRule(None), linear_trainer(kept)
    first = finished(trainer, rule, start_at(0, 0, 5))
    memory = trainer.remembered(first, rule)
    middle = start_at(*first.weights.tolist(), number=2)
    second = finished(trainer, rule, middle, memory)
    whole = finished(linear_trainer(replace(kept, epochs=4)), rule, start_at(0, 0, 5))
    assert second.weights.tolist() == whole.weights.tolist()
    assert memory[STEPS].tolist() == [2.0]
    fresh = finished(linear_trainer(replace(kept, keeps_state=False)), rule, middle, memory)
    assert fresh.weights.tolist() != whole.weights.tolist(), "the state would have no effect"


def test_a_state_that_is_not_finite_is_not_kept() -> None:
    trainer = linear_trainer(replace(ADAMW, keeps_state=True))
    run = finished(trainer, LocalRule(None), start_at(float("inf"), 0, 5))
    assert trainer.remembered(run, LocalRule(None)) == {}


def test_a_copied_run_has_its_own_moments() -> None:
    trainer, rule = linear_trainer(replace(ADAMW, epochs=3)), LocalRule(None)
    run = trainer.begin(start_at(0, 0, 5), rule, {})
    trainer.advance(run, rule, until_step=1)
    copy = trainer.kept(run)
    trainer.advance(run, rule)
    trainer.advance(copy, rule)
    assert copy.weights.tolist() == run.weights.tolist() and copy.optimizer is not run.optimizer


# ------------------------------------------------------------------ micro-batches
class Ignoring(nn.Module):
    """Logits of 3 words at 4 positions, from 2 inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(2, 12)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.inner(inputs).view(len(inputs), 4, 3)


def over_positions(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return cross_entropy(outputs.flatten(0, 1), targets.flatten())


def test_micro_batches_have_the_gradient_of_the_batch_with_ignored_positions() -> None:
    torch.manual_seed(3)
    inputs, targets = torch.randn(6, 2), torch.randint(3, (6, 4))
    targets[0, 1:], targets[1], targets[4, :2] = -100, -100, -100

    def after(size: int | None) -> torch.Tensor:
        plan = TrainingPlan(2, 6, 0.5, micro_batch_size=size)
        trainer = Trainer(
            Workspace(Ignoring),
            inputs,
            targets,
            over_positions,
            plan,
            Streams(1),
            "e1",
            terms=lambda part: int((part != -100).sum()),
        )
        start = np.linspace(-1, 1, trainer.workspace.layout.size, dtype=np.float32)
        run = finished(trainer, LocalRule(None), FakeTask({"weights": start}))
        assert run.step == 2
        return torch.cat([run.weights, torch.tensor([run.loss_sum])])

    torch.testing.assert_close(after(4), after(None))
    torch.testing.assert_close(after(1), after(None))


# ------------------------------------------------------------------ schedules
def test_schedules_by_hand() -> None:
    linear = Schedule("linear", warmup_steps=1, total_steps=5)
    assert [linear.factor(step, 99) for step in range(7)] == [0.5, 1.0, 0.75, 0.5, 0.25, 0.0, 0.0]
    cosine = Schedule("cosine", end_share=0.2)
    assert [round(cosine.factor(step, 4), 6) for step in (0, 2, 4)] == [1.0, 0.6, 0.2]
    assert cosine.factor(1, 4) == pytest.approx(0.2 + 0.8 * (1 + math.sqrt(0.5)) / 2)
    assert [Schedule("constant", 3).factor(step, 4) for step in range(4)] == [0.25, 0.5, 0.75, 1.0]


def test_the_learning_rate_follows_the_schedule_step_by_step() -> None:
    """Gradient of w1 is w1 - 1: from 0 with rates 0.5 and 0.25: 0 -> 0.5 -> 0.625."""
    plan = TrainingPlan(2, 2, 0.5, schedule=Schedule("linear", total_steps=2))
    run = finished(linear_trainer(plan), LocalRule(None), start_at(0, 1, 0))
    assert run.weights.tolist() == [0.625, 1.0, 0.0]


def test_a_schedule_over_all_tasks_goes_on() -> None:
    plan = TrainingPlan(1, 2, 0.5, keeps_state=True, schedule=Schedule("linear", total_steps=2))
    trainer, rule = linear_trainer(plan), LocalRule(None)
    first = finished(trainer, rule, start_at(0, 1, 0))
    second = finished(
        trainer, rule, start_at(*first.weights.tolist()), trainer.remembered(first, rule)
    )
    assert second.weights.tolist() == [0.625, 1.0, 0.0]


# ------------------------------------------------------------------ FedAC's control variate
def test_fedacs_mean_gradient_is_the_same_from_steps_and_from_gradients() -> None:
    """A schedule that never changes the rate makes the device sum gradients itself."""
    sent = []
    for schedule in (None, Schedule("constant")):
        plan = TrainingPlan(3, 2, 0.125, schedule=schedule)
        trainer, rule = linear_trainer(plan), Controlled(FedACOptions())
        task = start_at(0, 0, 5)
        task.vectors["control"] = np.array([0.25, 0.0, -0.5], dtype=np.float32)
        run = finished(trainer, rule, task)
        sent.append(trainer.payload(run, rule)[0]["control"])
    np.testing.assert_allclose(sent[0], sent[1], atol=1e-5)
    assert np.abs(sent[0]).max() > 0.1
