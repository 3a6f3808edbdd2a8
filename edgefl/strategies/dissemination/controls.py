"""The control parameters of FedASMU and how they learn (numbers only, no models).

Source: arXiv 2507.06031, eqs. 2-5 and 10-11, corrected. A weight is ``mu x / (1 + mu x)``: for an
arriving model with x = xi (eq. 2), for a fresher model on a device with x = phi (eq. 10). Versions
count from 1 in every square root (t = our version + 1). Staleness is ``gap + 1``, so a fresh model
has 1. The slopes are the derivatives of the weight; times <gradient, change of the model> they are
the derivatives of the loss.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite, log, sqrt

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
