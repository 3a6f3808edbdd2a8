"""Base of K-asynchronous strategies: the first K gradients make one server step.

All edges work. After a step only the edges of those K gradients get the new model. Source: K-async
SGD (Dutta et al. 2018, arXiv 1803.01113), as used by WKAFL (arXiv 2203.01214, algorithms 1 and 2).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
from pydantic import Field

from edgefl.strategies.base.events_and_decisions import (
    Decision,
    EdgeJoined,
    Event,
    Finish,
    Publish,
    Report,
    TaskClosed,
    UpdateArrived,
)
from edgefl.strategies.base.strategy import MOST_FAILED, LocalRule, Strategy, StrategyOptions, faded
from edgefl.vectors import Layout, aligned, weighted_sum

PREDOMINANT = 0.1  # a gradient with a larger share of a step is predominant (WKAFL, figure 2)
# mu, not given in the paper: a gradient counts as aggregated if its share is at least the largest
# share divided by this
AGGREGATED = 10.0


class GradientsOptions(StrategyOptions):
    buffer_size: int = Field(10, ge=1)
    """Number of gradients for one server step (K)."""
    server_learning_rate: float = Field(0.05, gt=0)
    """Learning rate of the server step (eta_0). Edges compute one gradient and take no step;
    `training.decay` multiplies this rate.
    """
    report_shares: bool = False
    """If true, each step also reports the share of every gradient, with its edge. From these the
    run's `aggregation` has the effective number of gradients and, with `evaluation.by_label`, the
    share of the largest label.
    """


class OneGradient(LocalRule):
    """Compute the gradient and loss of one mini-batch at the received model, and send both.

    Running statistics are sent too, if the model has any. All devices draw batches of the same
    size, so devices of the same speed need the same time, even with few samples.
    """

    moves = False

    def payload(self, run: Any) -> tuple[dict[str, np.ndarray], dict[str, float]]:
        vectors = {"gradient": run.gradient.numpy(force=True)}
        if run.parameters < run.layout.size:
            vectors["buffers"] = run.weights[run.parameters :].numpy(force=True)
        return vectors, {"batch": float(run.samples)}


@dataclass(frozen=True, slots=True, eq=False)
class GradientRule:
    """One buffered gradient.

    ``gap``: versions since the model at which it was computed; ``batch``: number of its samples.
    """

    edge: str
    gap: int
    vector: np.ndarray = field(repr=False)
    buffers: np.ndarray | None = field(repr=False)
    loss: float
    batch: float


@dataclass(frozen=True, slots=True, eq=False)
class GradientStep:
    """A server step: w <- w - sum factor * vector, over ``terms``.

    ``shares``: p_i, the weight of each gradient, with sum 1; ``report``: more numbers to record.
    """

    shares: Sequence[float]
    terms: Sequence[tuple[np.ndarray, float]]
    report: dict[str, float] = field(default_factory=dict)

    def times(self, decay: float) -> GradientStep:
        """The step with its learning rate times ``decay``, which it reports, too."""
        report = {**self.report, "decay": decay}
        if "learning_rate" in report:
            report["learning_rate"] *= decay
        terms = [(vector, factor * decay) for vector, factor in self.terms]
        return replace(self, terms=terms, report=report)


class Gradients(Strategy):
    """The first K gradients make one server step.

    A subclass computes a ``GradientStep`` in ``step``, and may choose in ``hand_out`` which edges
    get the new model. With fewer than K edges at work, a step follows the last delivery.

    ``decay(version, now)``: the factor of ``training.decay``, by which every factor of a step is
    multiplied, since all are in proportion to eta_0; None: there is no decay.
    """

    Options: ClassVar[type[StrategyOptions]] = GradientsOptions
    rule: ClassVar[type[LocalRule]] = OneGradient
    delivers = "gradient"
    set_anew = (*Strategy.set_anew, "decay")

    def __init__(self, weights: np.ndarray, layout: Layout, *rest: Any) -> None:
        super().__init__(weights, layout, *rest)
        self.parameters = layout.parameters
        self.buffer: list[GradientRule] = []
        self.failed = 0  # tasks in a row that were closed without a gradient
        self.begun = False
        self.decay: Callable[[int, int], float] | None = None
        self.decayed = 1.0  # the factor of a step now

    @classmethod
    def gathers(cls, options: Any) -> int:
        """Return K, the number of gradients for a step."""
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
        """Return the server step of these gradients, which are sorted by edge."""
        raise TypeError(f"{type(self).__name__} must define step")

    def hand_out(self) -> list[Decision]:
        """Assign the current model to every idle edge whose gradient is not in the buffer."""
        waiting = {gradient.edge for gradient in self.buffer}
        edges = [edge for edge in self.idle if edge not in waiting]
        return self.assign(edges) if edges else []

    def started_from(self, update: UpdateArrived) -> int:
        """Return the version at which the update's gradient was computed."""
        return update.base_version

    def update_size(self, edge: str, name: str) -> int:
        if name == "gradient":
            return self.parameters
        return self.layout.size - (self.parameters if name == "buffers" else 0)

    def handle(self, event: Event, now: int) -> list[Decision]:
        if self.decay is not None:
            self.decayed = self.decay(self.version, now)
        return super().handle(event, now)

    def faded(self) -> list[Decision]:
        """End the run if the learning rate has fallen to 0."""
        rate = getattr(self.options, "server_learning_rate", 1.0)
        reason = faded(rate, self.decayed, self.version)
        return [Finish(reason)] if reason else []

    def started(self, now: int) -> list[Decision]:
        self.begun = True
        return self.hand_out()

    def joined(self, event: EdgeJoined, now: int) -> list[Decision]:
        return self.hand_out() if self.begun else []

    def closed(self, event: TaskClosed, now: int) -> list[Decision]:
        self.failed += 1
        # all edges work, and one outage can close the tasks of all
        if self.failed >= max(MOST_FAILED * self.gathers(self.options), 2 * len(self.known)):
            return self.hopeless("no task delivers")
        return [*self._step_if_due(), *self.hand_out()]

    def arrived(self, update: UpdateArrived, now: int) -> list[Decision]:
        self.failed = 0
        vectors, numbers = update.vectors, update.numbers
        gap = self.version - self.started_from(update)
        # the edge adds the loss, its rule the batch size
        about = numbers.get("loss", 0.0), max(1.0, numbers.get("batch", 1.0))
        self.buffer.append(
            GradientRule(update.edge, gap, vectors["gradient"], vectors.get("buffers"), *about)
        )
        decisions = self._step_if_due()
        return [*decisions, *self.hand_out()] if decisions else []

    def _step_if_due(self) -> list[Decision]:
        if len(self.buffer) < self.gathers(self.options) and (self.running or not self.buffer):
            return []
        gradients = sorted(self.buffer, key=lambda gradient: gradient.edge)
        self.buffer = []
        if faded := self.faded():
            return faded
        server_step = self.step(gradients)
        if self.decay is not None:
            server_step = server_step.times(self.decayed)
        self.weights = self.stepped(
            server_step.terms, [gradient.buffers for gradient in gradients], server_step.shares
        )
        self.version += 1
        shares = _shares(gradients, server_step) if self.options.report_shares else []
        return [Report(_step_numbers(gradients, server_step)), *shares, Publish(self.weights)]

    def stepped(
        self,
        terms: Sequence[tuple[np.ndarray, float]],
        buffers: Sequence[np.ndarray | None],
        shares: Sequence[float],
    ) -> np.ndarray:
        """Return the next model: w - sum factor * vector for the parameters.

        The running statistics are averaged with ``shares``; they stay if some are missing.
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
        known = [part for part in buffers if part is not None]
        if len(known) == len(buffers):
            out[size:] = weighted_sum(known, shares)
        return out


def _step_numbers(gradients: Sequence[GradientRule], step: GradientStep) -> dict[str, float]:
    """Return the numbers of one step: weighted staleness, aggregated and predominant gradients.

    Source: WKAFL, section 4.1.
    """
    most = max(step.shares)
    return {
        "gradients": float(len(gradients)),
        "weighted_staleness": sum(
            share * gradient.gap for share, gradient in zip(step.shares, gradients)
        ),
        "aggregated": float(sum(share >= most / AGGREGATED for share in step.shares)),
        "predominant": float(sum(share > PREDOMINANT for share in step.shares)),
        "loss": sum(gradient.loss for gradient in gradients) / len(gradients),
        **step.report,
    }


def _shares(gradients: Sequence[GradientRule], step: GradientStep) -> list[Report]:
    """Return a report about each gradient's edge: the share p_i of its gradient in the step."""
    pairs = zip(gradients, step.shares)
    return [Report({"share": share}, gradient.edge) for gradient, share in pairs]
