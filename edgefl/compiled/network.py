"""The small networks that have a compiled step, as plain data: images through convolutions, pooling
and ReLU, then dense layers.

Every ``nn.Sequential`` of these layers is one (``network_of``), and a model may describe itself as
one (``network`` in its file), so that nobody needs torch for it. This module does not import torch.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from edgefl.errors import UserError
from edgefl.streams import Streams
from edgefl.vectors import Layout, LayoutEntry, aligned

if TYPE_CHECKING:
    from torch import nn

MOST_UNROLLED = 128  # elements of a kernel, which stand in the code one by one
Shape = tuple[int, int, int]  # channels, height, width


def image_shape(model: str, shape: tuple[int, ...], least: int = 1) -> tuple[int, int, int]:
    """Return (channels, height, width). UserError if the samples are texts, or if a side has less
    than ``least`` pixels.
    """
    if len(shape) != 3:
        hint = "model textcnn takes texts"
        if len(shape) == 1:
            hint = f"give plain features the shape (1, 1, {shape[0]})"
        raise UserError(
            f"model {model} takes pictures (channels, height, width), these samples have the shape"
            f" {shape}; {hint}"
        )
    channels, height, width = shape
    if min(height, width) < least:
        raise UserError(
            f"model {model} needs images of at least {least} x {least}, these are {height} x"
            f" {width}; model mlp takes any size"
        )
    return channels, height, width


@dataclass(frozen=True)
class Convolution:
    """``padding``: zeros above, left, below, right."""

    inputs: int
    outputs: int
    kernel: tuple[int, int]
    stride: tuple[int, int] = (1, 1)
    padding: tuple[int, int, int, int] = (0, 0, 0, 0)
    bias: bool = True
    relu: bool = False
    name: str = field(default="", compare=False, repr=False)  # of its module

    @property
    def weight_shape(self) -> tuple[int, ...]:
        return (self.outputs, self.inputs, *self.kernel)

    @property
    def weights(self) -> int:
        return math.prod(self.weight_shape)

    def after(self, shape: Shape) -> Shape:
        top, left, bottom, right = self.padding
        return (
            self.outputs,
            (shape[1] + top + bottom - self.kernel[0]) // self.stride[0] + 1,
            (shape[2] + left + right - self.kernel[1]) // self.stride[1] + 1,
        )


@dataclass(frozen=True)
class Pooling:
    """The largest of each ``size`` elements, which do not overlap; what is left over is dropped."""

    size: tuple[int, int]
    relu: bool = False
    bias = False
    weights = 0

    def after(self, shape: Shape) -> Shape:
        return shape[0], shape[1] // self.size[0], shape[2] // self.size[1]


@dataclass(frozen=True)
class Linear:
    inputs: int
    outputs: int
    bias: bool = True
    relu: bool = False
    name: str = field(default="", compare=False, repr=False)

    @property
    def weight_shape(self) -> tuple[int, ...]:
        return self.outputs, self.inputs

    @property
    def weights(self) -> int:
        return self.inputs * self.outputs

    def after(self, shape: Shape) -> Shape:
        return self.outputs, 1, 1


Layer = Convolution | Pooling | Linear


@dataclass(frozen=True)
class Network:
    """``layers`` in order: first those on images, then at least one ``Linear``, the last without
    ReLU.

    The flat vector of its parameters has each layer's weights as torch has them, then its bias.
    """

    shape: Shape
    layers: tuple[Layer, ...]

    @property
    def classes(self) -> int:
        last = self.layers[-1]
        assert isinstance(last, Linear)
        return last.outputs

    @property
    def parameters(self) -> int:
        return sum(
            layer.weights + (layer.outputs if layer.bias else 0)
            for layer in self.layers
            if not isinstance(layer, Pooling)
        )

    @property
    def layout(self) -> Layout:
        """The layout of the torch module's flat vector."""
        entries, offset = [], 0
        for layer in self.layers:
            if isinstance(layer, Pooling):
                continue
            shapes = {"weight": layer.weight_shape, "bias": (layer.outputs,)}
            for kind in ("weight", "bias") if layer.bias else ("weight",):
                name, shape = f"{layer.name}.{kind}", shapes[kind]
                entries.append(LayoutEntry(name, shape, offset, "parameter", layer.name))
                offset += math.prod(shape)
        return Layout(tuple(entries))


def first_weights(network: Network, streams: Streams) -> np.ndarray:
    """Return w_0: the same flat vector as ``edgefl.models.workspace.initial`` makes with torch.

    Weights and biases are uniform within 1 / sqrt(inputs of an element), drawn as torch does: the
    lower 24 bits of each number of a Mersenne Twister.
    """
    twister = streams.as_torch("model")
    vector, start = aligned(network.parameters), 0
    for layer in network.layers:
        if isinstance(layer, Pooling):
            continue
        inputs = math.prod(layer.weight_shape[1:])
        # as torch computes them: kaiming_uniform_ with a = sqrt(5), and 1 / sqrt(inputs)
        bounds = [math.sqrt(3.0) * (math.sqrt(2.0 / (1 + 5)) / math.sqrt(inputs))]
        bounds += [1 / math.sqrt(inputs)] if layer.bias else []
        for bound, size in zip(bounds, (layer.weights, layer.outputs)):
            low, high = np.float32(-bound), np.float32(bound)
            bits = twister.randint(1 << 32, size=size, dtype=np.uint32)
            drawn = (bits & 0xFFFFFF) / 2.0**24
            # in float64, and rounded once: torch multiplies and adds in one instruction
            vector[start : start + size] = drawn * float(high - low) + float(low)
            start += size
    return vector


