"""Steps of several runs in one call of torch: against the formula, and against single runs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from builders import vector
from torch import nn
from trainers import FakeTask, half_square

from edgefl.data.task import cross_entropy
from edgefl.edges.training import LocalRun, Trainer, TrainingPlan
from edgefl.hosts.virtual.pool.merged import MergedSteps
from edgefl.models.torch_device import CPU, chosen, make_repeatable
from edgefl.models.workspace import Workspace
from edgefl.strategies.base.strategy import LocalRule
from edgefl.streams import Streams

NO_CUDA = "this torch finds no GPU"
RNG = np.random.Generator(np.random.PCG64(3))
INPUTS = torch.from_numpy(RNG.normal(size=(60, 1, 12, 12)).astype(np.float32))
TARGETS = torch.from_numpy(RNG.integers(0, 3, 60))
# rows of the samples: whole batches and smaller last ones of 3, 2 and 3 samples; less than a batch
MEMBERS = [np.arange(*ends) for ends in ((0, 19), (19, 37), (10, 29), (40, 45), (0, 24))]


class Pull(LocalRule):
    """g <- g + 0.1 (w - w_start)."""

    def adjust(self, run: Any, gradient: Any) -> None:
        gradient.add_(run.weights[: run.parameters] - run.start[: run.parameters], alpha=0.1)


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """As ``learning`` sets it: threads of small tensors wait for each other on a busy machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def convolutions() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(100, 3)
    )


def trainers(
    space: Workspace, plan: TrainingPlan, device: torch.device, members: list[np.ndarray]
) -> list[Trainer]:
    space.to(device)
    samples = INPUTS.to(device), TARGETS.to(device)
    return [
        Trainer(space, *samples, cross_entropy, plan, Streams(1), f"e{number}", rows)
        for number, rows in enumerate(members)
    ]


def begun(
    of: list[Trainer], rule: LocalRule, numbers: list[dict[str, float]] | None = None
) -> list[LocalRun]:
    size = of[0].workspace.layout.size
    return [
        trainer.begin(
            FakeTask(
                {"weights": np.linspace(-0.2, 0.1 * (number + 1), size, dtype=np.float32)},
                numbers=numbers[number] if numbers else {},
            ),
            rule,
            {},
        )
        for number, trainer in enumerate(of)
    ]


def merged_and_single(
    plan: TrainingPlan, rule: LocalRule, device: torch.device = CPU, **more: Any
) -> tuple[list[LocalRun], list[LocalRun]]:
    of = trainers(Workspace(convolutions), plan, device, more.pop("members", MEMBERS))
    together, alone = begun(of, rule, **more), begun(of, rule, **more)
    MergedSteps(of[0].workspace, cross_entropy).train(of[0], together, [rule] * len(of))
    for trainer, run in zip(of, alone):
        assert trainer.advance(run, rule) and run.failure is None
    return together, alone


def assert_close(together: list[LocalRun], alone: list[LocalRun]) -> None:
    for merged, single in zip(together, alone):
        apart, moved = merged.weights - single.weights, single.weights - single.start
        assert float(apart.norm()) <= 1e-4 * float(moved.norm()) > 0
        assert (merged.step, merged.optimizer.steps) == (single.step, single.optimizer.steps)
        assert merged.loss_sum == pytest.approx(single.loss_sum, rel=1e-4)
        assert torch.equal(merged.trainable, merged.weights[: merged.parameters])


