"""FedASMU-0: neither learned weights nor merging, FedAsync with FedASMU's trigger and bound
(ablation of FedASMU).
"""

from __future__ import annotations

from edgefl.strategies.base.local_rule import LocalRule
from edgefl.strategies.dissemination.options import FixedWeightOptions, TriggerOptions
from edgefl.strategies.fedasmu import FedASMU


class FedASMU0Options(TriggerOptions, FixedWeightOptions):
    pass


class FedASMU0(FedASMU):
    """alpha = FedAsync's polynomial, alpha (gap + 1)^-a; plain local SGD."""

    Options = FedASMU0Options
    rule = LocalRule
    learned = False
    asks = False
