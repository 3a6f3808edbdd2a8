"""The weight of an arriving model: eq. 2 with learned controls, or FedAsync's fixed polynomial.

Controls are per device or shared. They learn from the server step in which they were last used: the
arriving device's training, used as a gradient, shows whether that step reduced the loss (arXiv
2507.06031, eqs. 3-5 with corrected signs, logarithm and indices).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import exp, log1p
from typing import Any

import numpy as np

from edgefl.strategies.base.events_and_decisions import UpdateArrived
from edgefl.strategies.dissemination.controls import ServerControls, clipped, weight
from edgefl.vector_store import VectorStore
from edgefl.vector_terms import Terms, inner, mix_keeping
from edgefl.vectors import Layout, mix


@dataclass(frozen=True, slots=True, eq=False)
class Arrival:
    """A model ``new`` that has arrived, and its place in the run.

    The index of a model is the number of server steps before it; w_0 has 0.
    """

    edge: str
    new: np.ndarray
    started: int  # o: index of the model from which the device started
    made: int  # index of the model from whose server step the shared controls learn
    t: int  # t of eq. 2, from 1
    staleness: int  # t - o + 1 of the paper: 1 for a fresh model
    trained: Terms  # their sum is the device's start minus its end
    # learning rate times steps: the gradient is the sum of ``trained`` divided by it; 0: unknown
    path: float


class Weighing:
    """Base of the ways to weight arriving models."""

    def mixed(self, arrival: Arrival, model: np.ndarray) -> tuple[np.ndarray, dict[str, float]]:
        """Return the model after ``model``, and the numbers to report."""
        raise TypeError(f"{type(self).__name__} must define mixed")

    def forget(self, live: Iterable[int]) -> None:
        """Free what belongs to models that no device works on; ``live``: indices of the others."""


class FixedWeight(Weighing):
    """The weight alpha staleness^-a: FedAsync's polynomial, for the ablations."""

    def __init__(self, options: Any) -> None:
        self.options = options

    def mixed(self, arrival: Arrival, model: np.ndarray) -> tuple[np.ndarray, dict[str, float]]:
        alpha = self.options.alpha * arrival.staleness**-self.options.a
        return mix(model, arrival.new, alpha), {"alpha": alpha}


@dataclass(frozen=True, slots=True, eq=False)
class WeightedStep:
    """A server step w_{q+1} = w_q + alpha_q (W - w_q), with the controls of its weight."""

    index: int  # q
    controls: ServerControls
    slopes: tuple[float, float, float]
    alpha: float
    # w_q and w_{q+1}, by reference (shared mode)
    older: np.ndarray | None = None
    newer: np.ndarray | None = None


class Learned(Weighing):
    """Base of both modes: eq. 2, and one step of the controls."""

    def __init__(self, options: Any, layout: Layout) -> None:
        self.options = options
        self.parameters = layout.parameters
        self.rates = (options.eta_lambda, options.eta_sigma, options.eta_iota)
        self.first = ServerControls(options.lambda0, options.sigma0, options.iota0)

    def product(self, arrival: Arrival, change: Terms, scale: float) -> float:
        """Return p = <gradient, W - w_q>, limited, with ``change`` = scale (W - w_q).

        Trainable elements only.
        """
        return clipped(
            inner(arrival.trained, change, self.parameters) / (arrival.path * scale),
            self.options.most_product,
        )

    def step(
        self, arrival: Arrival, index: int, controls: ServerControls
    ) -> tuple[WeightedStep, dict[str, float]]:
        """Return the step that eq. 2 gives for ``controls``, and the numbers to report."""
        xi = controls.xi(self.options.mu_alpha, arrival.t, arrival.staleness)
        alpha = weight(self.options.mu_alpha, xi)
        slopes = controls.slopes(self.options.mu_alpha, arrival.t, arrival.staleness)
        return WeightedStep(index, controls, slopes, alpha), {
            "alpha": alpha,
            "xi": xi,
            "lambda": controls.lam,
            "sigma": controls.sigma,
            "iota": controls.iota,
        }


