"""Base of buffered strategies: every K updates make one server step."""

from __future__ import annotations

from math import isfinite
from typing import Any, ClassVar

import numpy as np
from pydantic import Field

from edgefl.strategies.base.asynchronous import Asynchronous, AsynchronousOptions
from edgefl.strategies.base.events_and_decisions import Assign, Decision, Discard, UpdateArrived
from edgefl.vectors import inner, weighted_sum


class BufferedOptions(AsynchronousOptions):
    buffer_size: int = Field(10, ge=1)
    """Number of updates for one server step (K)."""
    dispatch_before_step: bool = False  # True: as in FedEcho's algorithm listing
    """If true, the update that fills the buffer frees its edge before the server step: the next
    task starts from the old model.
    """
    # papers tune it for each method
    local_learning_rate: float | None = Field(None, gt=0)
    """Learning rate of local training; none: `training.learning_rate`."""


class Gathered:
    """The weighted sum of the buffered updates, as one vector.

    Trainable elements: sum_i c_i (w_i - w_start,i). Behind them, the others: sum_i c_i w_i. The
    others are running statistics of normalisations: they are averaged and take no step, because a
    step could make a variance negative.
    """

    def __init__(self, parameters: int) -> None:
        self.parameters = parameters
        self.clear()

    def clear(self) -> None:
        self.sum: np.ndarray | None = None  # None: empty
        self.weight = 0.0  # sum_i c_i

    def add(self, update: UpdateArrived, weight: float) -> None:
        """Add an update with c_i = ``weight``."""
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
        """The part of the trainable elements, as a view."""
        assert self.sum is not None
        return self.sum[: self.parameters]

    def statistics(self, old: np.ndarray, share: float) -> np.ndarray:
        """Return the other elements of the next model: (1 - share sum_i c_i) old + share sum_i c_i
        w_i.
        """
        assert self.sum is not None
        return weighted_sum(
            (old[self.parameters :], self.sum[self.parameters :]),
            (1.0 - share * self.weight, share),
        )

    def stepped(self, old: np.ndarray, factor: float, share: float) -> np.ndarray:
        """Return the model after a step of ``factor`` times the change; ``share``: see
        ``statistics``.
        """
        assert self.sum is not None
        new = weighted_sum((old, self.sum), (1.0, factor))
        new[self.parameters :] = self.statistics(old, share)
        return new


class Buffered(Asynchronous):
    """Every K updates make one step: a subclass collects in ``add`` and steps in ``step``."""

    Options: ClassVar[type[AsynchronousOptions]] = BufferedOptions

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.buffered = 0
        self.gathered = Gathered(self.layout.parameters)

    @classmethod
    def warnings(cls, options: Any, epochs: int) -> list[str]:
        if options.concurrency == "all" or options.buffer_size <= options.concurrency:
            return []
        return [
            f"buffer_size {options.buffer_size} is above concurrency {options.concurrency}: some"
            " edges must deliver more than once for each step"
        ]

    @property
    def numbers(self) -> dict[str, float]:
        """The numbers that a task carries."""
        rate = self.options.local_learning_rate
        return {} if rate is None else {"learning_rate": rate}

    def assign(self, edges: list[str]) -> list[Decision]:
        self.mark_running(edges)
        return [Assign(tuple(edges), {"weights": self.weights}, self.numbers)]

    def add(self, update: UpdateArrived, gap: int) -> None:
        """Put one update into the buffer."""
        raise TypeError(f"{type(self).__name__} must define add")

    def step(self) -> np.ndarray:
        """Return the next global model from the full buffer, and empty the buffer."""
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
    """Base of strategies that divide their step by the root of a second moment.

    An update is discarded if the square of its change overflows float32, as if it were not finite:
    an infinite second moment would silently stop its weights for the rest of the run.
    """

    def arrived(self, update: UpdateArrived, now: int) -> list[Decision]:
        with np.errstate(over="ignore", invalid="ignore"):
            squared = self.squared_change(update)
        if isfinite(squared):
            return super().arrived(update, now)
        self.closed_for = "change too long to be squared"
        return [Discard(update.task, self.closed_for), *self._undelivered()]

    def squared_change(self, update: UpdateArrived) -> float:
        """Return the square of the update's change of the trainable elements."""
        change = ((update.weights, 1.0), (update.base, -1.0))
        return inner(change, change, self.layout.parameters)
