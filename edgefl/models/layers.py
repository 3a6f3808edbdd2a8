"""Layers that several models share.

This file imports torch, so models import it inside ``build``.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Literal

import torch
from torch import nn
from torch.nn import functional

from edgefl.compiled.network import Convolution, Network, Pooling

Norm = Literal["none", "batch", "group"]
CHANNELS_PER_GROUP = 16  # the best value of Wu and He 2018 (arXiv 1803.08494, table 3)
FULL_SIZE = 32


def norm(kind: Norm, channels: int) -> nn.Module:
    """Return the normalisation after a convolution.

    "group" has no running statistics, which is better with label skew; "none" does nothing.
    """
    if kind == "batch":
        return nn.BatchNorm2d(channels)
    if kind == "group":
        return nn.GroupNorm(max(1, channels // CHANNELS_PER_GROUP), channels)
    return nn.Identity()


def conv3x3(inputs: int, outputs: int, kind: Norm, stride: int = 1) -> nn.Conv2d:
    """Return a padded 3 x 3 convolution, without bias if a normalisation with a bias follows."""
    return nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=kind == "none")


def bordered(height: int, width: int) -> tuple[nn.Module, int, int]:
    """Return a layer that pads smaller images with zeros to 32 x 32, and the height and width
    after it.

    A 28 x 28 image gets 2 pixels on each side.
    """
    rows, columns = max(FULL_SIZE - height, 0), max(FULL_SIZE - width, 0)
    if not rows and not columns:
        return nn.Identity(), height, width
    return (
        nn.ZeroPad2d((columns // 2, columns - columns // 2, rows // 2, rows - rows // 2)),
        height + rows,
        width + columns,
    )


def sequential(
    network: Network,
    activation: Callable[[], nn.Module] = nn.ReLU,
    pooling: Callable[[tuple[int, int]], nn.Module] = nn.MaxPool2d,
    kind: Norm = "none",
) -> nn.Sequential:
    """The module of a network; ``kind``: the normalisation after each convolution."""
    model, flat = nn.Sequential(), False
    for number, layer in enumerate(network.layers, start=1):
        if isinstance(layer, Convolution):
            top, left, bottom, right = layer.padding
            assert (top, left) == (bottom, right), "nn.Conv2d pads evenly"
            made: nn.Module = nn.Conv2d(
                layer.inputs,
                layer.outputs,
                layer.kernel,
                layer.stride,
                (top, left),
                bias=layer.bias,
            )
        elif isinstance(layer, Pooling):
            made = pooling(layer.size)
        else:
            if not flat:
                model.add_module("flatten", nn.Flatten())
            flat, made = True, nn.Linear(layer.inputs, layer.outputs, layer.bias)
        model.add_module(getattr(layer, "name", "") or f"pool{number}", made)
        if isinstance(layer, Convolution) and kind != "none":
            model.add_module(f"norm{number}", norm(kind, layer.outputs))
        if layer.relu:
            model.add_module(f"act{number}", activation())
    return model


class Residual(nn.Module):
    """Two 3 x 3 convolutions and a shortcut around them.

    If the size stays the same, the shortcut is the input itself. Otherwise it has no weights: every
    ``stride``-th pixel, and zeros in the new channels (He et al. 2016, option A). Or it is
    ``projected``: a 1 x 1 convolution with normalisation (option B).
    """

    def __init__(
        self, inputs: int, outputs: int, stride: int, kind: Norm, projected: bool = False
    ) -> None:
        super().__init__()
        self.stride, self.added = stride, outputs - inputs
        self.conv1, self.norm1 = conv3x3(inputs, outputs, kind, stride), norm(kind, outputs)
        self.conv2, self.norm2 = conv3x3(outputs, outputs, kind), norm(kind, outputs)
        grows = projected and (stride != 1 or inputs != outputs)
        self.projection = _projection(inputs, outputs, stride, kind) if grows else None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        shortcut = self._padded(x) if self.projection is None else self.projection(x)
        out = functional.relu(self.norm1(self.conv1(x)))
        return functional.relu(self.norm2(self.conv2(out)) + shortcut)

    def _padded(self, x: torch.Tensor) -> torch.Tensor:
        shortcut = x[:, :, :: self.stride, :: self.stride]
        if self.added:
            shortcut = functional.pad(
                shortcut, (0, 0, 0, 0, self.added // 2, self.added - self.added // 2)
            )
        return shortcut


def residual_network(
    channels: int, stages: Sequence[int], blocks: int, kind: Norm, projected: bool, classes: int
) -> nn.Sequential:
    """A 3 x 3 convolution, stages of residual blocks, the mean over the image, a linear layer.

    ``stages``: the channels of each. From the second stage on, the first block halves the image.
    """
    parts: OrderedDict[str, nn.Module] = OrderedDict(
        conv=conv3x3(channels, stages[0], kind), norm=norm(kind, stages[0]), act=nn.ReLU()
    )
    width = stages[0]
    for stage, outputs in enumerate(stages, start=1):
        for block in range(1, blocks + 1):
            stride = 2 if block == 1 and stage > 1 else 1
            made = Residual(width, outputs, stride, kind, projected)
            parts[f"stage{stage}_block{block}"], width = made, outputs
    return nn.Sequential(parts | {"pool": GlobalAverage(), "output": nn.Linear(width, classes)})


def _projection(inputs: int, outputs: int, stride: int, kind: Norm) -> nn.Sequential:
    return nn.Sequential(
        OrderedDict(
            conv=nn.Conv2d(inputs, outputs, 1, stride=stride, bias=kind == "none"),
            norm=norm(kind, outputs),
        )
    )


class GlobalAverage(nn.Module):
    """Mean over height and width: (batch, channels, height, width) -> (batch, channels)."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.mean(dim=(2, 3))


class Embedded(nn.Module):
    """Embedding: (batch, length) token numbers -> (batch, width, length).

    Token 0, the padding, is always the zero vector.
    """

    def __init__(self, vocabulary: int, width: int) -> None:
        super().__init__()
        self.table = nn.Embedding(vocabulary, width, padding_idx=0)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.table(tokens).transpose(1, 2)


class MaxOverTime(nn.Module):
    """Convolutions with several windows over (batch, width, length), and the maximum of each
    filter over the length, concatenated (Kim 2014, eq. 2-3).
    """

    def __init__(self, width: int, filters: int, windows: tuple[int, ...]) -> None:
        super().__init__()
        self.convs = nn.ModuleList(nn.Conv1d(width, filters, window) for window in windows)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([functional.relu(conv(x)).amax(dim=2) for conv in self.convs], dim=1)


class LastState(nn.Module):
    """The output of an LSTM at the last position: (batch, length, width) -> (batch, hidden)."""

    def __init__(self, width: int, hidden: int, layers: int) -> None:
        super().__init__()
        self.lstm = nn.LSTM(width, hidden, layers, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.lstm(x)[0][:, -1]
