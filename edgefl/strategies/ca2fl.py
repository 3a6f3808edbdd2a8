"""CA2FL: the server corrects the buffer's mean by each device's last change (Wang 2024).

Source: Wang et al. 2024, openreview 4aywmeb97I.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from pydantic import Field

from edgefl.strategies.base.buffered import Buffered, BufferedOptions
from edgefl.strategies.base.events_and_decisions import Decision, Report, UpdateArrived
from edgefl.vectors import VectorStore, aligned_copy, blocks


class CA2FLOptions(BufferedOptions):
    server_learning_rate: float = Field(1.0, gt=0)
    """Learning rate of the server step (eta_g)."""


class CA2FL(Buffered):
    """On D_i = w_i - w_start,i:  buffer += D_i - h_i, then h_i <- D_i. At M:  v = hbar + buffer / M
    ;  w <- w + eta_g v ;  hbar <- mean of the h_i.

    h_i starts at 0. The mean is over all N devices, also those that have not delivered yet. hbar
    does not change while the buffer fills; a device that delivers twice in that time is corrected
    by its new h_i. The buffer equals the growth of sum h_i, so that sum needs no pass over N
    models. The N vectors h_i are in an unnamed temporary file. There is no staleness weight, and a
    discarded update changes no h_i. Normalisation buffers: the mean of the M.
    """

    Options = CA2FLOptions

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        size = self.layout.parameters
        self.changes = VectorStore(size)  # h_i
        self.sum_h = np.zeros(size, np.float32)  # N hbar: N may still grow

    def add(self, update: UpdateArrived, gap: int) -> None:
        size, known = self.layout.parameters, self.changes.row(update.edge)
        self.gathered.add(update, 1.0)
        self.gathered.change[:] -= known
        np.subtract(update.weights[:size], update.base[:size], out=known)

    def step(self) -> np.ndarray:
        share = 1 / self.options.buffer_size
        rate = self.options.server_learning_rate
        of_all = 1 / len(self.known)
        weights, grown = aligned_copy(self.weights), self.gathered.change
        for part in blocks(grown.size):
            weights[part] += rate * (of_all * self.sum_h[part] + share * grown[part])
            self.sum_h[part] += grown[part]
        weights[grown.size :] = self.gathered.statistics(self.weights, share)
        self.gathered.clear()
        return weights

    def reports(self, update: UpdateArrived, gap: int) -> list[Decision]:
        return [Report({"vectors": len(self.changes)})]
