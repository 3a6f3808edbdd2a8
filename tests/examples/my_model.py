"""Your own model: one convolution and a linear layer. ``Options`` are the keys next to ``name`` in
[model].
"""

from torch import nn

from edgefl.api import Section


class Options(Section):
    filters: int = 4


def build(options, shape, classes):
    channels, height, width = shape
    conv = nn.Conv2d(channels, options.filters, 3, padding=1)
    return nn.Sequential(
        conv, nn.ReLU(), nn.Flatten(), nn.Linear(options.filters * height * width, classes)
    )
