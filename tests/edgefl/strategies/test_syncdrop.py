"""SyncDrop: sub-models cut and merged, which device lacks which units, and the server's mixing
(Dun et al. 2023).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from builders import S, vector
from torch import nn
from trainers import FakeTask, finished

from edgefl.data.dataset import cross_entropy
from edgefl.edges.training import Trainer, TrainingPlan
from edgefl.errors import UserError
from edgefl.models.workspace import Workspace, flat, layout_of
from edgefl.strategies.base.events_and_decisions import (
    Assign,
    EdgeJoined,
    Publish,
    RunStarted,
    UpdateArrived,
)
from edgefl.strategies.syncdrop import (
    SubModel,
    SyncDrop,
    SyncDropOptions,
    hidden_layers,
    submodel_mask,
    window,
)
from edgefl.streams import Streams


def mlp(*widths: int) -> nn.Module:
    return nn.Sequential(
        *[part for pair in itertools.pairwise(widths) for part in (nn.Linear(*pair), nn.ReLU())][
            :-1
        ]
    )


def pictures() -> nn.Module:
    """Convolutions, one normalised, then two linear layers behind a flattened 2 x 2."""
    return nn.Sequential(
        nn.Conv2d(1, 4, 3),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.Conv2d(4, 3, 1),
        nn.Tanh(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(12, 5),
        nn.ReLU(),
        nn.Linear(5, 2),
    )


class Block(nn.Module):
    """A residual block: its middle can be cut; its output cannot, because of the shortcut."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(4, 4, 1)
        self.norm1 = nn.GroupNorm(2, 4)
        self.conv2 = nn.Conv2d(4, 4, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x + self.conv2(torch.relu(self.norm1(self.conv1(x)))))


def residual() -> nn.Module:
    return nn.Sequential(nn.Conv2d(1, 4, 3), Block(), Block(), nn.Flatten(), nn.Linear(64, 2))


