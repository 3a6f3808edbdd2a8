"""The K-asynchronous frame: every edge works, the first K gradients make a server step, and only
their edges get the new model.

Source of the frame: K-async SGD (Dutta et al. 2018, arXiv 1803.01113), as WKAFL (arXiv 2203.01214,
algorithms 1 and 2) builds on it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from pydantic import Field

from edgefl.strategies.base.decisions import Decision, Publish, Report
from edgefl.strategies.base.events import EdgeJoined, TaskClosed, UpdateArrived
from edgefl.strategies.base.local_rule import LocalRule
from edgefl.strategies.base.strategy import MOST_FAILED, Strategy, StrategyOptions
from edgefl.vectors import Layout, aligned, weighted_sum

PREDOMINANT = 0.1  # share of a step from which a gradient predominates (WKAFL, figure 2)
# mu, not given in the paper: a gradient counts as aggregated if its share is at least the largest
# one's, divided by this
AGGREGATED = 10.0


class GradientsOptions(StrategyOptions):
    buffer_size: int = Field(10, ge=1)  # K
    """K: gradients for one server step."""
    server_learning_rate: float = Field(0.05, gt=0)  # eta_0
    """Eta_0 of that step; edges take one gradient and no step of their own."""


class OneGradient(LocalRule):
    """One mini-batch at the received model: its gradient and loss go up, with the running
    statistics if the model has such buffers. All devices draw batches of one size, so devices of
    one speed need the same time, however few samples they have.
    """

    moves = False

    def payload(self, run: Any) -> tuple[dict[str, np.ndarray], dict[str, float]]:
        vectors = {"gradient": run.gradient.numpy()}
        if run.parameters < run.layout.size:
            vectors["buffers"] = run.weights[run.parameters :].numpy()
        return vectors, {"batch": float(run.samples)}


@dataclass(frozen=True, slots=True, eq=False)
class GradientRule:
    """What a step is made of. ``gap``: versions made since the model that it was taken at;
    ``batch``: samples in it.
    """

    edge: str
    gap: int
    vector: np.ndarray = field(repr=False)
    buffers: np.ndarray | None = field(repr=False)
    loss: float
    batch: float


@dataclass(frozen=True, slots=True, eq=False)
class GradientStep:
    """w <- w - sum factor * vector, over ``terms``. ``shares``: p_i, what each gradient counts
    for, summing to 1; ``report``: more to keep.
    """

    shares: Sequence[float]
    terms: Sequence[tuple[np.ndarray, float]]
    report: dict[str, float] = field(default_factory=dict)


class Gradients(Strategy):
    """A subclass makes a ``GradientStep`` in ``step``, and may say in ``hand_out`` who gets the new
    model.

    With fewer than K edges left at work, a step is made once the last of them has delivered.
    """

    Options: ClassVar[type[StrategyOptions]] = GradientsOptions
    rule: ClassVar[type[LocalRule]] = OneGradient
    delivers = "gradient"

    def __init__(self, weights: np.ndarray, layout: Layout, *rest: Any) -> None:
        super().__init__(weights, layout, *rest)
        self.parameters = layout.parameters
        self.buffer: list[GradientRule] = []
        self.failed = 0  # tasks in a row that were closed without a gradient
        self.begun = False

    @classmethod
    def gathers(cls, options: Any) -> int:
        """K: gradients for a step."""
        buffer_size: int = options.buffer_size
        return buffer_size

    @classmethod
    def refuses(cls, options: Any, edges: int, medium: str, frames: bool) -> tuple[str, str] | None:
        waits = cls.gathers(options)
        return (
            ("buffer_size", f"expected at most {edges}, as many as there are edges, found {waits}")
            if waits > edges
            else None
        )

    def step(self, gradients: Sequence[GradientRule]) -> GradientStep:
        """What the gradients, sorted by edge, come to."""
        raise TypeError(f"{type(self).__name__} must define step")

    def hand_out(self) -> list[Decision]:
        """The current model for everybody who does not work, but for those whose gradients wait
        for the others.
        """
        waiting = {gradient.edge for gradient in self.buffer}
        edges = [edge for edge in self.idle if edge not in waiting]
        return self.assign(edges) if edges else []

    def started_from(self, update: UpdateArrived) -> int:
        """The version that its gradient was taken at."""
        return update.base_version

    def update_size(self, edge: str, name: str) -> int:
        if name == "gradient":
            return self.parameters
        return self.layout.size - (self.parameters if name == "buffers" else 0)

    def started(self, now: int) -> list[Decision]:
        self.begun = True
        return self.hand_out()

    def joined(self, event: EdgeJoined, now: int) -> list[Decision]:
        return self.hand_out() if self.begun else []

    def closed(self, event: TaskClosed, now: int) -> list[Decision]:
        self.failed += 1
        if self.failed >= MOST_FAILED * self.gathers(self.options):
            return self.hopeless("no task delivers")
        return [*self._step_if_due(), *self.hand_out()]

    def arrived(self, update: UpdateArrived, now: int) -> list[Decision]:
        self.failed = 0
        vectors, numbers = update.vectors, update.numbers
        gap = self.version - self.started_from(update)
        # an edge's frame and rule add them
        about = numbers.get("loss", 0.0), max(1.0, numbers.get("batch", 1.0))
        self.buffer.append(
            GradientRule(update.edge, gap, vectors["gradient"], vectors.get("buffers"), *about)
        )
        made = self._step_if_due()
        return [*made, *self.hand_out()] if made else []

    def _step_if_due(self) -> list[Decision]:
        if len(self.buffer) < self.gathers(self.options) and (self.running or not self.buffer):
            return []
        gradients = sorted(self.buffer, key=lambda gradient: gradient.edge)
        self.buffer = []
        made = self.step(gradients)
        self.weights = self.stepped(
            made.terms, [gradient.buffers for gradient in gradients], made.shares
        )
        self.version += 1
        return [Report(_told(gradients, made)), Publish(self.weights)]

    def stepped(
        self,
        terms: Sequence[tuple[np.ndarray, float]],
        buffers: Sequence[np.ndarray | None],
        shares: Sequence[float],
    ) -> np.ndarray:
        """w - sum factor * vector for the parameters; the running statistics behind them are
        mixed by ``shares``, or stay if some are missing.
        """
        size = self.parameters
        moved = weighted_sum(
            [self.weights[:size], *(vector for vector, _ in terms)],
            [1.0, *(-factor for _, factor in terms)],
        )
        if size == self.weights.size:
            return moved
        out = aligned(self.weights.size)
        out[:size], out[size:] = moved, self.weights[size:]
        there = [part for part in buffers if part is not None]
        if len(there) == len(buffers):
            out[size:] = weighted_sum(there, shares)
        return out


def _told(gradients: Sequence[GradientRule], made: GradientStep) -> dict[str, float]:
    """WKAFL, section 4.1: weighted staleness, aggregated and predominant gradients of one step."""
    most = max(made.shares)
    return {
        "gradients": float(len(gradients)),
        "weighted_staleness": sum(
            share * gradient.gap for share, gradient in zip(made.shares, gradients)
        ),
        "aggregated": float(sum(share >= most / AGGREGATED for share in made.shares)),
        "predominant": float(sum(share > PREDOMINANT for share in made.shares)),
        "loss": sum(gradient.loss for gradient in gradients) / len(gradients),
        **made.report,
    }
