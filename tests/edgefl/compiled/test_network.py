"""Which modules have a compiled step, and what the others are told."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from edgefl.compiled.network import (
    Convolution,
    Linear,
    Network,
    Pooling,
    Unsuited,
    first_weights,
    network_of,
)
from edgefl.models import celeba_cnn, cnn, emnist_cnn, lenet5, mlp, tdma_cnn
from edgefl.models.workspace import initial, layout_of
from edgefl.streams import Streams


def small(*layers: nn.Module) -> nn.Sequential:
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(4, 3))


def test_lenet_is_read_layer_by_layer() -> None:
    found = network_of(lenet5.build(lenet5.Options(), (1, 28, 28), 10), (1, 28, 28))
    assert found == Network(
        (1, 28, 28),
        (
            Convolution(1, 6, (5, 5), padding=(2, 2, 2, 2), relu=True),
            Pooling((2, 2)),
            Convolution(6, 16, (5, 5), relu=True),
            Pooling((2, 2)),
            Linear(400, 120, relu=True),
            Linear(120, 84, relu=True),
            Linear(84, 10),
        ),
    )
    assert (found.parameters, found.classes) == (61_706, 10)


PAPERS = [
    (mlp, (1, 8, 8)),
    (lenet5, (3, 32, 32)),
    (cnn, (3, 32, 32)),
    (tdma_cnn, (1, 28, 28)),
    (emnist_cnn, (1, 28, 28)),
    (celeba_cnn, (3, 84, 84)),
]


@pytest.mark.parametrize(("model", "shape"), PAPERS)
def test_the_papers_small_networks_have_a_compiled_step(model: Any, shape: Any) -> None:
    built = model.build(model.Options(), shape, 7)
    found = network_of(built, shape)
    assert found.parameters == sum(tensor.numel() for tensor in built.parameters())


class Own(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x


class OwnReLU(nn.ReLU):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.abs()


def hooked() -> nn.Sequential:
    model = small(nn.Conv2d(1, 1, 3), nn.ReLU())
    model[0].register_forward_hook(lambda module, inputs, output: output * 2)
    return model


def frozen() -> nn.Sequential:
    model = small(nn.Conv2d(1, 1, 3))
    model[0].weight.requires_grad = False
    return model


def tied() -> nn.Sequential:
    layer = nn.Linear(4, 4)
    return nn.Sequential(nn.Flatten(), layer, nn.ReLU(), layer)


def twice(part: nn.Module) -> nn.Sequential:
    return nn.Sequential(nn.Flatten(), part, nn.ReLU(), part, nn.Linear(16, 3))


def watched(hook: str) -> nn.Sequential:
    model = small(nn.Conv2d(1, 1, 3))
    getattr(model[0].weight, hook)(lambda tensor: None)
    return model


@pytest.mark.parametrize(
    ("build", "why"),
    [
        (lambda: Own(), "the model is a Own, not a Sequential"),
        (lambda: small(nn.Conv2d(1, 1, 3), Own()), "layer 1 is a Own of its own kind"),
        (lambda: small(nn.Conv2d(1, 1, 3), OwnReLU()), "layer 1 is a OwnReLU of its own kind"),
        (lambda: small(nn.Conv2d(1, 1, 3), nn.Tanh()), "layer 1 is a Tanh"),
        (lambda: small(nn.Conv2d(1, 1, 3), nn.Dropout()), "layer 1 is a Dropout"),
        (lambda: small(nn.Conv2d(1, 1, 3), nn.BatchNorm2d(1)), "layer 1 is a BatchNorm2d"),
        (lambda: small(nn.Conv2d(1, 1, 3, dilation=2, padding=1)), "dilation"),
        (lambda: small(nn.Conv2d(1, 1, 3, padding="same")), "padding mode"),
        (lambda: small(nn.MaxPool2d(2, ceil_mode=True)), "pools in another way"),
        (lambda: small(nn.MaxPool2d(3, 2)), "pools in another way"),
        (lambda: small(nn.ReLU(), nn.Conv2d(1, 1, 3)), "a ReLU before the first layer"),
        (lambda: nn.Sequential(nn.Linear(4, 4)), "linear before a Flatten"),
        (lambda: nn.Sequential(nn.Flatten(), nn.Linear(16, 3), nn.ReLU()), "not linear"),
        (lambda: nn.Sequential(nn.Flatten(), nn.Linear(15, 3)), "takes 15 inputs and gets 16"),
        (lambda: nn.Sequential(nn.Flatten(2), nn.Linear(16, 3)), "flattens other dimensions"),
        (lambda: small(nn.MaxPool2d(5)), "leaves nothing of the image"),
        (lambda: nn.Sequential(), "its last layer is not linear"),
        (hooked, "layer 0 is a Conv2d of its own kind"),
        (frozen, "frozen parameters"),
        (lambda: small(nn.Conv2d(1, 1, 3)).double(), "another type than float32"),
        (tied, "takes 4 inputs and gets 16"),
        (lambda: twice(nn.Linear(16, 16)), "shares parameters between layers"),
        (lambda: twice(nn.Sequential(nn.Linear(16, 16))), "shares parameters between layers"),
        (lambda: watched("register_hook"), "hooks on its parameters"),
        (lambda: watched("register_post_accumulate_grad_hook"), "hooks on its parameters"),
    ],
)
def test_what_has_no_compiled_step_says_why(build: Callable[[], nn.Module], why: str) -> None:
    with pytest.raises(Unsuited, match=why):
        network_of(build(), (1, 4, 4))


def test_a_module_that_stands_twice_is_computed_twice() -> None:
    def network(relu: Callable[[], nn.Module], block: Callable[[], nn.Module]) -> Network:
        layers = (nn.Conv2d(1, 1, 3, padding=1), relu(), block())
        tail = (nn.Flatten(), nn.Linear(4, 4), relu(), nn.Linear(4, 3))
        return network_of(nn.Sequential(*layers, block(), *tail), (1, 8, 8))

    relu, block = nn.ReLU(), nn.Sequential(nn.MaxPool2d(2), nn.ReLU())
    reused = network(lambda: relu, lambda: block)
    assert reused == network(nn.ReLU, lambda: nn.Sequential(nn.MaxPool2d(2), nn.ReLU()))
    assert [layer.relu for layer in reused.layers] == [True, True, True, True, False]


@pytest.mark.parametrize(("model", "shape"), PAPERS)
@pytest.mark.parametrize("seed", [1, 77])
def test_the_first_weights_and_their_layout_are_torchs(model: Any, shape: Any, seed: int) -> None:
    network = model.network(model.Options(), shape, 7)
    drawn = first_weights(network, Streams(seed))
    by_torch = initial(lambda: model.build(model.Options(), shape, 7), Streams(seed))
    # a torch without fused multiplication rounds twice
    assert np.abs(drawn - by_torch).max() <= 2e-8
    assert network.layout == layout_of(model.build(model.Options(), shape, 7))


@pytest.mark.parametrize(("model", "shape"), PAPERS)
def test_a_models_network_is_that_of_its_module(model: Any, shape: Any) -> None:
    built = model.build(model.Options(), shape, 7)
    assert model.network(model.Options(), shape, 7) == network_of(built, shape)
