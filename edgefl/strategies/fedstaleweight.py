"""FedStaleWeight: buffered updates, weighted by the mean staleness of their devices (Ma 2024).

So slow devices count as much as fast ones, which deliver more often. Source: Ma et al. 2024, arXiv
2406.02877. The equations follow the authors' code (github.com/18jeffreyma/afl-bench,
expected_staleness.py), because the paper's text was not available.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

import numpy as np
from pydantic import Field

from edgefl.strategies.base.buffered import Buffered, BufferedOptions
from edgefl.strategies.base.events_and_decisions import Decision, Report, UpdateArrived
from edgefl.vectors import with_changes


class FedStaleWeightOptions(BufferedOptions):
    """The defaults are the authors' values."""

    buffer_size: int = Field(5, ge=1)
    """Number of updates for one server step (K)."""
    server_learning_rate: float = Field(1.0, gt=0)
    """Learning rate of the server step (eta_g)."""
    window: int | None = Field(5, ge=1)
    """Number of a device's latest updates whose mean gap is its weight; none: all of them. With a
    short window and a large buffer, fast devices have no weight for long: all their gaps are 0.
    """


class FedStaleWeight(Buffered):
    """At K updates:  w <- w + eta_g sum p_i D_i ,  p_i = t_i / sum t ,  t_i = mean gap of the
    latest ``window`` updates of the device of update i.

    The gaps of the K updates count in t_i already. The expected gap of a device is proportional to
    the time between two of its updates, so t_i times its number of updates is about the same for
    all devices; only about, because each buffer's weights are normalised. The authors' weights are
    t_i K / N before that, and the factor cancels out.

    Corrected in the authors' code: where all t_i are 0, as in the first step, its p_i are all 0 and
    the step is lost; here p_i = 1 / K. From a full window it removes the newest gap, here the
    oldest. It leaves normalisations as they are; here they are averaged with the weights p_i.
    """

    Options = FedStaleWeightOptions

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.waiting: list[UpdateArrived] = []
        self.gaps: dict[str, deque[int]] = {}  # of each device's latest updates
        self.shares: list[float] = []  # p_i of the latest step

    def add(self, update: UpdateArrived, gap: int) -> None:
        self.waiting.append(update)
        self.gaps.setdefault(update.edge, deque(maxlen=self.options.window)).append(gap)

    def step(self) -> np.ndarray:
        means = [self.mean_gap(update.edge) for update in self.waiting]
        self.shares = fair_shares(means)
        weights = with_changes(
            self.weights,
            [update.weights for update in self.waiting],
            [update.base for update in self.waiting],
            [self.options.server_learning_rate * share for share in self.shares],
            self.layout.parameters,
        )
        self.waiting = []
        return weights

    def mean_gap(self, edge: str) -> float:
        """Return t_i of a device that has delivered."""
        gaps = self.gaps[edge]
        return sum(gaps) / len(gaps)

    def reports(self, update: UpdateArrived, gap: int) -> list[Decision]:
        return [Report({"largest_share": max(self.shares)})]


def fair_shares(means: Sequence[float]) -> list[float]:
    """Return p_i, with sum 1."""
    total = sum(means)
    return [mean / total if total else 1 / len(means) for mean in means]
