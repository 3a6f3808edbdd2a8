"""FedASMU-FA: the server learns its weights, devices merge nothing (ablation of FedASMU)."""

from __future__ import annotations

from edgefl.strategies.dissemination.device import LearningRateRule
from edgefl.strategies.dissemination.options import LearnedWeightOptions, TriggerOptions
from edgefl.strategies.fedasmu import FedASMU


class FedASMUFAOptions(TriggerOptions, LearnedWeightOptions):
    pass


class FedASMUFA(FedASMU):
    """alpha by eq. 2 as in FedASMU; plain local SGD."""

    Options = FedASMUFAOptions
    rule = LearningRateRule
    asks = False