def test_two_linear_models_do_one_step_by_hand() -> None:
    space = Workspace(lambda: nn.Linear(2, 1, bias=False))
    inputs, targets = torch.tensor([[1.0, 2.0], [3.0, 0.0]]), torch.tensor([[1.0], [2.0]])
    plan = TrainingPlan(1, 1, 0.1, weight_decay=0.5)
    of = [
        Trainer(space, inputs, targets, half_square, plan, Streams(1), "e", np.array([row]))
        for row in (0, 1)
    ]
    starts, rates = [vector(1.0, 1.0), vector(2.0, -1.0)], [0.1, 0.2]
    runs = [
        trainer.begin(
            FakeTask({"weights": start}, numbers={"learning_rate": rate}), LocalRule(None), {}
        )
        for trainer, start, rate in zip(of, starts, rates)
    ]
    MergedSteps(space, half_square).train(of[0], runs, [LocalRule(None)] * 2)
    # w <- w - rate ((w x - y) x + 0.5 w): errors 3 - 1 = 2 and 6 - 2 = 4
    assert runs[0].weights.tolist() == pytest.approx([1 - 0.1 * (2 + 0.5), 1 - 0.1 * (4 + 0.5)])
    assert runs[1].weights.tolist() == pytest.approx([2 - 0.2 * (12 + 1.0), -1 - 0.2 * -0.5])
    assert [run.loss_sum for run in runs] == [2.0, 8.0]
    assert starts[0].tolist() == [1.0, 1.0]  # what was received is unchanged


@pytest.mark.parametrize(
    "plan",
    [
        TrainingPlan(2, 8, 0.1),
        TrainingPlan(3, 8, 0.1, weight_decay=0.01, momentum=0.9),
        TrainingPlan(2, 8, 0.05, batches_per_epoch=4),
    ],
)
@pytest.mark.parametrize("rule", [LocalRule, Pull])
def test_runs_of_all_lengths_and_batch_sizes_end_as_alone(
    plan: TrainingPlan, rule: Callable[[Any], LocalRule]
) -> None:
    together, alone = merged_and_single(plan, rule(None))
    assert len({run.steps for run in alone}) > 1 or plan.batches_per_epoch
    assert_close(together, alone)


def strange_loss(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return outputs.sum() if float(outputs.sum()) > 0 else -outputs.sum()


@pytest.mark.parametrize(
    ("model", "loss", "reason"),
    [
        (convolutions, cross_entropy, None),
        (lambda: nn.Sequential(nn.Flatten(), nn.Linear(144, 3), nn.Dropout(0.5)), cross_entropy,
         "the model draws random numbers in training"),
        (lambda: nn.Sequential(nn.BatchNorm2d(1), nn.Flatten(), nn.Linear(144, 3)), cross_entropy,
         "training changes buffers of the model"),
        (lambda: nn.Sequential(nn.GroupNorm(1, 1), nn.Flatten(), nn.Linear(144, 3)), cross_entropy,
         None),
        (convolutions, strange_loss, r"torch.func.vmap cannot merge .*\(RuntimeError: "),
        (lambda: nn.Linear(5, 3), cross_entropy, r"two samples cannot be trained \(RuntimeError"),
    ],
)  # fmt: skip  # a table
def test_models_that_cannot_be_merged_are_found(model: Any, loss: Any, reason: str | None) -> None:
    space, before = Workspace(model), torch.get_rng_state()
    start = torch.linspace(-0.1, 0.1, space.layout.size)
    kept = start.clone()
    found = MergedSteps(space, loss).reason_against(start, (INPUTS, TARGETS))
    assert (found is None) == (reason is None)
    assert reason is None or re.search(reason, str(found))
    assert torch.equal(start, kept) and torch.equal(torch.get_rng_state(), before)


@pytest.mark.skipif(not torch.cuda.device_count(), reason=NO_CUDA)
def test_a_gpu_merges_the_same_twice_and_close_to_the_cpu() -> None:
    device = chosen("cuda")
    make_repeatable(device)
    plan = TrainingPlan(2, 8, 0.1, momentum=0.5)
    there, again = (merged_and_single(plan, Pull(None), device)[0] for _ in range(2))
    _, here = merged_and_single(plan, Pull(None))
    for merged, repeated, single in zip(there, again, here):
        found, wanted = merged.weights.numpy(force=True), single.weights.numpy()
        assert torch.equal(merged.weights, repeated.weights)
        assert np.linalg.norm(found - wanted) <= 1e-4 * np.linalg.norm(wanted)
