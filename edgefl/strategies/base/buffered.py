"""The buffered frame: updates are gathered, and every K of them make one server step."""

from __future__ import annotations

from math import isfinite
from typing import Any, ClassVar

import numpy as np
from pydantic import Field

from edgefl.strategies.base.asynchronous import Asynchronous, AsynchronousOptions
from edgefl.strategies.base.decisions import Assign, Decision, Discard
from edgefl.strategies.base.events import UpdateArrived
from edgefl.vector_terms import inner
from edgefl.vectors import weighted_sum


class BufferedOptions(AsynchronousOptions):
    buffer_size: int = Field(10, ge=1)  # K
    """Updates for one server step."""
    # True: the edge that fills the buffer is replaced with the old model (FedEcho's listing)
    dispatch_before_step: bool = False
    """The edge that fills the buffer is replaced before the step, with the old model."""
    # of the edges, in place of the config's: papers tune it for each method
    local_learning_rate: float | None = Field(None, gt=0)
    """Of the edges, in place of `training.learning_rate`."""


class Gathered:
    """What a buffer holds, as one vector: sum_i c_i (w_i - w_start,i) of the trainable elements,
    behind them sum_i c_i w_i of the others.

    The others are a normalisation's running statistics: they are averaged and take no step, or a
    variance could become negative.
    """

    def __init__(self, parameters: int) -> None:
        self.parameters = parameters
        self.clear()

    def clear(self) -> None:
        self.sum: np.ndarray | None = None  # None: nothing yet
        self.weight = 0.0  # sum_i c_i

    def add(self, update: UpdateArrived, weight: float) -> None:
        """One more update, with c_i = ``weight``."""
        size, end, before = self.parameters, update.weights, self.sum
        if before is None:
            self.sum = weighted_sum((end, update.base), (weight, -weight))
            self.sum[size:] = end[size:] * np.float32(weight)
        else:
            self.sum = weighted_sum((before, end, update.base), (1.0, weight, -weight))
            self.sum[size:] = before[size:] + end[size:] * np.float32(weight)
        self.weight += weight

    @property
    def change(self) -> np.ndarray:
        """The trainable elements' part, a view."""
        assert self.sum is not None
        return self.sum[: self.parameters]

    def statistics(self, old: np.ndarray, share: float) -> np.ndarray:
        """The other elements of the model after ``old``: (1 - share sum_i c_i) old + share sum_i
        c_i w_i.
        """
        assert self.sum is not None
        return weighted_sum(
            (old[self.parameters :], self.sum[self.parameters :]),
            (1.0 - share * self.weight, share),
        )


class Buffered(Asynchronous):
    """A subclass gathers in ``add`` and steps in ``step``."""

    Options: ClassVar[type[AsynchronousOptions]] = BufferedOptions

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.buffered = 0

    @classmethod
    def warnings(cls, options: Any, epochs: int) -> list[str]:
        if options.buffer_size <= options.concurrency:
            return []
        return [
            f"buffer_size {options.buffer_size} is above concurrency {options.concurrency}: some of"
            " the edges at work must report twice for a step"
        ]

    @property
    def numbers(self) -> dict[str, float]:
        """What a task says besides its vectors."""
        rate = self.options.local_learning_rate
        return {} if rate is None else {"learning_rate": rate}

    def assign(self, edges: list[str]) -> list[Decision]:
        self.mark_running(edges)
        return [Assign(tuple(edges), {"weights": self.weights}, self.numbers)]

    def add(self, update: UpdateArrived, gap: int) -> None:
        """Put one update into the buffer."""
        raise TypeError(f"{type(self).__name__} must define add")

    def step(self) -> np.ndarray:
        """The next global model from a full buffer, which is emptied."""
        raise TypeError(f"{type(self).__name__} must define step")

    def apply(self, update: UpdateArrived, gap: int) -> np.ndarray | None:
        self.add(update, gap)
        self.buffered += 1
        if self.buffered < self.options.buffer_size:
            return None
        self.buffered = 0
        return self.step()

    def arrived(self, update: UpdateArrived, now: int) -> list[Decision]:
        early = self._refill() if self.options.dispatch_before_step else []
        return early + super().arrived(update, now)


class Adaptive(Buffered):
    """A subclass divides its steps by the root of a second moment.

    An update whose change float32 cannot square is discarded, like one that is not finite: an
    infinite second moment would hold its weights still for the rest of the run, without a
    sign.
    """

    def arrived(self, update: UpdateArrived, now: int) -> list[Decision]:
        change = ((update.weights, 1.0), (update.base, -1.0))
        with np.errstate(over="ignore", invalid="ignore"):
            squared = inner(change, change, self.layout.parameters)
        if isfinite(squared):
            return super().arrived(update, now)
        self.closed_for = "change too long to be squared"
        return [Discard(update.task, self.closed_for), *self._undelivered()]