class Unsuited(Exception):
    """Says why a module has no compiled step."""


def network_of(model: nn.Module, shape: tuple[int, ...]) -> Network:
    """The network of a torch module for samples of ``shape``. Unsuited: torch has to compute it."""
    if len(shape) != 3 or min(shape) < 1:
        raise Unsuited(f"its samples have the shape {tuple(shape)}, expected images")
    layers: list[Layer] = []
    current, flat = (shape[0], shape[1], shape[2]), False
    padding = (0, 0, 0, 0)
    for name, module in _leaves(model):
        kind = type(module).__name__
        if kind in ("Identity", "Flatten"):
            if kind == "Flatten" and (module.start_dim, module.end_dim) != (1, -1):
                raise Unsuited(f"layer {name} flattens other dimensions than usual")
            flat = flat or kind == "Flatten"
            continue
        if kind == "ReLU":
            if not layers or padding != (0, 0, 0, 0):
                raise Unsuited(f"layer {name} is a ReLU before the first layer with weights")
            layers[-1] = replace(layers[-1], relu=True)
            continue
        if kind == "ZeroPad2d":
            left, right, top, bottom = module.padding
            if flat or min(module.padding) < 0:
                raise Unsuited(f"layer {name} pads in another way")
            padding = (
                padding[0] + top,
                padding[1] + left,
                padding[2] + bottom,
                padding[3] + right,
            )
            continue
        layer = _layer(name, kind, module, padding, flat)
        padding = (0, 0, 0, 0)
        inputs = current[0] * current[1] * current[2] if isinstance(layer, Linear) else current[0]
        if not isinstance(layer, Pooling) and layer.inputs != inputs:
            raise Unsuited(f"layer {name} takes {layer.inputs} inputs and gets {inputs}")
        current = layer.after(current)
        if min(current) < 1:
            raise Unsuited(f"layer {name} leaves nothing of the image")
        layers.append(layer)
    if not layers or not isinstance(layers[-1], Linear) or layers[-1].relu:
        raise Unsuited("its last layer is not linear")
    network = Network((shape[0], shape[1], shape[2]), tuple(layers))
    _check_parameters(model, network)
    return network


def _leaves(model: nn.Module, prefix: str = "") -> Iterator[tuple[str, Any]]:
    from torch import nn  # the module exists, so torch is there

    if type(model) is not nn.Sequential or _hooked(model):
        raise Unsuited(f"{prefix or 'the model'} is a {type(model).__name__}, not a Sequential")
    for name, module in model._modules.items():  # named_children has a module once
        if type(module) is nn.Sequential:
            yield from _leaves(module, f"{prefix}{name}.")
        elif type(module) is not getattr(nn, type(module).__name__, None) or _hooked(module):
            raise Unsuited(f"layer {prefix}{name} is a {type(module).__name__} of its own kind")
        else:
            yield prefix + name, module


def _hooked(module: nn.Module) -> bool:
    own = module.__dict__
    hooks = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    return any(own.get(name) for name in hooks) or "forward" in own


def _layer(
    name: str, kind: str, module: Any, padding: tuple[int, int, int, int], flat: bool
) -> Layer:
    if kind == "Linear":
        if not flat or padding != (0, 0, 0, 0):
            raise Unsuited(f"layer {name} is linear before a Flatten")
        return Linear(module.in_features, module.out_features, module.bias is not None, name=name)
    if flat:
        raise Unsuited(f"layer {name} ({kind}) comes after a Flatten")
    if kind == "MaxPool2d":
        size = _pair(module.kernel_size)
        plain = _pair(module.padding) == (0, 0) and _pair(module.dilation) == (1, 1)
        if not plain or _pair(module.stride) != size or module.ceil_mode or module.return_indices:
            raise Unsuited(f"layer {name} pools in another way than without overlap and padding")
        if padding != (0, 0, 0, 0):
            raise Unsuited(f"layer {name} pools a padded image")
        return Pooling(size)
    if kind == "Conv2d":
        if (
            module.groups != 1
            or _pair(module.dilation) != (1, 1)
            or module.padding_mode != "zeros"
            or isinstance(module.padding, str)
            or module.kernel_size[0] * module.kernel_size[1] > MOST_UNROLLED
        ):
            raise Unsuited(f"layer {name} has groups, dilation, a padding mode or a large kernel")
        high, wide = _pair(module.padding)
        top, left, bottom, right = padding
        return Convolution(
            module.in_channels,
            module.out_channels,
            _pair(module.kernel_size),
            _pair(module.stride),
            (top + high, left + wide, bottom + high, right + wide),
            module.bias is not None,
            name=name,
        )
    raise Unsuited(f"layer {name} is a {kind}")


def _pair(value: Any) -> tuple[int, int]:
    return (value, value) if isinstance(value, int) else (int(value[0]), int(value[1]))


def _check_parameters(model: nn.Module, network: Network) -> None:
    torch = sys.modules["torch"]
    tensors = [*model.named_parameters(), *model.named_buffers()]
    if not all(tensor.requires_grad and tensor.dtype == torch.float32 for _, tensor in tensors):
        raise Unsuited("it has frozen parameters, buffers or another type than float32")
    if sum(tensor.numel() for _, tensor in tensors) != network.parameters:
        raise Unsuited("it shares parameters between layers")
    if any(t._backward_hooks or t._post_accumulate_grad_hooks for _, t in tensors):
        raise Unsuited("it has hooks on its parameters")
