"""The weight of an arriving model: eq. 2 with learned controls, or FedAsync's fixed polynomial.

Controls are per device or shared. They learn from the server step in which they were last used: the
arriving device's training, used as a gradient, shows whether that step reduced the loss (arXiv
2507.06031, eqs. 2-5 and 10-11, with corrected signs, logarithm and indices).

A weight is ``mu x / (1 + mu x)``: for an arriving model with x = xi (eq. 2), for a fresher model on
a device with x = phi (eq. 10). Versions count from 1 in every square root (t = our version + 1).
Staleness is ``gap + 1``, so a fresh model has 1. The slopes are the derivatives of the weight;
times <gradient, change of the model> they are the derivatives of the loss.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import exp, isfinite, log, log1p, sqrt
from typing import Any

import numpy as np

from edgefl.strategies.base.events_and_decisions import UpdateArrived
from edgefl.vectors import Layout, Terms, VectorStore, inner, mix, mix_keeping

LEAST_ALPHA = 1e-3  # theorem 1 needs a positive lower bound of the weight, but gives no value
MOST_ALPHA = 1 - 1e-6  # a weight of 1 would forget the past
MOST_PHI = 10.0
MOST = 1e3  # upper bound of lambda, iota and gamma
MOST_SIGMA = 5.0
MOST_UPSILON = 10.0


def weight(mu: float, x: float) -> float:
    """Return mu x / (1 + mu x), for x >= 0."""
    return mu * x / (1.0 + mu * x)


def steepness(mu: float, x: float) -> float:
    """Return d weight / dx = mu / (1 + mu x)^2."""
    return mu / (1.0 + mu * x) ** 2


def within(value: float, least: float, most: float) -> float:
    return min(max(value, least), most)


@dataclass(frozen=True, slots=True)
class ServerControls:
    """lambda, sigma and iota of eq. 2."""

    lam: float
    sigma: float
    iota: float

    def xi(self, mu: float, t: int, staleness: int) -> float:
        """Return lambda / (sqrt(t) staleness^sigma) + iota, limited so that the weight is in
        [LEAST_ALPHA, MOST_ALPHA].
        """
        raw = self.lam / (sqrt(t) * staleness**self.sigma) + self.iota
        return within(raw, _at(LEAST_ALPHA, mu), _at(MOST_ALPHA, mu))

    def slopes(self, mu: float, t: int, staleness: int) -> tuple[float, float, float]:
        """Return d alpha / d (lambda, sigma, iota).

        If xi is at a limit, these are the slopes at the limit, so that the controls can leave it.
        """
        steep = steepness(mu, self.xi(mu, t, staleness))
        damped = steep / (sqrt(t) * staleness**self.sigma)
        return damped, -self.lam * log(staleness) * damped, steep

    def moved(
        self, slopes: tuple[float, float, float], product: float, rates: tuple[float, float, float]
    ) -> ServerControls:
        """Return the controls after a gradient step (eq. 3): theta <- theta - eta dF/dtheta.

        Each stays in its range. ``product`` = <gradient, change of the model>.
        """
        lam, sigma, iota = (
            value - rate * slope * product
            for value, slope, rate in zip((self.lam, self.sigma, self.iota), slopes, rates)
        )
        return ServerControls(
            within(lam, 0.0, MOST), within(sigma, 0.0, MOST_SIGMA), within(iota, 0.0, MOST)
        )


@dataclass(frozen=True, slots=True)
class DeviceControls:
    """gamma and upsilon of eq. 10."""

    gamma: float
    upsilon: float

    def phi(self, t: int, staleness: int) -> float:
        """Return gamma / sqrt(t) (1 - upsilon / sqrt(staleness)), at least 0.

        Below 0, beta would be negative, or have a pole.
        """
        return within(self.gamma / sqrt(t) * (1.0 - self.upsilon / sqrt(staleness)), 0.0, MOST_PHI)

    def slopes(self, mu: float, t: int, staleness: int) -> tuple[float, float]:
        """Return d beta / d (gamma, upsilon)."""
        steep = steepness(mu, self.phi(t, staleness)) / sqrt(t)
        return steep * (1.0 - self.upsilon / sqrt(staleness)), -steep * self.gamma / sqrt(staleness)

    def moved(
        self, slopes: tuple[float, float], product: float, rates: tuple[float, float]
    ) -> DeviceControls:
        """Return the controls after a gradient step (eq. 11). Each stays in its range.

        ``product`` = <gradient at the merged model, fresh model - model before the merge>.
        """
        gamma, upsilon = (
            value - rate * slope * product
            for value, slope, rate in zip((self.gamma, self.upsilon), slopes, rates)
        )
        return DeviceControls(within(gamma, 0.0, MOST), within(upsilon, 0.0, MOST_UPSILON))


def clipped(product: float, most: float) -> float:
    """Return ``product`` limited to +-``most``; 0 if it is not finite, so nothing is learned."""
    return within(product, -most, most) if isfinite(product) else 0.0


def _at(alpha: float, mu: float) -> float:
    """Return the x whose weight is ``alpha``."""
    return alpha / (mu * (1.0 - alpha))


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
    numbers = update.numbers
    steps = numbers.get("steps", 0.0)
    rate = numbers.get("learning_rate", 0.0)
    beta = numbers.get("beta", 0.0)
    trained: Terms = ((update.base, 1.0), (update.weights, -1.0))
    if sent is not None and numbers.get("fresh_version") == sent[0] and 0 < beta < 1:
        trained = ((update.base, 1.0 - beta), (sent[1], beta), (update.weights, -1.0))
        steps -= beta * min(numbers.get("merge_step", 0.0), steps)
    return Arrival(
        update.edge, update.weights, started, made, t, staleness, trained, max(rate * steps, 0.0)
    )
