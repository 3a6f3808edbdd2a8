"""FedAC: buffered updates weighted by direction, adaptive step, control variates (Zang 2024).

The weight depends on the angle between an update and the motion of the global model. Source: Zang
et al. 2024, AAAI 38. The equations follow a public re-implementation, because the paper's text was
not available.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from pydantic import Field

from edgefl.strategies.base.buffered import Adaptive, BufferedOptions
from edgefl.strategies.base.events_and_decisions import Assign, Decision, Discard, UpdateArrived
from edgefl.strategies.base.strategy import LocalRule
from edgefl.vectors import aligned, blocks, cosine_of, moments, products, scratch, weighted_sum

LEAST_AGREEMENT = 0.1
GRADIENTS = "sum of gradients"  # in the memory of a run
CONTROL = "control"  # name of the vector in tasks, in updates and in the device's memory


class FedACOptions(BufferedOptions):
    buffer_size: int = Field(5, ge=1)
    """Number of updates for one server step (M)."""
    server_learning_rate: float = Field(1e-3, gt=0)
    """Learning rate of the server step (eta_g)."""
    beta1: float = Field(0.6, ge=0, lt=1)
    """Decay of the first moment in the server step."""
    beta2: float = Field(0.9, ge=0, lt=1)
    """Decay of the second moment in the server step."""
    # a smaller one is 0 in float32
    epsilon: float = Field(1e-8, ge=1e-37)
    """Added to the root of the second moment in the server step, to avoid a division by 0."""
    correction: Literal["every step", "once"] = "every step"
    """When control variates correct local training: at every step, or once, after training, as in
    the re-implementation.
    """
    control_share: Literal["whole", "participation"] = "participation"
    """Share of the buffer's mean change that the server's control variate takes: M / N
    (`"participation"`, as in SCAFFOLD; N edges), or all of it (`"whole"`).
    """


class Controlled(LocalRule):
    """Every step uses g + C - C_i. C_i <- (w_start - w_end) / (n eta) - (C - C_i), the mean
    gradient of the n steps; its change dC is sent, too.

    ``correction = "once"``: the device sends w_end - eta (C - C_i), and C_i is the mean gradient
    again. Trainable elements only; C_i starts at 0. With momentum, AdamW or a learning rate that
    changes over the steps, C_i is the mean of the gradients themselves, which is the same for plain
    SGD. If an update is discarded on arrival, C_i has changed and C has not.
    """

    remembers = (CONTROL,)

    def begin(self, run: Any) -> None:
        import torch  # here: strategies are listed and served without torch

        if CONTROL not in run.memory:
            run.memory[CONTROL] = run.start[: run.parameters] * 0.0
        if not run.plain_sgd:
            run.memory[GRADIENTS] = run.start[: run.parameters] * 0.0
        control = torch.tensor(run.task.vectors[CONTROL], device=run.weights.device)
        run.memory["correction"] = control - run.memory[CONTROL]

    def adjust(self, run: Any, gradient: Any) -> None:
        if not run.plain_sgd:
            run.memory[GRADIENTS] += gradient
        if self.options.correction == "every step":
            gradient.add_(run.memory["correction"])

    def payload(self, run: Any) -> tuple[dict[str, np.ndarray], dict[str, float]]:
        size, correction, sent = run.parameters, run.memory["correction"], run.weights
        if not run.plain_sgd:
            new = run.memory[GRADIENTS] / run.step
        else:
            new = (run.start[:size] - run.weights[:size]) / (run.step * run.learning_rate)
            if self.options.correction == "every step":
                new -= correction
        if self.options.correction == "once":
            sent = run.weights.clone()
            sent[:size] -= run.learning_rate * correction
        change = new - run.memory[CONTROL]
        run.memory[CONTROL] = new
        return {"weights": sent.numpy(force=True), CONTROL: change.numpy(force=True)}, {}


class FedAC(Adaptive):
    """r_i = max(cos(w - w_start,i , D_i), 0.1), 1 if the gap is 0 ;  q_i = r_i / sum r ;  D = sum
    q_i D_i ;  m <- b1 m + (1 - b1) D ;

    v <- b2 v + (1 - b2) D^2 ;  mh = b1 m + (1 - b1) D ;  w <- w + eta_g mh / (sqrt(v) + eps) ;  C
    <- C + M / N sum q_i dC_i.

    So C is about the mean of the C_i. Without M / N ("whole", as in the re-implementation) it is
    N / M times as large, because a device's changes add up to its C_i. This is harmless if a
    trained model is corrected once, but training diverges if devices add it to every step.

    w is the model at the step: it does not change while the buffer fills. Models and control
    variates are sent together, down (w, C) and up (w_i, dC_i). Normalisation buffers: the average
    with the weights q_i.
    """

    Options = FedACOptions
    rule = Controlled

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        size = self.layout.parameters
        # m, v, C
        self.first, self.second, self.control = (np.zeros(size, np.float32) for _ in range(3))
        self.control_change: np.ndarray | None = None  # sum r_i dC_i; None: 0
        self.agreed: float | None = None  # r_i of the update that has just arrived, if computed

    def assign(self, edges: list[str]) -> list[Decision]:
        self.mark_running(edges)
        return [
            Assign(tuple(edges), {"weights": self.weights, CONTROL: self.control}, self.numbers)
        ]

    def update_size(self, edge: str, name: str) -> int:
        return self.layout.parameters if name == CONTROL else super().update_size(edge, name)

    def arrived(self, update: UpdateArrived, now: int) -> list[Decision]:
        if CONTROL not in update.vectors:
            return [Discard(update.task, "no control variate"), *self._refill()]
        return super().arrived(update, now)

    def add(self, update: UpdateArrived, gap: int) -> None:
        agreement, self.agreed = self.agreed, None
        if agreement is None or not gap:
            agreement = self.agreement(update) if gap else 1.0
        self.gathered.add(update, agreement)
        old, size = self.control_change, self.layout.parameters
        summed, (product,) = aligned(size) if old is None else old, scratch(size, 1)
        for part in blocks(size):
            added = product[: part.stop - part.start]
            np.multiply(update.vectors[CONTROL][part], agreement, out=added)
            np.add(0.0 if old is None else old[part], added, out=summed[part])
        self.control_change = summed

    def squared_change(self, update: UpdateArrived) -> float:
        """Compute r_i of an update from an older model, too: both need the change."""
        self.agreed = None
        if update.base_version == self.version:
            return super().squared_change(update)
        found = self._products(update)
        self.agreed = max(cosine_of(*found), LEAST_AGREEMENT)
        return found[2]

    def agreement(self, update: UpdateArrived) -> float:
        """Return r_i of an update from an older model."""
        return max(cosine_of(*self._products(update)), LEAST_AGREEMENT)

    def _products(self, update: UpdateArrived) -> tuple[float, float, float]:
        motion, change = (
            ((end, 1.0), (update.base, -1.0)) for end in (self.weights, update.weights)
        )
        return products(motion, change, self.layout.parameters)

    def step(self) -> np.ndarray:
        assert self.control_change is not None
        share = 1 / self.gathered.weight
        weights = self._stepped(share)
        weights[self.layout.parameters :] = self.gathered.statistics(self.weights, share)
        taken = (
            self.options.buffer_size / len(self.known)
            if self.options.control_share == "participation"
            else 1.0
        )
        # a new array, because edges at work hold the old one
        self.control = weighted_sum((self.control, self.control_change), (1.0, taken * share))
        self.control_change = None
        self.gathered.clear()
        return weights

    def _stepped(self, share: float) -> np.ndarray:
        """Return the weights after the adaptive step; elements behind the trainable ones are not
        set.
        """
        b1 = self.options.beta1
        b2 = self.options.beta2
        rate = self.options.server_learning_rate
        eps = self.options.epsilon
        size, out = self.layout.parameters, aligned(self.weights.size)
        mean, product, step = scratch(size, 3)
        for part in blocks(size):
            change, scale, moved = (
                each[: part.stop - part.start] for each in (mean, product, step)
            )
            m, v = self.first[part], self.second[part]
            np.multiply(self.gathered.change[part], share, out=change)
            moments(change, m, v, (b1, b2), scale)
            np.sqrt(v, out=scale)
            scale += eps
            np.multiply(m, b1, out=moved)
            change *= 1 - b1
            moved += change
            moved *= rate
            moved /= scale
            np.add(self.weights[part], moved, out=out[part])
        return out
