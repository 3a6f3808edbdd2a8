"""How much an arriving model counts: by eq. 2 with learned controls (per device or shared), or by
FedAsync's fixed polynomial.

Controls learn from the server step that they were last used in: the arriving device's training,
taken as a gradient, says whether that step went down the loss (arXiv 2507.06031, eqs. 3-5 with the
corrections of signs, logarithm and indices).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import exp, log1p
from typing import Any, Protocol

import numpy as np

from edgefl.strategies.dissemination.controls import ServerControls, clipped, weight
from edgefl.vector_store import VectorStore
from edgefl.vector_terms import Terms, inner, mix_keeping
from edgefl.vectors import Layout, mix


@dataclass(frozen=True, slots=True, eq=False)
class Arrival:
    """A model ``new`` that has arrived, and its place in the run. Indices count the server steps
    before a model; w_0 has 0.
    """

    edge: str
    new: np.ndarray
    started: int  # o: index of the model that the device began from
    made: int  # index of the model whose making the shared controls learn from
    t: int  # what eq. 2 calls t: from 1
    staleness: int  # t - o + 1 of the paper: 1 for a fresh model
    trained: Terms  # their sum is where the device began minus where it ended, ...
    # ... after so much learning rate times steps: the quotient is its gradient; 0: unknown
    path: float


class Weighing(Protocol):
    """One way to weigh what arrives."""

    def mixed(self, arrival: Arrival, model: np.ndarray) -> tuple[np.ndarray, dict[str, float]]:
        """The model after ``model``, and the numbers to report."""

    def forget(self, live: Iterable[int]) -> None:
        """No device will come back from any model but those of these indices."""


class FixedWeight:
    """alpha staleness^-a: FedAsync's polynomial, for the ablations."""

    def __init__(self, options: Any) -> None:
        self.options = options

    def mixed(self, arrival: Arrival, model: np.ndarray) -> tuple[np.ndarray, dict[str, float]]:
        alpha = self.options.alpha * arrival.staleness**-self.options.a
        return mix(model, arrival.new, alpha), {"alpha": alpha}

    def forget(self, live: Iterable[int]) -> None:
        """Keeps nothing."""


@dataclass(frozen=True, slots=True, eq=False)
class WeightedStep:
    """A server step w_{q+1} = w_q + alpha_q (W - w_q): what its weight was made of."""

    index: int  # q
    controls: ServerControls
    slopes: tuple[float, float, float]
    alpha: float
    # w_q and w_{q+1}, shared with the devices that train from them (shared mode)
    older: np.ndarray | None = None
    newer: np.ndarray | None = None


class Learned:
    """What both modes have in common: eq. 2, and one step of the controls."""

    def __init__(self, options: Any, layout: Layout) -> None:
        self.options = options
        self.parameters = layout.parameters
        self.rates = (options.eta_lambda, options.eta_sigma, options.eta_iota)
        self.first = ServerControls(options.lambda0, options.sigma0, options.iota0)

    def product(self, arrival: Arrival, change: Terms, scale: float) -> float:
        """p = <gradient, W - w_q> with ``change`` = scale (W - w_q), clipped; over trainable
        elements only.
        """
        return clipped(
            inner(arrival.trained, change, self.parameters) / (arrival.path * scale),
            self.options.most_product,
        )

    def step(
        self, arrival: Arrival, index: int, controls: ServerControls
    ) -> tuple[WeightedStep, dict[str, float]]:
        """The step that eq. 2 makes of ``controls``, and what to report of it."""
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
    """Each device has its own controls and its own last step. Of models a device's last W - w_q is
    kept, in a file without a name.

    Other devices' steps behind it have worn it down: d w_o / d alpha_q = prod_{k=q+1}^{o-1} (1 -
    alpha_k) (W - w_q).
    """

    def __init__(self, options: Any, layout: Layout) -> None:
        super().__init__(options, layout)
        self.last: dict[str, WeightedStep] = {}
        self.changes = VectorStore(layout.parameters, 'controls = "shared"')
        self.worn = [0.0]  # at v: sum_{k < v} log(1 - alpha_k)

    def mixed(self, arrival: Arrival, model: np.ndarray) -> tuple[np.ndarray, dict[str, float]]:
        index, last, change = (
            len(self.worn) - 1,
            self.last.get(arrival.edge),
            self.changes.row(arrival.edge),
        )
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

    def forget(self, live: Iterable[int]) -> None:
        """A device's last step stays: it may be selected again at any time."""


class Shared(Learned):
    """One triple a version: that of a new version starts from the one that made the model judged
    (``made``), and learns how that went.

    Of models the older half of each live version is kept, by reference. Of two updates from the
    same version both branch off its triple.
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
    """The mode that ``options.controls`` names."""
    return PerDevice(options, layout) if options.controls == "device" else Shared(options, layout)
