"""FedProx: FedAvg with a proximal term that keeps local models near the received one (Li 2020).

Source: Li et al. 2020, arXiv 1812.06127.
"""

from __future__ import annotations

from pydantic import Field

from edgefl.strategies.base.rounds import RoundsOptions
from edgefl.strategies.base.strategy import ProximalRule
from edgefl.strategies.fedavg import FedAvg


class FedProxOptions(RoundsOptions):
    mu: float = Field(0.01, ge=0)
    """Weight of the proximal term in the local loss: (mu / 2) ||w - w_start||^2; 0: FedAvg."""


class FedProx(FedAvg):
    """The server is FedAvg's. Stragglers do no partial work (the paper's drop_percent)."""

    Options = FedProxOptions
    rule = ProximalRule
