"""The options of FedASMU's parts; each scheme takes those of the parts that it has. Start values
the papers do not give: they are ours.
"""

from __future__ import annotations

from typing import Literal

from pydantic import AliasChoices, Field, model_validator

from edgefl.strategies.base.asynchronous import AsynchronousOptions
from edgefl.strategies.base.strategy import StrategyOptions


class BoundOptions(StrategyOptions):
    tau: int = Field(99, ge=1)  # an update with a staleness (gap + 1) above it is discarded
    """An update whose staleness (gap + 1; `fedssmu`: its place in the round) is above it is
    discarded.
    """


class TriggerOptions(AsynchronousOptions, BoundOptions):
    """The papers' trigger: their tables have 10 devices every 10 s, the conference's text one
    every 5 s with 10 % of the devices at most.
    """

    dispatch: Literal["periodic", "replace"] = "periodic"
    """As for `fedasync`, with its `concurrency`, `period_s`, `clients_per_trigger`,
    `max_staleness`: ten every 10 s; the conference's one every 5 s is `period_s = 5.0`,
    `clients_per_trigger = 1`.
    """


class FixedWeightOptions(StrategyOptions):
    """FedAsync's polynomial: alpha staleness^-a."""

    alpha: float = Field(0.6, gt=0, le=1)
    """Fixed weight alpha (gap + 1)^-a, as of `fedasync`."""
    a: float = Field(0.5, gt=0)
    """Fixed weight alpha (gap + 1)^-a, as of `fedasync`."""


class LearnedWeightOptions(StrategyOptions):
    """Eq. 2: xi = lambda / (sqrt(t) staleness^sigma) + iota ;  alpha = mu_alpha xi / (1 +
    mu_alpha xi).
    """

    controls: Literal["device", "shared"] = "device"  # whose lambda, sigma and iota
    """Whose lambda, sigma, iota: each device's own, or `"shared"`: one triple, from version to
    version.
    """
    mu_alpha: float = Field(3.0, gt=0)
    """Alpha = mu xi / (1 + mu xi), xi = lambda / (sqrt(t) staleness^sigma) + iota."""
    lambda0: float = Field(1.0, ge=0)
    """Where the three start."""
    sigma0: float = Field(0.5, ge=0, le=5)
    """Where the three start."""
    iota0: float = Field(0.03, ge=0)
    """Where the three start."""
    eta_lambda: float = Field(1e-4, ge=0)
    """Their learning rates; 0: they stand still."""
    eta_sigma: float = Field(1e-4, ge=0)
    """Their learning rates; 0: they stand still."""
    eta_iota: float = Field(1e-4, ge=0)
    """Their learning rates; 0: they stand still."""
    most_product: float = Field(10.0, gt=0)  # |<gradient, change>| beyond it is cut
    """Largest product of a gradient and a model's change that they learn from (also gamma and
    upsilon).
    """


class DeviceOptions(StrategyOptions):
    """Eqs. 7-11: when a device asks, and how much of the fresher model it takes."""

    selector: Literal["learned", "h1", "h2", "h3", "fixed"] = "learned"
    """When a device asks: learned, `"h1"` after the first of L epochs, `"h2"` after L/2 (rounded
    down), `"h3"` after L - 1, or `"fixed"`.
    """
    # of "fixed": the finished epochs after which it asks
    refresh_point: int | None = Field(
        None, ge=1, validation_alias=AliasChoices("refresh_point", "slot")
    )
    """Of `"fixed"`: the number of finished epochs after which it asks, from 1; L - 1 of L epochs is
    the last, and so is what lies beyond. `slot`, its old name, is accepted with a warning.
    """
    on_request: Literal["wait", "train_on"] = "wait"
    """Training stands still until the answer; `"train_on"`: it goes on, and the model is
    merged at the first step that ends at or after its arrival.
    """
    mu_beta: float = Field(30.0, gt=0)
    """Beta = mu phi / (1 + mu phi), phi = gamma / sqrt(g) (1 - upsilon / sqrt(staleness))."""
    gamma0: float = Field(1.0, ge=0)
    """Where the two start, on each device."""
    upsilon0: float = Field(0.5, ge=0, le=10)
    """Where the two start, on each device."""
    eta_gamma: float = Field(1e-4, ge=0)
    """Their learning rates."""
    eta_upsilon: float = Field(1e-4, ge=0)
    """Their learning rates."""
    most_product: float = Field(10.0, gt=0)
    """Largest product of a gradient and a model's change that gamma and upsilon learn from."""
    baseline_rate: float = Field(0.1, gt=0, le=1)  # rho
    """By which the mean of rewards follows the rewards."""
    epsilon: float = Field(0.1, ge=0, le=1)
    """Chance of trying any refresh point, or any move."""
    q_rate: float = Field(0.1, gt=0, le=1)  # the papers' phi of eq. 8
    """Of a device's table of moves."""
    q_discount: float = Field(0.9, ge=0, lt=1)  # psi
    """Of a device's table of moves."""
    meta_rate: float = Field(1e-3, ge=0)  # eta_RL
    """Learning rate and width of the meta model."""
    meta_hidden: int = Field(32, ge=1)
    """Learning rate and width of the meta model."""

    @model_validator(mode="after")
    def _a_fixed_point_is_given(self) -> DeviceOptions:
        if (self.selector == "fixed") != (self.refresh_point is not None):
            raise ValueError('refresh_point: expected with selector = "fixed", and only with it')
        return self


class BothOptions(LearnedWeightOptions, DeviceOptions):
    # the gradient that controls learn from without the jump of the merge, which the papers leave in
    # it
    subtract_merge: bool = False
    """The controls learn from a device's gradient without the jump that its merge made."""


def refresh_point_warnings(options: DeviceOptions, epochs: int) -> list[str]:
    """What has no effect with so many epochs a task."""
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
