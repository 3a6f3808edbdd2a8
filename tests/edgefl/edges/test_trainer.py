from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from trainers import ANSWERS, ROWS, FakeTask, finished, half_square, linear_trainer

from edgefl.data.task import cross_entropy
from edgefl.edges.training import LocalRun, Trainer, TrainingPlan
from edgefl.models.workspace import Workspace, initial
from edgefl.strategies.base.strategy import LocalRule
from edgefl.streams import Streams


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def start_at(*numbers: float, **task: Any) -> FakeTask:
    return FakeTask({"weights": np.array(numbers, dtype=np.float32)}, **task)


def test_one_step_of_sgd_by_hand() -> None:
    """w = (0, 0, 5): residuals -1 and -2, gradient (-1, -4, 0), step 0.5."""
    rule = LocalRule(None)
    trainer = linear_trainer(TrainingPlan(epochs=1, batch_size=2, learning_rate=0.5))
    run = finished(trainer, rule, start_at(0, 0, 5))
    assert run.weights.tolist() == [0.5, 2.0, 5.0] and run.start.tolist() == [0, 0, 5]
    vectors, numbers = trainer.payload(run, rule)
    assert (
        vectors["weights"].tolist() == [0.5, 2.0, 5.0] and vectors["weights"].ctypes.data % 64 == 0
    )
    assert numbers == {"samples": 2, "steps": 1, "loss": 2.5}
    run.weights.zero_()
    assert vectors["weights"].tolist() == [0.5, 2.0, 5.0], "the payload is a copy"


def test_momentum_and_weight_decay_are_those_of_torch() -> None:
    plan = TrainingPlan(
        epochs=3, batch_size=2, learning_rate=0.125, weight_decay=0.25, momentum=0.5
    )
    run = finished(linear_trainer(plan), LocalRule(None), start_at(0, 0, 5))
    weight = torch.tensor([[0.0, 0.0, 5.0]], requires_grad=True)
    reference = torch.optim.SGD([weight], lr=0.125, weight_decay=0.25, momentum=0.5)
    for _ in range(3):
        reference.zero_grad()
        half_square(ROWS @ weight.T, ANSWERS).backward()
        reference.step()
    torch.testing.assert_close(run.weights, weight.detach()[0])


def test_the_last_batch_of_an_epoch_is_kept_and_samples_are_counted() -> None:
    rows = torch.eye(3).repeat(3, 1)[:7]
    trainer = linear_trainer(
        TrainingPlan(epochs=3, batch_size=3, learning_rate=0.0), rows, torch.zeros(7, 1)
    )
    rule = LocalRule(None)
    run = trainer.begin(start_at(0, 0, 0), rule, {})
    assert (run.steps, run.steps_per_epoch) == (9, 3)
    assert [run.samples_at(step) for step in range(10)] == [0, 3, 6, 7, 10, 13, 14, 17, 20, 21]
    assert sorted(run.order[:7].tolist()) == sorted(run.order[7:14].tolist()) == list(range(7))
    assert run.order[:7].tolist() != run.order[7:14].tolist(), "a new permutation each epoch"
    trainer.advance(run, rule, until_step=4)
    assert run.samples == 10 and run.samples_until(6) == 4


def test_a_last_batch_that_is_smaller_may_be_left_out() -> None:
    """Seven samples in batches of three: passes of 3 and 3; the seventh sample is left out."""
    rows = torch.eye(3).repeat(3, 1)[:7]
    plan = TrainingPlan(epochs=2, batch_size=3, learning_rate=0.0, drop_last=True)
    run = linear_trainer(plan, rows, torch.zeros(7, 1)).begin(
        start_at(0, 0, 0), LocalRule(None), {}
    )
    assert (run.steps, run.steps_per_epoch, plan.task_samples(7)) == (4, 2, 12)
    assert [run.samples_at(step) for step in range(5)] == [0, 3, 6, 9, 12]
    passes = run.order[:6].tolist(), run.order[6:].tolist()
    assert all(len(set(each)) == 6 for each in passes) and set(passes[0]) != set(passes[1])
    kept = TrainingPlan(epochs=2, batch_size=3, learning_rate=0.0)
    whole = linear_trainer(kept, rows, torch.zeros(7, 1)).begin(
        start_at(0, 0, 0), LocalRule(None), {}
    )
    assert whole.order[:6].tolist() == passes[0], "the same order of samples as without it"


def test_an_epoch_may_be_a_number_of_batches_along_shuffled_passes() -> None:
    """Seven samples in batches of three are passes of 3, 3 and 1; an epoch here is two batches."""
    rows = torch.eye(3).repeat(3, 1)[:7]
    plan = TrainingPlan(epochs=2, batch_size=3, learning_rate=0.0, batches_per_epoch=2)
    run = linear_trainer(plan, rows, torch.zeros(7, 1)).begin(
        start_at(0, 0, 0), LocalRule(None), {}
    )
    assert (run.steps, run.steps_per_epoch, len(run.order)) == (4, 2, 14)
    assert [run.samples_at(step) for step in range(5)] == [0, 3, 6, 7, 10]
    assert plan.task_samples(7) == 10
    assert sorted(run.order[:7].tolist()) == list(range(7)), "passes as ever"


