"""After a task the module holds what it held before, whatever its ``forward`` has changed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils.parametrizations import spectral_norm
from trainers import FakeTask, finished, half_square

from edgefl.edges.training import Trainer, TrainingPlan
from edgefl.errors import UserError
from edgefl.models.workspace import Workspace, flat
from edgefl.strategies.base.strategy import LocalRule
from edgefl.streams import Streams

ROWS = torch.tensor([[1.0, 0.0], [0.0, 2.0], [3.0, 1.0], [2.0, 2.0]])
ANSWERS = torch.tensor([[1.0], [2.0], [0.5], [1.0]])
PLAN = TrainingPlan(epochs=2, batch_size=2, learning_rate=0.125)


class Standard(nn.Module):
    """A running mean, changed in place or replaced."""

    def __init__(self, in_place: bool) -> None:
        super().__init__()
        self.in_place, self.out = in_place, nn.Linear(2, 1)
        self.register_buffer("mean", torch.zeros(2))
        self.register_buffer("seen", torch.zeros((), dtype=torch.long))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.training:
            new = 0.5 * self.mean + 0.5 * x.detach().mean(0)
            if self.in_place:
                self.mean.copy_(new)
                self.seen += len(x)
            else:
                self.mean, self.seen = new, self.seen + len(x)
        return self.out(x - self.mean)


class Remembers(nn.Module):
    """Keeps what ``change`` does to the attributes ``own``."""

    def __init__(self, own: dict[str, Any], change: Any) -> None:
        super().__init__()
        self.out, self.change = nn.Linear(2, 1), change
        for name, value in own.items():
            setattr(self, name, value)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weight = self.change(self, x)
        return self.out(x) * (1.0 if weight is None else weight)


class Holder:
    def __init__(self) -> None:
        self.count = 0


def trainer_of(space: Workspace) -> Trainer:
    return Trainer(space, ROWS, ANSWERS, half_square, PLAN, Streams(1), "e1")


def task_of(space: Workspace) -> FakeTask:
    return FakeTask({"weights": flat(space.model)})


def trained(space: Workspace, task: FakeTask) -> np.ndarray:
    return finished(trainer_of(space), LocalRule(None), task).weights.numpy().copy()


def test_a_replaced_buffer_travels_as_one_that_is_changed_in_place() -> None:
    found = []
    for in_place in (True, False):
        space = Workspace(lambda in_place=in_place: Standard(in_place))
        task, own = task_of(space), dict(space.model.named_buffers())
        first = trained(space, task)
        assert trained(space, task).tobytes() == first.tobytes(), "the second task begins anew"
        assert all(own[name] is buffer for name, buffer in space.model.named_buffers())
        assert np.abs(first[-2:]).min() > 0
        found.append(first)
    assert found[0].tobytes() == found[1].tobytes()


def test_runs_that_advance_in_turn_do_not_see_each_other() -> None:
    """Each run's replaced buffer, counter and attribute come back when it goes on."""

    def change(model: Any, x: torch.Tensor) -> float:
        model.calls += 1
        model.log.append(float(x.sum()))
        return model.calls + len(model.log)

    for build in (lambda: Standard(False), lambda: Remembers({"calls": 0, "log": []}, change)):
        space = Workspace(build)
        task, rule, trainer = task_of(space), LocalRule(None), trainer_of(space)
        alone = finished(trainer, rule, task).weights
        runs = [trainer.begin(task, rule, {}) for _ in range(2)]
        for until in range(1, 5):
            for run in runs:
                trainer.advance(run, rule, until)
                assert run.failure is None
        assert all(torch.equal(run.weights, alone) for run in runs)


def test_a_copy_of_a_run_does_not_change_when_the_run_goes_on() -> None:
    def change(model: Any, x: torch.Tensor) -> float:
        model.log.append(1)
        return float(len(model.log))

    space = Workspace(lambda: Remembers({"log": []}, change))
    task, rule, trainer = task_of(space), LocalRule(None), trainer_of(space)
    run = trainer.begin(task, rule, {})
    trainer.advance(run, rule, 2)
    kept = trainer.kept(run)
    trainer.advance(run, rule)
    trainer.advance(kept, rule)
    assert torch.equal(kept.weights, run.weights)


def counts(model: Any, x: torch.Tensor) -> float:
    model.calls += 1
    return float(model.calls)


def fills_a_cache(model: Any, x: torch.Tensor) -> float:
    model.cache.setdefault(len(x), torch.zeros(1)).add_(1.0)
    return float(model.cache[len(x)])


