"""Which models train on images in channels-last order, and that it changes no result."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from edgefl.models import (
    alexnet,
    celeba_cnn,
    cnn,
    emnist_cnn,
    lenet5,
    mlp,
    resnet18,
    resnet20,
    tdma_cnn,
    vgg11,
)
from edgefl.models.evaluate import evaluate
from edgefl.models.workspace import Workspace, flat

GREY, COLOURED = (1, 28, 28), (3, 32, 32)
PAPERS = {"activation": "tanh", "pool": "average"}


class OwnCode(nn.Module):
    """A user's model: ``view`` needs torch's own order of the pooled images."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.pool, self.output = (
            nn.Conv2d(3, 4, 3),
            nn.MaxPool2d(2),
            nn.Linear(4 * 15 * 15, 10),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        pooled: torch.Tensor = self.pool(self.conv(x))
        output: torch.Tensor = self.output(pooled.view(len(x), -1))
        return output


def space_of(model: ModuleType, options: dict[str, Any], shape: tuple[int, ...]) -> Workspace:
    def build() -> nn.Module:
        made: nn.Module = model.build(model.Options(**options), shape, 10)
        return made

    return Workspace(build)


def batch_of(shape: tuple[int, ...], size: int = 6) -> tuple[torch.Tensor, torch.Tensor]:
    inputs = torch.randn(size, *shape, generator=torch.Generator().manual_seed(1))
    return inputs, torch.arange(size) % 10


def slope(space: Workspace, inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """The gradient of a batch as the workspace has it."""
    space.gradient.zero_()
    output, features = space.with_features(inputs)
    torch.autograd.backward(cross_entropy(output, targets) + features.square().mean())
    return space.gradient.clone()


@pytest.mark.parametrize(
    ("model", "options", "shape"),
    [
        (lenet5, {}, GREY),
        (lenet5, PAPERS, COLOURED),
        (tdma_cnn, {}, GREY),
        (emnist_cnn, {}, GREY),
        (celeba_cnn, {}, COLOURED),
        (resnet20, {"norm": "batch"}, COLOURED),
        (resnet20, {"norm": "group"}, GREY),
    ],
)
def test_channels_last_changes_the_last_bits_only(
    model: ModuleType, options: dict[str, Any], shape: tuple[int, ...]
) -> None:
    """The largest difference is below a ten-thousandth of the largest element: rounding."""
    space, (inputs, targets) = space_of(model, options, shape), batch_of(shape)
    arranged = space.arranged(inputs)
    assert torch.equal(arranged, inputs) and arranged.stride(1) == 1
    entered: list[torch.Tensor] = []
    second = [module for module in space.model.modules() if isinstance(module, nn.Conv2d)][-1:]
    hook = second[0].register_forward_hook(lambda _, __, output: entered.append(output))
    found = slope(space, arranged, targets)
    hook.remove()
    assert entered[0].is_contiguous(memory_format=torch.channels_last), "to the last convolution"
    wanted = slope(space, inputs, targets)
    assert wanted.abs().max() > 0
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-4 * float(wanted.abs().max()))


@pytest.mark.parametrize(
    ("model", "options", "shape"),
    [
        (lenet5, {"pool": "stride"}, GREY),
        (cnn, {"norm": "batch"}, GREY),
        (mlp, {}, GREY),
        (alexnet, {}, COLOURED),
        (vgg11, {}, COLOURED),
        (resnet18, {}, COLOURED),
    ],
)
def test_models_that_it_does_not_help_keep_torchs_order(
    model: ModuleType, options: dict[str, Any], shape: tuple[int, ...]
) -> None:
    """No pooling, or too many weights, which would be copied for each batch."""
    inputs, _ = batch_of(shape)
    assert space_of(model, options, shape).arranged(inputs) is inputs


def test_a_users_own_code_gets_torchs_order() -> None:
    space, (inputs, targets) = Workspace(OwnCode), batch_of(COLOURED)
    assert space.arranged(inputs) is inputs
    loss, _ = evaluate(space, flat(space.model), inputs, targets, cross_entropy, batch=4)
    assert loss == pytest.approx(cross_entropy(space.model(inputs), targets).item(), rel=1e-5)


def test_an_error_of_the_model_in_evaluation_is_its_own() -> None:
    space, (inputs, targets) = Workspace(OwnCode), batch_of((3, 20, 20))
    with pytest.raises(RuntimeError, match="mat1 and mat2 shapes cannot be multiplied") as told:
        evaluate(space, flat(space.model), inputs, targets, cross_entropy)
    assert told.value.__context__ is None
