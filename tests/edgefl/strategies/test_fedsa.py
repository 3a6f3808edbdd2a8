"""FedSA (reconstructed) by hand: the mixing weight, the two stages, and what the second gives
each device.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from builders import Server, make
from trainers import FakeTask, linear_trainer

from edgefl.edges.training import TrainingPlan
from edgefl.strategies.base.strategy import LocalRule
from edgefl.strategies.fedsa import FedSA, FedSAOptions, staleness_weight


def staged(**options: Any) -> Server:
    """One device at work, windows of 2 updates, half and half."""
    return Server(
        make(
            FedSA,
            **{"alpha": 0.5, "staleness_exponent": 0.0, "concurrency": 1, "window": 2} | options,
        )
    )


def test_the_weight_is_polynomial_in_the_gap_plus_1() -> None:
    """a_t = a (gap + 1)^(-p): fresh is 1."""
    assert [
        staleness_weight(FedSAOptions(alpha=0.6, staleness_exponent=0.5), gap) for gap in (0, 1, 5)
    ] == pytest.approx([0.6, 0.6 / 2**0.5, 0.6 / 6**0.5])


def test_stage_2_begins_when_the_mean_loss_stops_falling() -> None:
    """Means of windows 8, 6, 5.99: 6 is 25 % less than 8, 5.99 not 1 % less than 6."""
    story = staged()
    story.start("a")
    seen = []
    for loss in (9, 7, 6, 6, 5.98, 6.0):
        story.deliver("a", 0, 0, 0, loss=loss)
        seen.append(story.strategy.second_stage)
    assert seen == [False] * 5 + [True]
    story.deliver("a", 0, 0, 0, loss=0.1)
    story.deliver("a", 0, 0, 0, loss=0.1)
    assert story.strategy.second_stage, "and stays"


def test_stage_2_begins_at_the_given_version_at_the_latest() -> None:
    story = staged(second_stage_at=2)
    story.start("a")
    stages = []
    for loss in (9, 5, 2):
        story.deliver("a", 0, 0, 0, loss=loss)
        stages.append(story.strategy.second_stage)
    assert stages == [False, True, True] and staged(second_stage_at=0).strategy.second_stage


def test_stage_2_gives_slow_devices_fewer_epochs_and_late_ones_smaller_steps() -> None:
    """E f_i / mean f with f = 3, 1 and 0 of a, b, c; eta / sqrt(1 + gap of the last update)."""
    strategy = make(FedSA)
    strategy.known = dict.fromkeys("abc", 1)
    strategy.uploads, strategy.gaps = {"a": 3, "b": 1}, {"a": 0, "b": 3}
    assert strategy.scales("a") == pytest.approx(
        {"epochs_scale": 3 / (4 / 3), "learning_rate_scale": 1}
    )
    assert strategy.scales("b") == pytest.approx({"epochs_scale": 0.75, "learning_rate_scale": 0.5})
    assert strategy.scales("c") == {"epochs_scale": 0, "learning_rate_scale": 1}
    strategy.uploads = {}
    assert strategy.scales("a")["epochs_scale"] == 1, "no edge has delivered yet"


@pytest.mark.parametrize(
    ("scale", "steps"), [(0.0, 1), (0.3, 1), (0.5, 2), (0.6, 2), (1.0, 4), (1.7, 7)]
)
def test_the_edge_rounds_to_whole_epochs_at_least_1(scale: float, steps: int) -> None:
    """E_i = max(1, round(E f_i / mean f)) with E = 4, one step an epoch."""
    task = FakeTask(
        {"weights": np.zeros(3, np.float32)},
        numbers={"epochs_scale": scale, "learning_rate_scale": 0.5},
    )
    run = linear_trainer(TrainingPlan(4, 2, 0.5)).begin(task, LocalRule(None), {})
    assert run.steps == steps and run.learning_rate == 0.25
