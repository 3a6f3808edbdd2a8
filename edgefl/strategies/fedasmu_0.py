"""FedASMU-0: ablation of FedASMU with fixed weights and without merging on devices.

It is FedAsync with FedASMU's trigger and staleness bound.
"""

from __future__ import annotations

from edgefl.strategies.base.strategy import LocalRule
from edgefl.strategies.dissemination.options import FixedWeightOptions, TriggerOptions
from edgefl.strategies.fedasmu import FedASMU


class FedASMU0Options(TriggerOptions, FixedWeightOptions):
    pass


class FedASMU0(FedASMU):
    """The weight is FedAsync's polynomial, alpha (gap + 1)^-a; devices do plain SGD."""

    Options = FedASMU0Options
    rule = LocalRule
    learned = False
    needs_plain_sgd = False
    asks = False
