"""FedDelay: asynchronous SGD with smaller steps for very stale updates (Koloskova 2022).

A step is smaller if the gap of its update is larger than the number of edges at work. Source:
Koloskova et al. 2022, arXiv 2206.08307.
"""

from __future__ import annotations

import numpy as np
from pydantic import Field

from edgefl.strategies.base.asynchronous import Asynchronous, AsynchronousOptions
from edgefl.strategies.base.events_and_decisions import UpdateArrived
from edgefl.vectors import with_changes


class FedDelayOptions(AsynchronousOptions):
    """With ``max_staleness`` equal to ``concurrency``, older updates are discarded: a step size of
    0, which the paper also allows.
    """

    # ours: with ten edges at work, w overshoots at 1 (the paper's form) and also at 0.5
    server_learning_rate: float = Field(0.2, gt=0, le=1)
    """Learning rate of the server step (eta_g); for an update whose gap is above `concurrency` it
    is divided by the gap.
    """


def delay_factor(gap: int, concurrency: int) -> float:
    """Return eta_t / eta of the paper: 1 up to tau_C, the number of edges at work, else 1 / tau_t.

    A fresh update has gap 0.
    """
    return 1.0 if gap <= concurrency else 1.0 / gap


class FedDelay(Asynchronous):
    """w <- w + eta_g c_t (w_k - w_start), c_t = 1 if gap <= tau_C else 1 / gap.

    The paper draws the next client from all clients, also busy ones. Here, as in all strategies, it
    is an idle one.
    """

    Options = FedDelayOptions

    def apply(self, update: UpdateArrived, gap: int) -> np.ndarray:
        at_work = min(self.most_at_work, len(self.known))
        share = self.options.server_learning_rate * delay_factor(gap, at_work)
        return with_changes(
            self.weights, [update.weights], [update.base], [share], self.layout.parameters
        )
