"""Tiny trainers whose results can be computed by hand."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import nn

from edgefl.edges.training import LocalRun, Trainer, TrainingPlan
from edgefl.models.workspace import Workspace
from edgefl.strategies.base.strategy import LocalRule
from edgefl.streams import Streams

ROWS = torch.tensor([[1.0, 0.0, 0.0], [0.0, 2.0, 0.0]])
ANSWERS = torch.tensor([[1.0], [2.0]])


@dataclass(frozen=True, slots=True)
class FakeTask:
    vectors: dict[str, np.ndarray]
    number: int = 1
    version: int = 0
    numbers: dict[str, float] = field(default_factory=dict)


def half_square(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return ((outputs - targets) ** 2).sum() / 2


def linear_trainer(
    plan: TrainingPlan, inputs: torch.Tensor = ROWS, targets: torch.Tensor = ANSWERS, **kwargs: Any
) -> Trainer:
    return Trainer(
        Workspace(lambda: nn.Linear(3, 1, bias=False)),
        inputs,
        targets,
        half_square,
        plan,
        Streams(1),
        "e1",
        **kwargs,
    )


def finished(
    trainer: Trainer, rule: LocalRule, task: FakeTask, memory: dict | None = None
) -> LocalRun:
    run = trainer.begin(task, rule, memory or {})
    assert trainer.advance(run, rule) and run.failure is None
    return run
