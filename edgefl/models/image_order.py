"""The order of images in memory: rows of pixels for each channel (torch's own order), or
channels-last, the channels of each pixel side by side.

Results in the two orders differ in the last bits only.
"""

from __future__ import annotations

import torch
from torch import nn

from edgefl.models import layers

POOLING = (nn.MaxPool2d, nn.AvgPool2d, nn.AdaptiveAvgPool2d, layers.GlobalAverage)
# With 340 (ResNet-20) a step in channels-last is faster, with 2,400 (AlexNet) it is slower.
MOST_WEIGHTS_PER_PIXEL = 1000


def channels_last(inputs: torch.Tensor) -> torch.Tensor:
    """Return images (batch, channels, height, width) in channels-last order, other inputs as they
    are.
    """
    if inputs.dim() != 4:
        return inputs
    if inputs.shape[1] > 1:
        return inputs.contiguous(memory_format=torch.channels_last)
    height, width = inputs.shape[2:]
    # with one channel both orders have the same memory; torch decides by the strides
    return inputs.contiguous().as_strided(inputs.shape, (height * width, 1, width, 1))


class TrainingOrder:
    """In which order a model gets its images in training: the faster one on one core of a CPU.

    The rule depends on the model and the size of the images only, so that every host computes the
    same bytes.
    """

    def __init__(self, model: nn.Module) -> None:
        modules = list(model.modules())
        self._convolutions = sum(
            module.weight.numel() for module in modules if isinstance(module, nn.Conv2d)
        )
        # Only in channels-last is ``max_pool2d`` vectorised. Without pooling, the step before
        # ``Flatten`` gets its gradient in the other order, which costs more than is gained. And a
        # model's own code may need torch's order, such as ``x.view(len(x), -1)``.
        self._gains = (
            self._convolutions > 0
            and any(isinstance(module, POOLING) for module in modules)
            and all(map(_takes_any_order, modules))
        )

    def arranged(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return a batch in the order in which the model trains on it."""
        if not self._gains or inputs.dim() != 4 or inputs.device.type != "cpu":
            return inputs
        # each convolution copies its weights to the images' order, and their gradient back
        pixels = inputs.shape[2] * inputs.shape[3]
        few = self._convolutions <= MOST_WEIGHTS_PER_PIXEL * pixels
        return channels_last(inputs) if few else inputs


def _takes_any_order(module: nn.Module) -> bool:
    code = type(module).__module__
    return code.startswith("torch.nn.modules.") or code == layers.__name__