def test_a_device_trains_on_its_members_in_an_order_of_its_own() -> None:
    rows = torch.arange(10.0)[:, None].repeat(1, 3)
    seen: list[list[float]] = []

    class Watch(LocalRule):
        def extra_loss(self, run: LocalRun, batch: tuple, output: Any, forward: Any) -> None:
            seen.append(batch[0][:, 0].tolist())

    plan = TrainingPlan(epochs=1, batch_size=4, learning_rate=0.0)
    trainer = linear_trainer(plan, rows, torch.zeros(10, 1), members=np.array([2, 3, 5, 7, 8]))
    for number in (1, 2, 1):
        finished(trainer, Watch(None), start_at(0, 0, 0, number=number))
    assert sorted(seen[0] + seen[1]) == [2, 3, 5, 7, 8] and len(seen[0]) == 4
    assert seen[:2] == seen[4:] and seen[:2] != seen[2:4], (
        "the order depends on the task number, and on nothing that passed since"
    )
    with pytest.raises(ValueError, match="no samples"):
        linear_trainer(plan, members=np.array([]))


def test_adjust_can_pull_to_the_received_model_as_fedprox_does() -> None:
    """mu = 1: second step at (0.5, 2, 5): data gradient (-0.5, 4, 0) + pull (0.5, 2, 0) = (0, 6,
    0).
    """

    class Pull(LocalRule):
        def adjust(self, run: LocalRun, gradient: torch.Tensor) -> None:
            gradient.add_(run.weights[: run.parameters] - run.start[: run.parameters], alpha=1.0)

    run = finished(
        linear_trainer(TrainingPlan(epochs=2, batch_size=2, learning_rate=0.5)),
        Pull(None),
        start_at(0, 0, 5),
    )
    assert run.weights.tolist() == [0.5, -1.0, 5.0]


def test_an_extra_loss_is_added_but_not_reported() -> None:
    class Extra(LocalRule):
        def extra_loss(
            self, run: LocalRun, batch: tuple, output: torch.Tensor, forward: Callable
        ) -> torch.Tensor:
            assert (
                forward(run.start, batch[0]).tolist()
                == forward(run.start.numpy(), batch[0]).tolist()
            )
            return 2 * output.sum()  # gradient 2 * (1, 2, 0)

    trainer = linear_trainer(TrainingPlan(epochs=1, batch_size=2, learning_rate=0.5))
    run = finished(trainer, Extra(None), start_at(0, 0, 5))
    assert (
        run.weights.tolist() == [-0.5, 0.0, 5.0]
        and trainer.payload(run, Extra(None))[1]["loss"] == 2.5
    )


def test_a_rule_that_does_not_move_sends_one_gradient() -> None:
    class Gradient(LocalRule):
        moves = False

        def payload(self, run: LocalRun) -> tuple[dict, dict]:
            return {"gradient": run.gradient.numpy()}, {"kind": 7.0}

    trainer = linear_trainer(TrainingPlan(epochs=5, batch_size=2, learning_rate=0.5))
    run = finished(trainer, Gradient(None), start_at(0, 0, 5))
    finished(trainer, LocalRule(None), start_at(9, 9, 9))  # on the same workspace
    assert run.weights.tolist() == [0, 0, 5] and run.samples == 2
    vectors, numbers = trainer.payload(run, Gradient(None))
    assert vectors["gradient"].tolist() == [-1, -4, 0] and numbers == {
        "kind": 7.0,
        "samples": 2,
        "steps": 1,
        "loss": 2.5,
    }


class RowsOfBatch(LocalRule):
    """Records the rows of its one batch."""

    moves = False

    def extra_loss(self, run: LocalRun, batch: tuple, output: Any, forward: Any) -> None:
        self.rows = batch[0][:, 0].tolist()


@pytest.mark.parametrize("local_samples", [1, 3, 4, 5, 40])
def test_a_gradient_is_of_a_whole_batch_drawn_uniformly_from_however_few_samples(
    local_samples: int,
) -> None:
    """Batches of 4, however few samples a device has: so all devices need the same time.

    Over many tasks every sample is drawn equally often; none is drawn again before all were drawn.
    """
    rows = torch.arange(float(local_samples))[:, None].repeat(1, 3)
    plan = TrainingPlan(epochs=1, batch_size=4, learning_rate=0.0)
    trainer = linear_trainer(plan, rows, torch.zeros(local_samples, 1))
    counts = np.zeros(local_samples)
    for number in range(400):
        rule = RowsOfBatch(None)
        run = trainer.begin(start_at(0, 0, 0, number=number), rule, {})
        assert run.steps == 1 and run.samples_until(1) == 4
        trainer.advance(run, rule)
        drawn = np.bincount(np.array(rule.rows, dtype=int), minlength=local_samples)
        assert len(rule.rows) == 4 and drawn.max() - drawn.min() <= 1
        counts += drawn
    expected = 1600 / local_samples
    assert counts == pytest.approx(np.full(local_samples, expected), abs=5 * expected**0.5)


