"""A trainer that trains nothing: a task takes its emulated time and gives back the model that it
was given (``trainer = "none"``).
"""

from __future__ import annotations

from typing import Callable

from edgefl.edges.local_run import LocalRun
from edgefl.edges.trainer import Trainer
from edgefl.strategies.base.local_rule import LocalRule


class Still(Trainer):
    """Steps are counted and not done, so that what depends on time and turns alone can be run
    for 100,000 slots.
    """

    def _advance(
        self, run: LocalRun, rule: LocalRule, stop: int, deadline: Callable[[], bool] | None
    ) -> bool:
        run.step = max(run.step, stop)
        if not rule.moves and run.gradient is None:
            run.gradient = run.trainable.new_zeros(run.parameters)
        return True
