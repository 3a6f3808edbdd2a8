"""PORT: buffered updates weighted by staleness and direction; late edges report at once (Su 2022).

The direction is compared with the latest motion of the global model. Source: Su, Li 2022, IWQoS.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from pydantic import Field

from edgefl.strategies.base.asynchronous import Asynchronous, AsynchronousOptions
from edgefl.strategies.base.events_and_decisions import Decision, TaskClosed, UpdateArrived, Urge
from edgefl.vectors import aligned, with_changes


class PortOptions(AsynchronousOptions):
    least_updates: int = Field(5, ge=1)
    """Least number of updates for one server step (Kmin)."""
    staleness_bound: int = Field(10, ge=1)
    """If the model of an edge at work is more than this many versions behind (B_s), the edge must
    report at once, and the server waits for it.
    """
    similarity_weight: float = Field(1.0, ge=0)
    """Weight of the cosine with the global motion in the weight of an update (s_w)."""
    staleness_weight: float = Field(3.0, gt=0)
    """Weight of freshness in the weight of an update (t_w)."""
    reference: Literal["last step", "start"] = "last step"
    """The global motion: the change by the last server step, as in the authors' code, or since the
    `"start"` model of the edge, as a comment in that code says.
    """


class Port(Asynchronous):
    """Once Kmin updates wait and no running device exceeds B_s:  w <- w + sum c_i D_i ,  D_i = w_i
    - w_start,i ,  c_i = raw_i / sum raw ,

    raw_i = (n_i / sum n) ( s_w (cos_i + 1) / 2 + t_w B_s / (gap_i + B_s) ) ,  cos_i = cosine(D_i, w
    - w_ref) over the trainable elements, 1 if gap_i <= 1 or there is no reference yet. A device
    that exceeds B_s is urged: it ends its training at the next step and reports. In the authors'
    code it reports its last finished epoch.
    """

    Options = PortOptions

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.waiting: list[UpdateArrived] = []
        self.urged: set[str] = set()
        self.before: np.ndarray | None = None  # the model before the last step

    def apply(self, update: UpdateArrived, gap: int) -> np.ndarray | None:
        self.waiting.append(update)
        return self._fused() if self._due() else None

    def arrived(self, update: UpdateArrived, now: int) -> list[Decision]:
        if too_stale := self.discarded(update):
            self.failed = 0
            # the server may have waited for this update
            return [*too_stale, *self._fused_if_due(), *self._refill(), *self._urge()]
        return [*super().arrived(update, now), *self._urge()]

    def closed(self, event: TaskClosed, now: int) -> list[Decision]:
        # the server may have waited for this task
        return [*self._fused_if_due(), *super().closed(event, now), *self._urge()]

    def _urge(self) -> list[Decision]:
        """Urge each late edge, once per task."""
        late = self._late()
        fresh = [edge for edge in late if edge not in self.urged]
        self.urged = set(late)
        return [Urge(edge) for edge in fresh]

    def _due(self) -> bool:
        return len(self.waiting) >= self.options.least_updates and not self._late()

    def _late(self) -> list[str]:
        """Return the edges at work whose model is older than the bound."""
        return sorted(
            edge
            for edge, version in self.running.items()
            if self.version - version > self.options.staleness_bound
        )

    def _fused_if_due(self) -> list[Decision]:
        return [self._publish(self._fused())] if self._due() else []

    def _fused(self) -> np.ndarray:
        shares = fusing_weights(
            [update.numbers["samples"] for update in self.waiting],
            [self.version - update.base_version for update in self.waiting],
            self._agreements(),
            self.options,
        )
        ends = [update.weights for update in self.waiting]
        starts = [update.base for update in self.waiting]
        fused = with_changes(self.weights, ends, starts, shares, self.layout.parameters)
        self.waiting, self.before = [], self.weights
        return fused

    def _agreements(self) -> list[float]:
        """Return cos_i of the waiting updates."""
        size, latest, found = self.layout.parameters, self.options.reference == "last step", []
        change: np.ndarray | None = None
        motion: np.ndarray | None = None
        for update in self.waiting:
            reference = self.before if latest else update.base
            if reference is None or self.version - update.base_version <= 1:
                found.append(1.0)
                continue
            if motion is None or change is None or not latest:
                motion, change = (
                    aligned(size) if each is None else each for each in (motion, change)
                )
                np.subtract(self.weights[:size], reference[:size], out=motion)
            np.subtract(update.weights[:size], update.base[:size], out=change)
            found.append(cosine(change, motion))
        return found


def fusing_weights(
    samples: list[float], gaps: list[int], cosines: list[float], options: PortOptions
) -> list[float]:
    """Return c_i, with sum 1. A device that reports before the next version has gap 0."""
    bound = options.staleness_bound
    raw = [
        n
        * (
            options.similarity_weight * (cos + 1) / 2
            + options.staleness_weight * bound / (gap + bound)
        )
        for n, gap, cos in zip(samples, gaps, cosines)
    ]
    return [value / sum(raw) for value in raw]


def cosine(one: np.ndarray, other: np.ndarray) -> float:
    """Return the cosine; 0 if either vector is all zero."""
    sizes = float(np.linalg.norm(one)) * float(np.linalg.norm(other))
    return float(np.dot(one, other)) / sizes if sizes else 0.0
