"""ACE (reconstructed): each arrival makes a step along all devices' latest changes (Chang 2025).

Fast devices have no more weight than slow ones; ``max_age`` is ACED, which leaves out devices whose
latest update is too old. Source: Chang et al. 2025, arXiv 2511.19066. Reconstructed: of the paper
only the abstract and the public reviews (openreview) were available, and a third-party code of ACE
(asyncflower). They agree on u, the mean of the latest gradients of all devices, on a step at each
arrival without a buffer, and on one local step (K = 1). Ours: the mean before every device has
delivered, ACED's measure of age, and changes of more than one local step.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from pydantic import Field

from edgefl.strategies.base.asynchronous import Asynchronous, AsynchronousOptions
from edgefl.strategies.base.events_and_decisions import Assign, Decision, Report, UpdateArrived
from edgefl.vectors import VectorStore, aligned_copy, blocks, mix


class ACEOptions(AsynchronousOptions):
    server_learning_rate: float = Field(1.0, gt=0)
    """Learning rate of the server step (eta_g). With one local step and 1, a step of the paper: eta
    is `training.learning_rate`. A change takes part in about as many steps as there are devices, so
    with more local steps a value of about 1 / devices moves the model as far as FedAvg does.
    """
    local_steps: int | None = Field(1, ge=1)
    """Largest number of steps of a task; 1: a device sends one gradient, as in the paper; none: as
    many as `training.epochs` says.
    """
    max_age: int | None = Field(None, ge=0)
    """ACED: a device's latest change counts only as long as the model that it started from is at
    most this many versions behind (tau_algo); none: always, which is ACE.
    """


class ACE(Asynchronous):
    """On D_i = w_i - w_start,i:  h_i <- D_i ;  w <- w + eta_g u ,  u = mean of the h_j over A.

    A: the devices that have delivered (ACE), or those of them with v - o_j <= ``max_age``, o_j the
    version from which h_j started (ACED). With one local step h_j = - eta g_j. An update that is
    too old for A on arrival is discarded. The h_j are in an unnamed temporary file, and their sum
    needs no pass over them. No weight depends on samples or staleness. Normalisation buffers: the
    arriving device's, with the weight min(1, eta_g / |A|).
    """

    Options = ACEOptions
    reconstructed = True

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        size = self.layout.parameters
        self.changes = VectorStore(size)  # h_j; zeros outside A
        self.sum_h = np.zeros(size, np.float32)  # over A
        self.started_from: dict[str, int] = {}  # A: edge -> o_j

    @property
    def bound(self) -> int | None:
        bounds = (self.options.max_staleness, self.options.max_age)
        return min((bound for bound in bounds if bound is not None), default=None)

    def assign(self, edges: list[str]) -> list[Decision]:
        self.mark_running(edges)
        steps = self.options.local_steps
        numbers = {} if steps is None else {"most_steps": float(steps)}
        return [Assign(tuple(edges), {"weights": self.weights}, numbers)]

    def apply(self, update: UpdateArrived, gap: int) -> np.ndarray:
        size, latest = self.layout.parameters, self.changes.row(update.edge)
        for part in blocks(size):
            change = update.weights[part] - update.base[part]
            self.sum_h[part] += change - latest[part]
            latest[part] = change
        self.started_from[update.edge] = update.base_version
        self._leave_out_the_old()
        share = self.options.server_learning_rate / len(self.started_from)
        weights = aligned_copy(self.weights)
        for part in blocks(size):
            weights[part] += share * self.sum_h[part]
        if size < weights.size:
            weights[size:] = mix(self.weights[size:], update.weights[size:], min(1.0, share))
        return weights

    def _leave_out_the_old(self) -> None:
        """Take devices out of A whose change has become too old."""
        most = self.options.max_age
        if most is None:
            return
        old = [edge for edge, start in self.started_from.items() if self.version - start > most]
        for edge in sorted(old):
            latest = self.changes.row(edge)
            self.sum_h -= latest
            latest[:] = 0
            del self.started_from[edge]

    def reports(self, update: UpdateArrived, gap: int) -> list[Decision]:
        return [Report({"devices": len(self.started_from)})]
