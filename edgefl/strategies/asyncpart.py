"""AsyncPart (reconstructed): fuses the updates that arrive in a period of time (Wang 2021).

Stale updates have less weight, updates of rare devices more. Reconstructed: of Wang et al.,
"Asynchronous federated learning over wireless communication networks" (ICC 2021; TWC 21(9) 2022,
doi 10.1109/TWC.2022.3153495) only the abstract was available. Known are the slots, the staleness in
the weights, and their correction towards the devices' sample shares. The equations here are ours.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from pydantic import Field

from edgefl.strategies.base.asynchronous import Asynchronous, AsynchronousOptions
from edgefl.strategies.base.events_and_decisions import Decision, SetAlarm, UpdateArrived
from edgefl.vectors import weighted_sum
from emulator.units import to_ns


class AsyncPartOptions(AsynchronousOptions):
    slot_s: float = Field(10.0, ge=1e-9)
    """Length of a slot in emulated time (T_agg). At its end the updates that arrived are fused, and
    with `dispatch = "replace"` their edges get new work.
    """
    # above 50, all weights of a slot could underflow to 0
    staleness_exponent: float = Field(0.5, ge=0, le=50)
    """Exponent p of the factor (1 + gap)^-p in the weight of an update; 0: no damping."""


class AsyncPart(Asynchronous):
    """c_i ~ (n_i / n) (1 + gap_i)^(-p) b_i, summing to 1 over the slot's arrivals A ;  w <- (1 - e)
    w + e sum_A c_i w_i.

    b_i = 1 / (1 + participations of i so far); the expected number of participations is the same
    for all and cancels out. e = min(1, sum_A (n_i / n) m / m'), with m devices of which m' are at
    work at the same time. Devices start from the newest model.
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
        # idle devices wait for the model at the end of the slot
        return [] if self.waiting else super()._refill()

    def _slot_end(self, now: int) -> SetAlarm:
        return SetAlarm("slot end", now + to_ns(self.options.slot_s))

    def _fuse(self) -> np.ndarray:
        total = sum(self.known.values())
        shares = [self.known[update.edge] / total for update in self.waiting]
        rated = [share * self._correction(update) for share, update in zip(shares, self.waiting)]
        at_work = min(self.most_at_work, len(self.known))
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
        """Return (1 + gap)^(-p) b_i; a fresh update has gap 0."""
        gap = self.version - update.base_version
        damped: float = (1 + gap) ** -self.options.staleness_exponent
        return damped / (1 + self.participations.get(update.edge, 0))
