"""A K-asynchronous strategy driven by hand: edges deliver gradients."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from builders import Server, vector

from edgefl.strategies.base.events_and_decisions import Publish, Report, UpdateArrived
from edgefl.strategies.base.gradients import GradientRule, Gradients, GradientStep


class GradientServer(Server):
    def send(self, edge: str, *gradient: float, now: int = 0, **numbers: float) -> list[str]:
        task, version, base = self.open.pop(edge)
        return self.give(
            UpdateArrived(
                edge,
                task,
                version,
                base,
                {"gradient": vector(*gradient)},
                {"samples": 1.0, "loss": 1.0, "batch": 4.0} | numbers,
            ),
            now,
        )

    @property
    def report(self) -> dict[str, float]:
        """Return the numbers reported about the last event's step."""
        return next(decision.values for decision in self.decisions if isinstance(decision, Report))

    @property
    def stepped(self) -> bool:
        return any(isinstance(decision, Publish) for decision in self.decisions)


def gradient(*numbers: float, gap: int = 0, loss: float = 1.0, batch: float = 4.0) -> GradientRule:
    return GradientRule("e", gap, vector(*numbers), None, loss, batch)


def moved(strategy: Gradients, gradients: Sequence[GradientRule]) -> np.ndarray:
    """Return w - w_new of one step, in float64."""
    return change(strategy.step(gradients), len(gradients[0].vector))


def change(step: GradientStep, size: int) -> np.ndarray:
    return sum((factor * terms.astype(np.float64) for terms, factor in step.terms), np.zeros(size))
