"""The options of FedASMU's parts; each strategy takes those of its parts.

The papers do not give start values: the defaults are ours.
"""

from __future__ import annotations

from typing import Literal

from pydantic import AliasChoices, Field, model_validator

from edgefl.strategies.base.asynchronous import AsynchronousOptions
from edgefl.strategies.base.strategy import StrategyOptions


class BoundOptions(StrategyOptions):
    tau: int = Field(99, ge=1)
    """An update with a larger staleness is discarded. Staleness is gap + 1; for `fedssmu` it is the
    update's place in the round, from 1.
    """


class TriggerOptions(AsynchronousOptions, BoundOptions):
    """The papers' trigger. The tables of both have 10 devices every 10 s.

    Algorithm 1 of the journal (arXiv 2507.06031) starts them however many are at work already:
    ``concurrency = "all"``. The conference paper (arXiv 2312.05770) starts them while fewer than a
    set number are at work; its text has one device every 5 s and at most 10 % at work.
    """

    dispatch: Literal["periodic", "replace"] = "periodic"
    """`"periodic"`: start up to `clients_per_trigger` idle edges every `period_s`, as in the papers
    (in the conference paper's text: `period_s = 5.0`, `clients_per_trigger = 1`); `"replace"`: keep
    `concurrency` edges at work and replace an edge as soon as it ends. In the journal paper's
    algorithm nothing limits the edges at work: `concurrency = "all"`.
    """


class FixedWeightOptions(StrategyOptions):
    """FedAsync's polynomial: alpha staleness^-a."""

    alpha: float = Field(0.6, gt=0, le=1)
    """Mixing weight of a fresh update (gap 0), as in `fedasync`."""
    a: float = Field(0.5, gt=0)
    """Exponent of the weight alpha (gap + 1)^-a of an update, as in `fedasync`."""


class LearnedWeightOptions(StrategyOptions):
    """Eq. 2: xi = lambda / (sqrt(t) staleness^sigma) + iota ;  alpha = mu_alpha xi / (1 +
    mu_alpha xi).
    """

    controls: Literal["device", "shared"] = "device"
    """Which updates share lambda, sigma and iota: each device has its own, or one triple is passed
    on from version to version (`"shared"`).
    """
    mu_alpha: float = Field(3.0, gt=0)
    """Factor mu_alpha in the weight of an update: alpha = mu_alpha xi / (1 + mu_alpha xi), xi =
    lambda / (sqrt(t) staleness^sigma) + iota.
    """
    lambda0: float = Field(1.0, ge=0)
    """Start value of lambda in the weight of an update."""
    sigma0: float = Field(0.5, ge=0, le=5)
    """Start value of sigma, the exponent of the staleness in the weight of an update."""
    iota0: float = Field(0.03, ge=0)
    """Start value of iota, the part of xi that does not depend on staleness."""
    eta_lambda: float = Field(1e-4, ge=0)
    """Learning rate of lambda; 0: lambda is fixed."""
    eta_sigma: float = Field(1e-4, ge=0)
    """Learning rate of sigma; 0: sigma is fixed."""
    eta_iota: float = Field(1e-4, ge=0)
    """Learning rate of iota; 0: iota is fixed."""
    most_product: float = Field(10.0, gt=0)
    """Limit of |<gradient, change of the model>| from which the controls learn (lambda, sigma and
    iota, and on devices gamma and upsilon).
    """


class DeviceOptions(StrategyOptions):
    """Eqs. 7-11: when a device asks for a fresher model, and the weight of that model."""

    selector: Literal["learned", "h1", "h2", "h3", "fixed"] = "learned"
    """After which of its L local epochs a device asks for a fresher model: a `"learned"` one, the
    first (`"h1"`), L/2 rounded down (`"h2"`), L - 1 (`"h3"`), or always `refresh_point`
    (`"fixed"`).
    """
    refresh_point: int | None = Field(
        None, ge=1, validation_alias=AliasChoices("refresh_point", "slot")
    )
    """Number of finished epochs after which a device asks, from 1; only with `selector = "fixed"`.
    The last point of L epochs is L - 1; a larger value means the last point. The old name `slot` is
    accepted with a warning.
    """
    on_request: Literal["wait", "train_on"] = "wait"
    """What training does after a request. `"wait"`: it stops until the answer; `"train_on"`: it
    continues, and the model is merged at the first step that ends at or after its arrival.
    """
    mu_beta: float = Field(30.0, gt=0)
    """Factor mu_beta in the weight of a fresher model: beta = mu_beta phi / (1 + mu_beta phi), phi
    = gamma / sqrt(g) (1 - upsilon / sqrt(staleness)).
    """
    gamma0: float = Field(1.0, ge=0)
    """Start value of gamma on each device, in the weight of a fresher model."""
    upsilon0: float = Field(0.5, ge=0, le=10)
    """Start value of upsilon on each device, in the weight of a fresher model."""
    eta_gamma: float = Field(1e-4, ge=0)
    """Learning rate of gamma; 0: gamma is fixed."""
    eta_upsilon: float = Field(1e-4, ge=0)
    """Learning rate of upsilon; 0: upsilon is fixed."""
    most_product: float = Field(10.0, gt=0)
    """Limit of |<gradient, change of the model>| from which gamma and upsilon learn."""
    baseline_rate: float = Field(0.1, gt=0, le=1)
    """Rate rho of the moving average of a device's rewards: b <- (1 - rho) b + rho R."""
    epsilon: float = Field(0.1, ge=0, le=1)
    """Probability of exploration: a new device gets any refresh point, or a device makes any move
    of its refresh point. Only with `selector = "learned"`.
    """
    q_rate: float = Field(0.1, gt=0, le=1)
    """Learning rate of a device's Q-table (phi in eq. 8)."""
    q_discount: float = Field(0.9, ge=0, lt=1)
    """Discount of future rewards in a device's Q-table (psi in eq. 8)."""
    meta_rate: float = Field(1e-3, ge=0)
    """Learning rate of the meta model (eta_RL), which chooses the first refresh point of a new
    device.
    """
    meta_hidden: int = Field(32, ge=1)
    """Number of hidden units of the meta model, which chooses the first refresh point of a new
    device.
    """

    @model_validator(mode="after")
    def _a_fixed_point_is_given(self) -> DeviceOptions:
        if (self.selector == "fixed") != (self.refresh_point is not None):
            raise ValueError('refresh_point: expected with selector = "fixed", and only with it')
        return self


class BothOptions(LearnedWeightOptions, DeviceOptions):
    # the papers do not subtract it
    subtract_merge: bool = False
    """If true, the jump of a device's merge is subtracted from the gradient from which the controls
    learn.
    """


def refresh_point_warnings(options: DeviceOptions, epochs: int) -> list[str]:
    """Return warnings about options that have no effect with this number of epochs per task."""
    if epochs == 1:
        return [
            "a task of 1 epoch has no refresh point: devices never ask for a fresher model,"
            " whatever the selector (training.epochs)"
        ]
    if options.refresh_point is not None and options.refresh_point > epochs - 1:
        return [
            f"refresh_point = {options.refresh_point} is beyond the last point of {epochs} epochs:"
            f" devices ask after epoch {epochs - 1}"
        ]
    return []
