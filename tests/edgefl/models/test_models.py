"""Layout, workspace, evaluation, small models, and the order of images in memory."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from edgefl.data.dataset import cross_entropy
from edgefl.errors import UserError
from edgefl.models import (
    lenet5,
    mlp,
)
from edgefl.models.evaluate import evaluate
from edgefl.models.workspace import Workspace, flat, initial, layout_of, wrap
from edgefl.streams import Streams
from edgefl.vectors import aligned, aligned_copy


class Mixed(nn.Module):
    """All kinds of tensors of a layout: trained, frozen and tied weights, saved, unsaved and
    integer buffers.
    """

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(2)
        self.frozen = nn.Linear(2, 2, bias=False).requires_grad_(False)
        self.first = nn.Linear(2, 2, bias=False)
        self.tied = self.first
        self.scale = nn.Parameter(torch.tensor(2.0))
        self.register_buffer("table", torch.arange(3.0), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.tied(self.first(self.frozen(self.norm(x)))) * self.scale


def test_the_layout_is_trained_then_frozen_then_buffers() -> None:
    layout = layout_of(Mixed())
    rows = [(e.name, e.shape, e.offset, e.kind, e.module) for e in layout.entries]
    assert rows == [
        ("scale", (), 0, "parameter", ""),
        ("norm.weight", (2,), 1, "parameter", "norm"),
        ("norm.bias", (2,), 3, "parameter", "norm"),
        ("first.weight", (2, 2), 5, "parameter", "first"),
        ("frozen.weight", (2, 2), 9, "buffer", "frozen"),
        ("norm.running_mean", (2,), 13, "buffer", "norm"),
        ("norm.running_var", (2,), 15, "buffer", "norm"),
    ]
    assert layout.parameters == 9 and layout.size == 17


def test_the_module_lives_in_the_vector_it_is_pointed_at() -> None:
    workspace = Workspace(Mixed)
    vector = wrap(aligned_copy(np.arange(17, dtype=np.float32)))
    workspace.point(vector, workspace.fresh_counters())
    assert (
        workspace.model.tied.weight.tolist() == [[5, 6], [7, 8]]
        and workspace.model.scale.item() == 0
    )
    vector[15] = 40
    assert workspace.model.norm.running_var.tolist() == [40, 16]
    workspace.model(torch.ones(4, 2)).sum().backward()
    first = workspace.model.first.weight.grad
    assert first.data_ptr() == workspace.gradient.data_ptr() + 5 * 4, (
        "backward must add into the flat gradient"
    )
    assert vector[13].item() == pytest.approx(0.9 * 13 + 0.1), (
        "running statistics move inside the vector"
    )
    assert flat(workspace.model).tobytes() == vector.numpy().tobytes()


def test_only_float32_models_are_taken() -> None:
    with pytest.raises(UserError, match="'weight' is float64: expected float32"):
        layout_of(nn.Linear(2, 2).double())


def test_the_initial_model_depends_on_the_seed_alone() -> None:
    def build() -> nn.Module:
        return mlp.build(mlp.Options(), (1, 2, 2), 3)

    torch.manual_seed(5)
    before = torch.get_rng_state()
    first = initial(build, Streams(1))
    Workspace(build)
    assert torch.equal(before, torch.get_rng_state()), "the global generator belongs to the user"
    torch.manual_seed(6)
    assert (
        first.tobytes()
        == initial(build, Streams(1)).tobytes()
        != initial(build, Streams(2)).tobytes()
    )
    assert first.ctypes.data % 64 == 0 and first.size == 4 * 64 + 64 + 64 * 3 + 3


@pytest.mark.parametrize("shape", [(1, 8, 8), (1, 28, 11)])
def test_lenet5_refuses_small_images(shape: tuple[int, int, int]) -> None:
    with pytest.raises(UserError, match=f"at least 12 x 12, these are {shape[1]} x {shape[2]}"):
        lenet5.build(lenet5.Options(), shape, 10)


def test_evaluation_by_hand_and_in_uneven_batches() -> None:
    workspace = Workspace(lambda: nn.Linear(2, 2, bias=False))
    weights = aligned_copy(np.array([1, 0, 0, 1], dtype=np.float32))
    inputs, targets = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]]), torch.tensor([0, 1, 1])
    right, wrong = np.log(1 + np.exp(-1)), np.log(1 + np.exp(1))
    for batch in (1, 2, 1000):
        loss, accuracy = evaluate(workspace, weights, inputs, targets, cross_entropy, batch)
        assert loss == pytest.approx(
            (2 * right + wrong) / 3, abs=1e-6
        ) and accuracy == pytest.approx(2 / 3)


def test_evaluation_leaves_statistics_weights_and_workspace_alone() -> None:
    workspace = Workspace(Mixed)
    mine = wrap(initial(Mixed, Streams(1)))
    workspace.point(mine, workspace.fresh_counters())
    weights = initial(Mixed, Streams(2))
    before = weights.tobytes(), mine.numpy().tobytes()
    evaluate(
        workspace, weights, torch.randn(8, 2), torch.zeros(8, dtype=torch.int64), cross_entropy
    )
    assert (weights.tobytes(), mine.numpy().tobytes()) == before
    assert workspace.model.training and workspace.model.scale.data_ptr() == mine.data_ptr()
    assert workspace.model.norm.num_batches_tracked.item() == 0


def test_a_vector_of_the_wrong_length_is_refused() -> None:
    with pytest.raises(ValueError, match="16 elements for a model of 17"):
        evaluate(Workspace(Mixed), aligned(16), torch.zeros(1, 2), torch.zeros(1), cross_entropy)
