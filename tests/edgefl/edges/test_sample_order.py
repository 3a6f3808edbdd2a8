"""The work of steps in tokens: with padding to the longest text of a batch."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from trainers import FakeTask, linear_trainer

from edgefl.edges.training import TrainingPlan, sample_order, tokens_by_step
from edgefl.hosts.virtual.pool.executor import Describer
from edgefl.protocol.messages import Assignment
from edgefl.strategies.base.strategy import LocalRule
from edgefl.streams import Streams

LENGTHS = np.array([5, 2, 9, 4, 1])
PLAN = TrainingPlan(epochs=2, batch_size=2, learning_rate=0.1)


def test_tokens_count_with_padding() -> None:
    """Batches of 2, 2 and 1 texts: (5, 2), (9, 4), (1): 10 + 18 + 1 tokens."""
    run = linear_trainer(PLAN, torch.zeros(5, 3), torch.zeros(5, 1), lengths=LENGTHS).begin(
        FakeTask({"weights": np.zeros(3, np.float32)}), LocalRule(None), {}
    )
    assert tokens_by_step(np.array([0, 1, 2, 3, 4, 4, 3, 2, 1, 0]), LENGTHS, run) == [
        0,
        10,
        28,
        29,
        37,
        55,
        60,
    ]


def test_both_clocks_count_the_same_tokens() -> None:
    """The trainer of the wall clock, and the description of the virtual clock, without a model."""
    trainer = linear_trainer(PLAN, torch.zeros(5, 3), torch.zeros(5, 1), lengths=LENGTHS)
    task = Assignment(7, 0, {"weights": np.zeros(3, np.float32)}, {})
    run = trainer.begin(task, LocalRule(None), {})

    def tokens(of: Any) -> Any:
        order = sample_order(Streams(1), "e1", 7, np.arange(5), of)
        return tokens_by_step(order, LENGTHS, of)

    described = Describer(0, "e1", PLAN, 5, tokens).begin(task, LocalRule(None), {})
    assert run.tokens == described.tokens and run.work_until(6) == run.tokens[6] > LENGTHS.sum() * 2
    described.step = run.step = 3
    assert run.work_until(6) == described.work_until(6) == run.tokens[6] - run.tokens[3]


def test_without_lengths_the_work_is_in_samples() -> None:
    trainer = linear_trainer(PLAN, torch.zeros(5, 3), torch.zeros(5, 1))
    run = trainer.begin(FakeTask({"weights": np.zeros(3, np.float32)}), LocalRule(None), {})
    assert [run.work_until(step) for step in range(7)] == [0, 2, 4, 5, 7, 9, 10]
