"""FedDelay: asynchronous steps that grow smaller once an update is older than the number at work
(Koloskova et al. 2022, arXiv 2206.08307).
"""

from __future__ import annotations

import numpy as np
from pydantic import Field

from edgefl.strategies.base.asynchronous import Asynchronous, AsynchronousOptions
from edgefl.strategies.base.events import UpdateArrived
from edgefl.vectors import with_changes


class FedDelayOptions(AsynchronousOptions):
    """With ``max_staleness`` at the concurrency, older updates are dropped (a step size of 0,
    which the paper allows too).
    """

    # ours: ten at work make w overshoot at 1, the paper's form, and still at 0.5
    server_learning_rate: float = Field(0.2, gt=0, le=1)
    """Of every update up to a gap of `concurrency`; beyond it, divided by the gap."""


def delay_factor(gap: int, concurrency: int) -> float:
    """eta_t / eta of the paper: 1 up to tau_C = the number at work, 1 / tau_t beyond it; a fresh
    update has gap 0.
    """
    return 1.0 if gap <= concurrency else 1.0 / gap


class FedDelay(Asynchronous):
    """w <- w + eta_g c_t (w_k - w_start), c_t = 1 if gap <= tau_C else 1 / gap.

    The paper draws the next client from all of them, busy ones too; here, as everywhere, from the
    idle ones.
    """

    Options = FedDelayOptions

    def apply(self, update: UpdateArrived, gap: int) -> np.ndarray:
        at_work = min(self.options.concurrency, len(self.known))
        share = self.options.server_learning_rate * delay_factor(gap, at_work)
        return with_changes(
            self.weights, [update.weights], [update.base], [share], self.layout.parameters
        )
