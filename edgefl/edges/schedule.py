"""The learning rate of local training over its steps: warm-up, then constant, linear or cosine."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Schedule:
    """A factor of the learning rate for each step, the first of which has number 0.

    It grows evenly over ``warmup_steps``, where the step after them has factor 1. Then it falls to
    ``end_share`` at step ``total_steps`` and stays there; ``"constant"``: it stays 1.
    ``total_steps`` None: the steps of the task.
    """

    kind: Literal["constant", "linear", "cosine"] = "constant"
    warmup_steps: int = 0
    total_steps: int | None = None
    end_share: float = 0.0

    def factor(self, step: int, task_steps: int) -> float:
        """Return the factor at ``step``; ``task_steps``: steps of the whole task."""
        if step < self.warmup_steps:
            return (step + 1) / (self.warmup_steps + 1)
        if self.kind == "constant":
            return 1.0
        total = task_steps if self.total_steps is None else self.total_steps
        done = min((step - self.warmup_steps) / max(total - self.warmup_steps, 1), 1.0)
        left = 1.0 - done if self.kind == "linear" else (1.0 + math.cos(math.pi * done)) / 2
        return self.end_share + (1.0 - self.end_share) * left