class Branches(nn.Module):
    """Two layers side by side, as in TextCNN."""

    def __init__(self) -> None:
        super().__init__()
        self.parts = nn.ModuleList([nn.Linear(3, 4), nn.Linear(3, 2)])
        self.output = nn.Linear(6, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.output(torch.cat([torch.relu(part(x)) for part in self.parts], dim=1))


# ------------------------------------------------------------------ sub-models
@pytest.mark.parametrize(
    ("build", "units"),
    [
        (lambda: mlp(2, 8, 4, 2), {"0.weight": 8, "2.weight": 4}),
        (lambda: mlp(2, 2), {}),
        (pictures, {"0.weight": 4, "3.weight": 3, "7.weight": 5}),
        (residual, {"1.conv1.weight": 4, "2.conv1.weight": 4}),
        (Branches, {"parts.0.weight": 4, "parts.1.weight": 2}),
    ],
)
def test_hidden_units_are_found_and_outputs_and_shortcuts_left_alone(
    build: Callable[[], nn.Module], units: dict[str, int]
) -> None:
    assert {
        layer.producer.name: layer.units for layer in hidden_layers(layout_of(build()))
    } == units


def test_a_unit_goes_with_all_that_touches_it() -> None:
    """Unit 1 of a 2-3-1 network: row 1 of the first layer, its bias, column 1 of the second."""
    layout = layout_of(mlp(2, 3, 1))
    stays = submodel_mask(layout, hidden_layers(layout), [np.array([1])])
    assert stays.astype(int).tolist() == [1, 1, 0, 0, 1, 1, 1, 0, 1, 1, 0, 1, 1]


def test_the_trainable_elements_of_a_sub_model_come_before_its_buffers() -> None:
    """Of 4, 3 and 5 units half are dropped; mean and variance of the two that stay are left."""
    layout, options = layout_of(pictures()), SyncDropOptions(drop_rate=0.5)
    dropped = [np.array(units) for units in ([1, 3], [2], [0, 4])]
    stays = submodel_mask(layout, hidden_layers(layout), dropped)
    trainable = SyncDrop.submodel_parameters(options, layout)
    assert trainable == np.count_nonzero(stays[: layout.parameters])
    assert np.count_nonzero(stays) == trainable + 2 * 2


# ------------------------------------------------------------------ the edge side
def cut(model: nn.Module, units: list[int], drop_rate: float = 0.5) -> tuple[FakeTask, np.ndarray]:
    """A task with the sub-model of ``model`` without these units, layer by layer; and its mask."""
    layout = layout_of(model)
    layers, given = hidden_layers(layout), np.array(units)
    ends = np.cumsum([int(drop_rate * layer.units) for layer in layers])
    stays = submodel_mask(layout, layers, np.split(given, ends[:-1]))
    return FakeTask({"weights": flat(model)[stays], "dropped": given.astype(np.float32)}), stays


def trained(
    build: Callable[[], nn.Module], task: FakeTask, inputs: torch.Tensor, drop_rate: float = 0.5
) -> np.ndarray:
    """The update after three steps with momentum and weight decay."""
    plan = TrainingPlan(3, len(inputs), 0.1, weight_decay=0.01, momentum=0.9)
    trainer = Trainer(
        Workspace(build),
        inputs,
        torch.arange(len(inputs)) % 2,
        cross_entropy,
        plan,
        Streams(1),
        "e1",
    )
    rule = SubModel(SyncDropOptions(drop_rate=drop_rate))
    run = finished(trainer, rule, task)
    vectors, _ = trainer.payload(run, rule)
    assert run.failure is None, run.failure
    assert set(vectors) == {"weights"}
    return vectors["weights"]


@pytest.mark.slow
def test_training_inside_the_full_model_is_training_the_sub_model() -> None:
    """A 3-4-2 network without units 0 and 2 against a 3-2-2 network of its own."""
    torch.manual_seed(1)
    model, inputs = mlp(3, 4, 2), torch.randn(6, 3)
    task, _ = cut(model, [0, 2])
    small = mlp(3, 2, 2)
    with torch.no_grad():
        small[0].weight[:], small[0].bias[:] = model[0].weight[[1, 3]], model[0].bias[[1, 3]]
        small[2].weight[:], small[2].bias[:] = model[2].weight[:, [1, 3]], model[2].bias
    assert flat(small).tolist() == task.vectors["weights"].tolist()
    optimiser = torch.optim.SGD(small.parameters(), lr=0.1, weight_decay=0.01, momentum=0.9)
    order = Streams(1).rng("batches", "e1", 1)
    for _ in range(3):
        rows = torch.from_numpy(order.permutation(6))
        optimiser.zero_grad()
        cross_entropy(small(inputs[rows]), rows % 2).backward()
        optimiser.step()
    assert trained(lambda: mlp(3, 4, 2), task, inputs) == pytest.approx(
        flat(small), rel=1e-5, abs=1e-7
    )


@pytest.mark.parametrize(
    ("build", "units", "shape"),
    [
        (pictures, [0, 3, 1, 2, 4], (6, 1, 6, 6)),
        (residual, [0, 1, 2, 3], (6, 1, 6, 6)),
        (Branches, [1, 3, 0], (6, 3)),
    ],
)
def test_what_was_dropped_stays_out_of_the_way(
    build: Callable[[], nn.Module], units: list[int], shape: tuple[int, ...]
) -> None:
    torch.manual_seed(1)
    task, stays = cut(build(), units)
    back = trained(build, task, torch.randn(shape))
    assert back.size == stays.sum() < stays.size and not np.array_equal(
        back, task.vectors["weights"]
    )


def test_a_model_that_cannot_be_cut_is_refused() -> None:
    """sigmoid(0) = 0.5: the next layer would learn from dropped units."""
    build: Callable[[], nn.Module] = lambda: nn.Sequential(
        nn.Linear(3, 4), nn.Sigmoid(), nn.Linear(4, 2)
    )
    with pytest.raises(AssertionError, match="syncdrop cannot cut this model"):
        trained(build, cut(build(), [0, 2])[0], torch.randn(6, 3))


# ------------------------------------------------------------------ the server side
@pytest.mark.parametrize(("rank", "units"), [(0, [1, 3]), (1, [2, 3]), (2, [0, 2]), (3, [0, 2])])
def test_the_fastest_goes_without_the_most_changed_units(rank: int, units: list[int]) -> None:
    """Scores 1, 4, 2, 3 in falling order: units 1, 3, 2, 0; rank r drops 2 from floor(r 4 / 4)
    on, shifted back past the end.
    """
    assert window(np.array([1.0, 4.0, 2.0, 3.0]), 2, rank, 4).tolist() == units


def strategy(**options: Any) -> SyncDrop:
    """Of a 1-4-1 network: weights w1 (4), b1 (4), w2 (4), b2 (1), all zero at the start."""
    model = mlp(1, 4, 1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    return SyncDrop(
        flat(model),
        layout_of(model),
        SyncDropOptions(**{"drop_rate": 0.5, "concurrency": 2} | options),
        Streams(1),
    )


def test_only_the_elements_of_the_sub_model_are_mixed() -> None:
    """w_j <- (1 - a) w_j + a w_local,j with a = 1/4; no staleness weight."""
    made = strategy(alpha=0.25, concurrency=1)
    made.handle(EdgeJoined("a", 1), 0)
    (assign,) = [d for d in made.handle(RunStarted(), 0) if isinstance(d, Assign)]
    dropped = assign.vectors["dropped"].astype(int)
    assert assign.vectors["weights"].size == 2 + 2 + 2 + 1 == made.update_size("a", "weights")
    update = UpdateArrived(
        "a",
        0,
        0,
        assign.vectors["weights"],
        {"weights": np.full(7, 8, np.float32)},
        {"samples": 1.0},
    )
    (weights,) = [d.weights for d in made.handle(update, S) if isinstance(d, Publish)]
    expected = np.full(4, 2.0)
    expected[dropped] = 0
    assert weights.tolist() == [*expected, *expected, *expected, 2.0]


def test_ranks_follow_the_mean_time_and_scores_the_change_in_and_out() -> None:
    """score_f = sum |w - w_0| over unit f's weights in and out: here 3, 0, 2.5, 1, and biases do
    not count. A device that has not delivered lacks random units.
    """
    made = strategy()
    made.weights = vector(3, 0, 0, -1, 0, 9, 0, 9, 0, 0, -2.5, 0, 5)
    made.known = dict.fromkeys("abc", 1)
    made.delays = {"a": (1, 9 * S), "b": (2, 8 * S)}
    dropped = {edge: made.assign([edge])[0].vectors["dropped"].tolist() for edge in "abc"}
    assert dropped["b"] == [0, 2] and dropped["a"] == [1, 3], "b needs 4 s, a 9 s"
    assert len(set(dropped["c"])) == 2


def test_a_model_without_hidden_units_is_refused() -> None:
    for model, rate in ((mlp(2, 2), 0.25), (mlp(2, 3, 2), 0.25)):
        with pytest.raises(UserError, match="no hidden layer that could lose a share of 0.25"):
            SyncDrop(flat(model), layout_of(model), SyncDropOptions(drop_rate=rate), Streams(1))