class MergeHalfway(LocalRule):
    def checkpoint(self, run: LocalRun) -> int:
        return run.steps // 2

    def merge(self, run: LocalRun, fresh: np.ndarray, version: int) -> None:
        run.weights.copy_(torch.from_numpy(fresh) * version)


def test_a_fresher_model_is_merged_in_the_middle() -> None:
    trainer = linear_trainer(TrainingPlan(epochs=2, batch_size=2, learning_rate=0.5))
    rule = MergeHalfway(None)
    run = trainer.begin(start_at(0, 0, 5), rule, {})
    assert run.checkpoint == 1
    assert trainer.advance(run, rule, until_step=run.checkpoint) and run.step == 1
    trainer.merge(
        run, rule, np.array([0, 1, 1], dtype=np.float32), version=2
    )  # now (0, 2, 2): gradient (-1, 4, 0)
    assert trainer.advance(run, rule)
    assert run.weights.tolist() == [0.5, 0.0, 2.0]


def restless() -> nn.Module:
    """A model with every kind of state that could leak between runs.

    Statistics, batch counts that matter, random draws.
    """
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(16, 12),
        nn.BatchNorm1d(12, momentum=None),
        nn.ReLU(),
        nn.Dropout(0.5),
        nn.Linear(12, 3),
    )


def restless_trainer(workspace: Workspace, edge: str) -> Trainer:
    rng = np.random.default_rng(0)
    inputs = torch.from_numpy(rng.standard_normal((26, 1, 4, 4), dtype=np.float32))
    targets = torch.from_numpy(rng.integers(0, 3, 26))
    plan = TrainingPlan(epochs=3, batch_size=8, learning_rate=0.1, momentum=0.9)
    return Trainer(workspace, inputs, targets, cross_entropy, plan, Streams(7), edge)


class Curious(LocalRule):
    def extra_loss(
        self, run: LocalRun, batch: tuple, output: torch.Tensor, forward: Callable
    ) -> torch.Tensor:
        return ((output - forward(run.start, batch[0])) ** 2).mean()


@pytest.mark.parametrize("rule", [LocalRule(None), Curious(None)])
def test_slices_in_turn_on_one_workspace_change_no_bit(rule: LocalRule) -> None:
    task = FakeTask({"weights": initial(restless, Streams(7))})
    alone = {
        edge: finished(restless_trainer(Workspace(restless), edge), rule, task)
        for edge in ("a", "b", "c")
    }
    shared = Workspace(restless)
    trainers = {edge: restless_trainer(shared, edge) for edge in alone}
    runs = {edge: trainer.begin(task, rule, {}) for edge, trainer in trainers.items()}
    torch.manual_seed(99)
    outside = torch.get_rng_state()
    unfinished = dict(runs)
    while unfinished:
        for edge, run in list(unfinished.items()):
            trainers["a"].forward(task.vectors["weights"], trainers["a"].inputs)
            if trainers[edge].advance(run, rule, deadline=lambda: True):
                del unfinished[edge]
    assert torch.equal(outside, torch.get_rng_state()), "the global generator is somebody else's"
    for edge, run in runs.items():
        assert run.step == run.steps == 12 and run.loss_sum == alone[edge].loss_sum
        assert run.weights.numpy().tobytes() == alone[edge].weights.numpy().tobytes()
    assert len({run.weights.numpy().tobytes() for run in runs.values()}) == 3


def test_adjust_and_the_step_leave_running_statistics_alone() -> None:
    class Everything(LocalRule):
        def adjust(self, run: LocalRun, gradient: torch.Tensor) -> None:
            assert len(gradient) == run.parameters == len(run.weights) - 24
            gradient.fill_(1.0)

    task = FakeTask({"weights": initial(restless, Streams(7))})
    results = [
        finished(restless_trainer(Workspace(restless), "a"), rule, task)
        for rule in (LocalRule(None), Everything(None))
    ]
    moved = results[1].start - results[1].weights
    torch.testing.assert_close(
        moved[: results[1].parameters], moved[:1].expand(results[1].parameters), rtol=0, atol=1e-4
    )
    assert all(
        (run.weights[run.parameters :] != run.start[run.parameters :]).all() for run in results
    ), "only the model itself moves them"