class PerDevice(Learned):
    """Each device has its own controls and its own last step.

    The last W - w_q of each device is kept in an unnamed temporary file, because the device may be
    selected again. Later steps of other devices reduce its effect: d w_o / d alpha_q =
    prod_{k=q+1}^{o-1} (1 - alpha_k) (W - w_q).
    """

    def __init__(self, options: Any, layout: Layout) -> None:
        super().__init__(options, layout)
        self.last: dict[str, WeightedStep] = {}
        self.changes = VectorStore(layout.parameters, 'controls = "shared"')
        self.worn = [0.0]  # at v: sum_{k < v} log(1 - alpha_k)

    def mixed(self, arrival: Arrival, model: np.ndarray) -> tuple[np.ndarray, dict[str, float]]:
        index = len(self.worn) - 1
        last = self.last.get(arrival.edge)
        change = self.changes.row(arrival.edge)
        controls, product = self.first if last is None else last.controls, 0.0
        if last is not None and arrival.started > last.index and arrival.path > 0:
            left = exp(self.worn[arrival.started] - self.worn[last.index + 1])
            product = left * self.product(arrival, ((change, 1.0),), 1.0)
            controls = controls.moved(last.slopes, product, self.rates)
        step, values = self.step(arrival, index, controls)
        self.last[arrival.edge] = step
        self.worn.append(self.worn[-1] + log1p(-step.alpha))
        return mix_keeping(model, arrival.new, step.alpha, change), values | {
            "product": product,
            "vectors": len(self.changes),
        }


class Shared(Learned):
    """Each version has one triple of controls.

    The triple of a new version starts from the one that made the model ``made``, and learns whether
    that step reduced the loss. Two updates from the same version both start from its triple. The
    models before and after the step of each live version are kept, by reference.
    """

    def __init__(self, options: Any, layout: Layout) -> None:
        super().__init__(options, layout)
        self.steps: dict[int, WeightedStep] = {}  # by the index of the model that they made
        self.index = 0

    def mixed(self, arrival: Arrival, model: np.ndarray) -> tuple[np.ndarray, dict[str, float]]:
        made = self.steps.get(arrival.made)
        controls, product = self.first if made is None else made.controls, 0.0
        if made is not None and arrival.path > 0:
            assert made.newer is not None and made.older is not None
            product = self.product(arrival, ((made.newer, 1.0), (made.older, -1.0)), made.alpha)
            controls = controls.moved(made.slopes, product, self.rates)
        step, values = self.step(arrival, self.index, controls)
        after = mix(model, arrival.new, step.alpha)
        self.index += 1
        self.steps[self.index] = WeightedStep(
            step.index, controls, step.slopes, step.alpha, model, after
        )
        return after, values | {"product": product, "vectors": len(self.steps)}

    def forget(self, live: Iterable[int]) -> None:
        kept = {*live, self.index}
        self.steps = {index: step for index, step in self.steps.items() if index in kept}


def weighing(options: Any, layout: Layout) -> PerDevice | Shared:
    """Return the weighting for the mode in ``options.controls``."""
    return PerDevice(options, layout) if options.controls == "device" else Shared(options, layout)


def arrival(
    update: UpdateArrived,
    sent: tuple[int, np.ndarray] | None,
    started: int,
    made: int,
    t: int,
    staleness: int,
) -> Arrival:
    """Return the update as an Arrival, with the gradient g = (w_o - w_i) / (eta n) of n steps.

    The paper prints the negative of g. ``sent``: version and model that the device requested and
    merged after m steps. Then the jump of the merge is left out: w_i = (1 - beta) (w_o - A) + beta
    w_g - B, so g = ((1 - beta) w_o + beta w_g - w_i) / (eta ((1 - beta) m + n - m)).
    """
    said = update.numbers
    steps = said.get("steps", 0.0)
    rate = said.get("learning_rate", 0.0)
    beta = said.get("beta", 0.0)
    trained: Terms = ((update.base, 1.0), (update.weights, -1.0))
    if sent is not None and said.get("fresh_version") == sent[0] and 0 < beta < 1:
        trained = ((update.base, 1.0 - beta), (sent[1], beta), (update.weights, -1.0))
        steps -= beta * min(said.get("merge_step", 0.0), steps)
    return Arrival(
        update.edge, update.weights, started, made, t, staleness, trained, max(rate * steps, 0.0)
    )
