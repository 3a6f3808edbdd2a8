"""FedASMU-FA: ablation of FedASMU with learned weights and without merging on devices."""

from __future__ import annotations

from edgefl.strategies.dissemination.device import LearningRateRule
from edgefl.strategies.dissemination.options import LearnedWeightOptions, TriggerOptions
from edgefl.strategies.fedasmu import FedASMU


class FedASMUFAOptions(TriggerOptions, LearnedWeightOptions):
    pass


class FedASMUFA(FedASMU):
    """The weight alpha is that of eq. 2, as in FedASMU; devices do plain SGD."""

    Options = FedASMUFAOptions
    rule = LearningRateRule
    asks = False
