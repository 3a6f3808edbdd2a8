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


class TriggerOptions(AsynchronousOptions, BoundOptions):
    """The papers' trigger: their tables have 10 devices every 10 s, the conference's text one
    every 5 s with 10 % of the devices at most.
    """

    dispatch: Literal["periodic", "replace"] = "periodic"


class FixedWeightOptions(StrategyOptions):
    """FedAsync's polynomial: alpha staleness^-a."""

    alpha: float = Field(0.6, gt=0, le=1)
    a: float = Field(0.5, gt=0)


class LearnedWeightOptions(StrategyOptions):
    """Eq. 2: xi = lambda / (sqrt(t) staleness^sigma) + iota ;  alpha = mu_alpha xi / (1 +
    mu_alpha xi).
    """

    controls: Literal["device", "shared"] = "device"  # whose lambda, sigma and iota
    mu_alpha: float = Field(3.0, gt=0)
    lambda0: float = Field(1.0, ge=0)
    sigma0: float = Field(0.5, ge=0, le=5)
    iota0: float = Field(0.03, ge=0)
    eta_lambda: float = Field(1e-4, ge=0)
    eta_sigma: float = Field(1e-4, ge=0)
    eta_iota: float = Field(1e-4, ge=0)
    most_product: float = Field(10.0, gt=0)  # |<gradient, change>| beyond it is cut


class DeviceOptions(StrategyOptions):
    """Eqs. 7-11: when a device asks, and how much of the fresher model it takes."""

    selector: Literal["learned", "h1", "h2", "h3", "fixed"] = "learned"
    # of "fixed": the finished epochs after which it asks
    refresh_point: int | None = Field(
        None, ge=1, validation_alias=AliasChoices("refresh_point", "slot")
    )
    on_request: Literal["wait", "train_on"] = "wait"
    mu_beta: float = Field(30.0, gt=0)
    gamma0: float = Field(1.0, ge=0)
    upsilon0: float = Field(0.5, ge=0, le=10)
    eta_gamma: float = Field(1e-4, ge=0)
    eta_upsilon: float = Field(1e-4, ge=0)
    most_product: float = Field(10.0, gt=0)
    baseline_rate: float = Field(0.1, gt=0, le=1)  # rho
    epsilon: float = Field(0.1, ge=0, le=1)
    q_rate: float = Field(0.1, gt=0, le=1)  # the papers' phi of eq. 8
    q_discount: float = Field(0.9, ge=0, lt=1)  # psi
    meta_rate: float = Field(1e-3, ge=0)  # eta_RL
    meta_hidden: int = Field(32, ge=1)

    @model_validator(mode="after")
    def _a_fixed_point_is_given(self) -> DeviceOptions:
        if (self.selector == "fixed") != (self.refresh_point is not None):
            raise ValueError('refresh_point: expected with selector = "fixed", and only with it')
        return self


class BothOptions(LearnedWeightOptions, DeviceOptions):
    # the gradient that controls learn from without the jump of the merge, which the papers leave in
    # it
    subtract_merge: bool = False


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
