"""AsyncPart (reconstructed): what has arrived in a slot is fused, staler updates weighing less and
rarer devices more (Wang et al. 2021).

Reconstructed: of "Asynchronous federated learning over wireless communication networks" (ICC 2021;
TWC 21(9) 2022, doi 10.1109/TWC.2022.3153495) only the abstract was available. Known are the slots,
the staleness in the weights, and their correction towards the devices' sample shares; the equations
here are ours.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from pydantic import Field

from edgefl.strategies.base.asynchronous import Asynchronous, AsynchronousOptions
from edgefl.strategies.base.decisions import Decision, SetAlarm
from edgefl.strategies.base.events import UpdateArrived
from edgefl.vectors import weighted_sum
from emulator.units import to_ns


class AsyncPartOptions(AsynchronousOptions):
    # T_agg; with dispatch = "replace", the edges that delivered get new work at a slot's end too
    slot_s: float = Field(10.0, ge=1e-9)
    """Emulated seconds after which what has arrived is fused."""
    # p; far beyond it all weights of a slot may be 0
    staleness_exponent: float = Field(0.5, ge=0, le=50)
    """Damping of stale updates; 0: none."""


class AsyncPart(Asynchronous):
    """c_i ~ (n_i / n) (1 + gap_i)^(-p) b_i, summing to 1 over the slot's arrivals A ;  w <- (1 - e)
    w + e sum_A c_i w_i.

    b_i = 1 / (1 + participations of i so far): the expected number of them, the same for all,
    cancels out. e = min(1, sum_A (n_i / n) m / m'), m devices of which m' are at work at a time.
    Devices start from the newest model.
    """

    Options = AsyncPartOptions
    reconstructed = True

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.waiting: list[UpdateArrived] = []  # in the current slot
        self.participations: dict[str, int] = {}

    def started(self, now: int) -> list[Decision]:
        return [*super().started(now), self._slot_end(now)]

    def rang(self, name: str, now: int) -> list[Decision]:
        if name != "slot end":
            return super().rang(name, now)
        fused = [self._publish(self._fuse())] if self.waiting else []
        return [*fused, *self._refill(), self._slot_end(now)]

    def apply(self, update: UpdateArrived, gap: int) -> None:
        self.waiting.append(update)

    def _refill(self) -> list[Decision]:
        # free devices start from the model of the slot's end
        return [] if self.waiting else super()._refill()

    def _slot_end(self, now: int) -> SetAlarm:
        return SetAlarm("slot end", now + to_ns(self.options.slot_s))

    def _fuse(self) -> np.ndarray:
        total = sum(self.known.values())
        shares = [self.known[update.edge] / total for update in self.waiting]
        rated = [share * self._correction(update) for share, update in zip(shares, self.waiting)]
        at_work = min(self.options.concurrency, len(self.known))
        step = min(1.0, sum(shares) * len(self.known) / at_work)
        fused = weighted_sum(
            [self.weights, *(update.weights for update in self.waiting)],
            [1 - step, *(step * rate / sum(rated) for rate in rated)],
        )
        for update in self.waiting:
            self.participations[update.edge] = self.participations.get(update.edge, 0) + 1
        self.waiting = []
        return fused

    def _correction(self, update: UpdateArrived) -> float:
        """(1 + gap)^(-p) b_i; a fresh update has gap 0."""
        gap = self.version - update.base_version
        damped: float = (1 + gap) ** -self.options.staleness_exponent
        return damped / (1 + self.participations.get(update.edge, 0))
