"""FedASMU-DA: ablation of FedASMU with fixed weights at the server; devices still merge."""

from __future__ import annotations

from edgefl.strategies.dissemination.options import (
    DeviceOptions,
    FixedWeightOptions,
    TriggerOptions,
)
from edgefl.strategies.fedasmu import FedASMU


class FedASMUDAOptions(TriggerOptions, FixedWeightOptions, DeviceOptions):
    pass


class FedASMUDA(FedASMU):
    """The weight is FedAsync's polynomial, alpha (gap + 1)^-a; devices as in FedASMU."""

    Options = FedASMUDAOptions
    learned = False
    needs_plain_sgd = False
