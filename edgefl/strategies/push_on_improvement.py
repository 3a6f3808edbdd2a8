"""Push on improvement: FedAsync; when the loss has dropped, devices in training get the new model.

The first evaluated model, and then the model of each push, sets the loss to compare with.
"""

from __future__ import annotations

from math import isfinite
from typing import Any, Literal

from pydantic import Field

from edgefl.strategies.base.events_and_decisions import Decision, Evaluated, Report
from edgefl.strategies.dissemination.pushed import Pushing, PushingOptions


class PushOnImprovementOptions(PushingOptions):
    least_drop: float = Field(0.05, gt=0, lt=1)
    """Share of 1 by which the loss must have dropped since the last push."""
    loss: Literal["test_loss", "error"] = "test_loss"
    """The loss: `"test_loss"`, or the `"error"`, 1 - accuracy."""


class PushOnImprovement(Pushing):
    """With L the loss at the last push: at an evaluation with loss <= (1 - x) L, the current model
    goes to all edges in training that have an older one; L <- loss.

    Only a model that is evaluated can lead to a push: see ``[evaluation]``.
    """

    Options = PushOnImprovementOptions
    hears_evaluations = True

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.reference: float | None = None  # L

    def evaluated(self, event: Evaluated, now: int) -> list[Decision]:
        scores, options = event.scores, self.options
        loss = scores["test_loss"] if options.loss == "test_loss" else 1.0 - scores["accuracy"]
        if not isfinite(loss):
            return []
        before = self.reference
        if before is not None and not loss <= (1.0 - options.least_drop) * before < before:
            return []
        self.reference = loss
        edges = [] if before is None else sorted(self.behind())
        return [Report({"loss": loss, "edges": float(len(edges))}), *self.push(edges)]
