"""ASO-Fed: updates count by their sample share; devices have a decaying memory (Chen 2020).

A device corrects its gradient with the memory of its former gradients. Source: Chen et al. 2020,
arXiv 1911.02134.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from pydantic import Field

from edgefl.strategies.base.asynchronous import AsynchronousOptions, Timed
from edgefl.strategies.base.events_and_decisions import Assign, Decision, UpdateArrived
from edgefl.strategies.base.strategy import ProximalRule
from edgefl.vectors import Layout, with_changes


class ASOFedOptions(AsynchronousOptions):
    """The client's equations follow a public re-implementation that quotes lines of the paper; the
    server's are the form that is usually cited.
    """

    mu: float = Field(0.2, ge=0)
    """Weight of the proximal term in the local loss: (mu / 2) ||w - w_start||^2 (lambda of the
    paper); 0: plain SGD.
    """
    beta: float = Field(0.001, ge=0, le=1)
    """Decay of a device's memory: the share of its old value that it keeps."""
    feature_every: int | None = Field(None, ge=1)
    """Number of updates between two rescalings of the first layer, each with factors below 1; none:
    never.
    """


class Memory(ProximalRule):
    """zeta = g - v + h ;  z = w - r eta zeta ;  h <- beta h + (1 - beta) v ;  v <- g ;  send z.

    g is the gradient of the local loss with the proximal term, summed over the local run: (w -
    w_end) / eta. h and v start at 0; zeta uses their old values. r, the device's step size factor,
    comes with the task. Trainable elements only; normalisation buffers are sent unchanged.
    """

    remembers = ("h", "v")

    def begin(self, run: Any) -> None:
        for name in self.remembers:
            if name not in run.memory:
                run.memory[name] = run.start[: run.parameters] * 0.0

    def payload(self, run: Any) -> tuple[dict[str, np.ndarray], dict[str, float]]:
        size, eta, beta = run.parameters, run.learning_rate, self.options.beta
        gradient = (run.start[:size] - run.weights[:size]) / eta
        h, v = run.memory["h"], run.memory["v"]
        sent = run.weights.clone()
        sent[:size] = run.start[:size] - run.task.numbers["step_factor"] * eta * (gradient - v + h)
        run.memory["h"], run.memory["v"] = beta * h + (1 - beta) * v, gradient
        return {"weights": sent.numpy(force=True)}, {}


class ASOFed(Timed):
    """w <- w - (n_k / N) (w_sent - z), with N the samples of all devices.

    There is no staleness weight. With many devices the steps are small by design. r_k = max(1,
    log(mean delay of k so far, in seconds)). The feature step, if switched on: W_ij <- a_ij W_ij
    for the first layer's row i, a_ij = e^|W_ij| / sum_j e^|W_ij|.
    """

    Options = ASOFedOptions
    rule = Memory
    needs_plain_sgd = True  # the gradient is the change of a whole task

    def assign(self, edges: list[str]) -> list[Decision]:
        super().assign(edges)
        return [
            Assign(
                (edge,),
                {"weights": self.weights},
                {"step_factor": step_factor(self.mean_delay_s(edge))},
            )
            for edge in edges
        ]

    def apply(self, update: UpdateArrived, gap: int) -> np.ndarray:
        share = self.known[update.edge] / sum(self.known.values())
        weights = with_changes(
            self.weights, [update.weights], [update.base], [share], self.layout.parameters
        )
        every = self.options.feature_every
        if every is not None and (self.version + 1) % every == 0:
            attend(weights, self.layout)
        return weights


def step_factor(mean_delay_s: float | None) -> float:
    """Return r_k; 1 before the first delay is known."""
    return 1.0 if mean_delay_s is None else max(1.0, math.log(max(mean_delay_s, 1.0)))


def attend(weights: np.ndarray, layout: Layout) -> None:
    """Scale the first layer in place, row by row (a row: the weights of one output unit)."""
    first = next(
        (entry for entry in layout.entries if entry.kind == "parameter" and len(entry.shape) > 1),
        None,
    )
    if first is None:
        return
    rows = layout.view(weights, first.name).reshape(first.shape[0], -1)
    size = np.abs(rows)
    share = np.exp(size - size.max(axis=1, keepdims=True))
    rows *= share / share.sum(axis=1, keepdims=True)
