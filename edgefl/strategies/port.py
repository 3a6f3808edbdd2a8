"""PORT: buffered updates weighed by staleness and by agreement with the latest global motion;
too late devices report at once (Su, Li 2022, IWQoS).
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from pydantic import Field

from edgefl.strategies.base.asynchronous import Asynchronous, AsynchronousOptions
from edgefl.strategies.base.decisions import Decision, Urge
from edgefl.strategies.base.events import TaskClosed, UpdateArrived
from edgefl.vectors import weighted_sum, with_changes


class PortOptions(AsynchronousOptions):
    least_updates: int = Field(5, ge=1)  # Kmin
    """Updates for one server step."""
    staleness_bound: int = Field(10, ge=1)  # B_s
    """An edge whose model is more versions behind is urged to report, and waited for."""
    similarity_weight: float = Field(1.0, ge=0)  # s_w
    """What agreement with the global motion counts."""
    staleness_weight: float = Field(3.0, gt=0)  # t_w
    """What freshness counts."""
    reference: Literal["last step", "start"] = (
        # what w_now is compared with: as in the authors' code, or as its comment says, w_start
        "last step"
    )
    """The global motion: the latest step, or `"start"`: all since the edge's model."""


class Port(Asynchronous):
    """Once Kmin updates wait and no running device exceeds B_s:  w <- w + sum c_i D_i ,  D_i = w_i
    - w_start,i ,  c_i = raw_i / sum raw ,

    raw_i = (n_i / sum n) ( s_w (cos_i + 1) / 2 + t_w B_s / (gap_i + B_s) ) ,  cos_i = cosine(D_i, w
    - w_ref) over the trainable elements, 1 if gap_i <= 1 or there is no reference yet. A device
    that exceeds B_s is urged: it ends its run at the next step and reports (in the authors' code,
    with the newest epoch that it has finished).
    """

    Options = PortOptions

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.waiting: list[UpdateArrived] = []
        self.urged: set[str] = set()
        self.before: np.ndarray | None = None  # the model that the last step began from

    def apply(self, update: UpdateArrived, gap: int) -> np.ndarray | None:
        self.waiting.append(update)
        return self._fused() if self._due() else None

    def arrived(self, update: UpdateArrived, now: int) -> list[Decision]:
        return [*super().arrived(update, now), *self._urge()]

    def closed(self, event: TaskClosed, now: int) -> list[Decision]:
        # it may have been the one to wait for
        fused = [self._publish(self._fused())] if self._due() else []
        return [*fused, *super().closed(event, now), *self._urge()]

    def _urge(self) -> list[Decision]:
        """Each late edge once for its task."""
        late = self._late()
        fresh = [edge for edge in late if edge not in self.urged]
        self.urged = set(late)
        return [Urge(edge) for edge in fresh]

    def _due(self) -> bool:
        return len(self.waiting) >= self.options.least_updates and not self._late()

    def _late(self) -> list[str]:
        """Edges at work whose model is older than the bound."""
        return sorted(
            edge
            for edge, version in self.running.items()
            if self.version - version > self.options.staleness_bound
        )

    def _fused(self) -> np.ndarray:
        shares = fusing_weights(
            [update.numbers["samples"] for update in self.waiting],
            [self.version - update.base_version for update in self.waiting],
            [self._agreement(update) for update in self.waiting],
            self.options,
        )
        ends, starts = (
            [update.weights for update in self.waiting],
            [update.base for update in self.waiting],
        )
        fused = with_changes(self.weights, ends, starts, shares, self.layout.parameters)
        self.waiting, self.before = [], self.weights
        return fused

    def _agreement(self, update: UpdateArrived) -> float:
        """cos_i."""
        reference = self.before if self.options.reference == "last step" else update.base
        if reference is None or self.version - update.base_version <= 1:
            return 1.0
        size = self.layout.parameters
        return cosine(
            *(
                weighted_sum((end[:size], start[:size]), (1, -1))
                for end, start in ((update.weights, update.base), (self.weights, reference))
            )
        )


def fusing_weights(
    samples: list[float], gaps: list[int], cosines: list[float], options: PortOptions
) -> list[float]:
    """c_i, summing to 1. A device that reports in the version that it started from has gap 0."""
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
    """0 if either is all zero."""
    sizes = float(np.linalg.norm(one)) * float(np.linalg.norm(other))
    return float(np.dot(one, other)) / sizes if sizes else 0.0
