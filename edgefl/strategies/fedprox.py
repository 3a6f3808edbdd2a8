"""FedProx: FedAvg with a pull of mu towards the received model in every local step (Li et al.
2020, arXiv 1812.06127).
"""

from __future__ import annotations

from typing import Any

from pydantic import Field

from edgefl.strategies.base.local_rule import LocalRule
from edgefl.strategies.base.rounds import RoundsOptions
from edgefl.strategies.fedavg import FedAvg


class Pull(LocalRule):
    """g <- g + mu (w - w_start): the gradient of (mu/2) ||w - w_start||^2; normalisation buffers
    are not pulled.
    """

    def adjust(self, run: Any, gradient: Any) -> None:
        size = run.parameters
        gradient.add_(run.weights[:size], alpha=self.options.mu).sub_(
            run.start[:size], alpha=self.options.mu
        )


class FedProxOptions(RoundsOptions):
    mu: float = Field(0.01, ge=0)
    """Pull towards the received model."""


class FedProx(FedAvg):
    """Server as FedAvg; no partial work of stragglers (the paper's drop_percent)."""

    Options = FedProxOptions
    rule = Pull
