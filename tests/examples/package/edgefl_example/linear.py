"""Linear: one layer from all inputs to the classes."""

from math import prod

from torch import nn

from edgefl.api import Section


class Options(Section):
    """Keys next to ``name`` in [model]."""

    bias: bool = True


def build(options, shape, classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(prod(shape), classes, bias=options.bias))