def replaces_a_tensor(model: Any, x: torch.Tensor) -> float:
    model.last = 0.5 * model.last + x.detach().mean()
    return float(model.last)


def changes_a_tensor(model: Any, x: torch.Tensor) -> float:
    model.last += 1
    return float(model.last)


def makes_an_attribute(model: Any, x: torch.Tensor) -> float:
    model.made = getattr(model, "made", 0) + 1
    return float(model.made)


def draws(model: Any, x: torch.Tensor) -> float:
    return float(model.rng.random())


def changes_an_object(model: Any, x: torch.Tensor) -> float:
    model.holder.count += 1
    return float(model.holder.count)


def changes_a_buffer_that_is_not_saved(model: Any, x: torch.Tensor) -> float:
    model.mask += 1
    return float(model.mask)


def with_a_mask() -> nn.Module:
    model = Remembers({}, changes_a_buffer_that_is_not_saved)
    model.register_buffer("mask", torch.zeros(()), persistent=False)
    return model


KEPT = [
    lambda: Remembers({"calls": 0}, counts),
    lambda: Remembers({"cache": {}}, fills_a_cache),
    lambda: Remembers({"last": torch.zeros(())}, replaces_a_tensor),
    lambda: Remembers({"last": torch.zeros(())}, changes_a_tensor),
    lambda: Remembers({}, makes_an_attribute),
    lambda: Remembers({"holder": Holder()}, changes_an_object),
    with_a_mask,
    lambda: nn.Sequential(spectral_norm(nn.Linear(2, 2)), nn.Linear(2, 1)),
    lambda: nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3, momentum=None), nn.Linear(3, 1)),
]


@pytest.mark.parametrize("build", KEPT)
def test_other_state_does_not_pass_from_task_to_task(build: Any) -> None:
    space = Workspace(build)
    task = task_of(space)
    first = trained(space, task)
    with space.inference(task.vectors["weights"]) as model:
        model(ROWS)  # an evaluation between two tasks
    assert trained(space, task).tobytes() == first.tobytes()


def test_an_evaluation_leaves_the_weights_and_a_run_alone() -> None:
    """This model changes its buffers in evaluation mode, too."""

    class Always(Standard):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.mean += x.mean(0)
            self.seen += 1
            return self.out(x - self.mean)

    space = Workspace(lambda: Always(True))
    task, rule, trainer = task_of(space), LocalRule(None), trainer_of(space)
    whole = finished(trainer, rule, task).weights
    run, weights = trainer.begin(task, rule, {}), task.vectors["weights"].copy()
    trainer.advance(run, rule, 2)
    with space.inference(weights) as model:
        first = model(ROWS)
    with space.inference(weights) as model:
        assert torch.equal(model(ROWS), first)
    assert weights.tobytes() == task.vectors["weights"].tobytes()
    trainer.advance(run, rule)
    assert torch.equal(run.weights, whole)


REFUSED = [
    (lambda: Remembers({"rng": np.random.default_rng(1)}, draws), "'rng'"),
    (
        lambda: Remembers(
            {"large": torch.zeros(1 << 20)}, lambda model, x: float(model.large.add_(1)[0])
        ),
        "'large'",
    ),
    (
        lambda: Remembers({}, lambda model, x: setattr(model, "out", nn.Linear(2, 1))),
        "'out'",
    ),
]


@pytest.mark.parametrize(("build", "name"), REFUSED)
def test_state_that_cannot_be_taken_back_is_a_failure_that_names_it(build: Any, name: str) -> None:
    space = Workspace(build)
    trainer = trainer_of(space)
    run = trainer.begin(task_of(space), LocalRule(None), {})
    trainer.advance(run, LocalRule(None))
    assert run.failure is not None and name in run.failure.reason
    assert "register_buffer" in run.failure.reason


def test_a_replaced_buffer_of_another_shape_is_a_failure() -> None:
    class Grows(Standard):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.mean = torch.zeros(3)
            return self.out(x)

    space = Workspace(lambda: Grows(False))
    run = trainer_of(space).begin(task_of(space), LocalRule(None), {})
    trainer_of(space).advance(run, LocalRule(None))
    assert run.failure is not None
    assert "buffer 'mean'" in run.failure.reason and "(2,), found (3,)" in run.failure.reason


def test_a_lazy_module_is_refused() -> None:
    with pytest.raises(UserError, match="'0.weight' has no shape yet.*LazyLinear"):
        Workspace(lambda: nn.Sequential(nn.LazyLinear(2)))
