"""FedASMU-DA: devices merge a fresher model, the server weighs by a fixed rule (ablation of
FedASMU).
"""

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
    """alpha = FedAsync's polynomial, alpha (gap + 1)^-a; devices as in FedASMU."""

    Options = FedASMUDAOptions
    learned = False
