"""FedAC by hand: control variates on the device and in messages, weights by angle, the adaptive
step (Zang et al. 2024).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from builders import Server, make, vector
from trainers import FakeTask, finished, linear_trainer

from edgefl.edges.training import TrainingPlan
from edgefl.strategies.base.events_and_decisions import UpdateArrived
from edgefl.strategies.base.strategy import Strategy
from edgefl.strategies.fedac import Controlled, FedAC, FedACOptions


# ------------------------------------------------------------------ device
def sent(
    control: tuple[float, ...],
    memory: dict[str, Any],
    epochs: int = 1,
    rate: float = 0.5,
    momentum: float = 0.0,
    **options: Any,
) -> tuple[dict[str, list[float]], list[float]]:
    """Take steps from w = 0, where the gradient is (-1, -4, 0): (update, new C_i)."""
    taught = linear_trainer(TrainingPlan(epochs, 2, rate, momentum=momentum))
    rule = Controlled(FedACOptions(**options))
    task = FakeTask({"weights": np.zeros(3, np.float32), "control": vector(*control)})
    run = finished(taught, rule, task, memory)
    vectors, _ = taught.payload(run, rule)
    kept = taught.remembered(run, rule)
    assert set(kept) == {"control"}, "the correction is of this task alone"
    return {name: value.tolist() for name, value in vectors.items()}, kept["control"].tolist()


def test_the_first_time_it_is_a_plain_step_and_the_gradient_is_kept() -> None:
    """C = C_i = 0: C_i <- (w_start - w_end) / (n eta) = g; dC = g."""
    up, kept = sent((0, 0, 0), {})
    assert up == {"weights": [0.5, 2.0, 0.0], "control": [-1, -4, 0]} and kept == [-1, -4, 0]


def test_every_step_is_corrected() -> None:
    """C - C_i = (0.5, 0, 2): g + C - C_i = (-0.5, -4, 2), w = -0.5 of that. C_i <- -w / 0.5 -
    (0.5, 0, 2) = (-1, -4, 0) = g.
    """
    up, kept = sent((1, 0, 2), {"control": vector(0.5, 0, 0)})
    assert up == {"weights": [0.25, 2.0, -1.0], "control": [-1.5, -4, 0]} and kept == [-1, -4, 0]


def test_the_mean_is_over_steps_not_over_epochs_and_the_correction_is_in_each() -> None:
    """Samples (1, 0, 0) -> 1 and (0, 2, 0) -> 2, rate 0.25. C - C_i = (1, 0, 0): g1 + c = (0, -4,
    0), w = (0, 1, 0); g2 + c = (0, 0, 0): both residuals are (-1, 0). w_end = (0, 1, 0) and C_i =
    -w_end / (2 x 0.25) - c = (-1, -2, 0), the mean of (-1, -4, 0) and (-1, 0, 0).
    """
    up, kept = sent((1, 0, 0), {}, epochs=2, rate=0.25)
    assert up["weights"] == [0, 1, 0] and kept == [-1, -2, 0] == up["control"]


def test_once_after_training_as_in_the_re_implementation() -> None:
    """w goes (0.25, 1, 0), (0.4375, 1, 0); then - 0.25 (1, 0, 0). The mean gradient is -w / 0.5
    = (-0.875, -2, 0) without the correction.
    """
    up, kept = sent((1, 0, 0), {}, epochs=2, rate=0.25, correction="once")
    assert up["weights"] == [0.1875, 1, 0] and kept == [-0.875, -2, 0] == up["control"]


@pytest.mark.parametrize("correction", ["every step", "once"])
def test_with_momentum_it_is_the_mean_of_the_gradients_themselves(correction: str) -> None:
    """w = (0.25, 1, 0) after (-1, -4, 0), where the gradient is (-0.75, 0, 0). With v = g2 + 0.5 g1
    w_end = (0.5625, 1.5, 0), and -w_end / 0.5 would be 1.3 and 1.5 times the mean.
    """
    up, kept = sent((0, 0, 0), {}, epochs=2, rate=0.25, momentum=0.5, correction=correction)
    assert up["weights"] == [0.5625, 1.5, 0] and kept == [-0.875, -2, 0] == up["control"]


# ------------------------------------------------------------------ server
class Angles(Server):
    """Updates have a change of their device's control variate, (0, 0, 1) by default."""

    def bring(self, edge: str, *by: float, control: tuple[float, ...] = (0, 0, 1)) -> list[str]:
        task, version, base = self.open.pop(edge)
        vectors = {"weights": base + vector(*by), "control": vector(*control)}
        return self.give(UpdateArrived(edge, task, version, base, vectors, {"samples": 1.0}))


def angles(**options: Any) -> Angles:
    """M = 2, two at work, and moments of which the first step is 1.5 eta sign(D): mh = 0.75 D,
    sqrt(v) = 0.5 |D|.
    """
    return Angles(
        make(
            FedAC,
            **{
                "buffer_size": 2,
                "concurrency": 2,
                "server_learning_rate": 2.0,
                "beta1": 0.5,
                "beta2": 0.75,
            }
            | options,
        )
    )


def control(strategy: Strategy) -> list[float]:
    return strategy.control.tolist()


def test_the_adaptive_step_looks_ahead() -> None:
    """D = (4, 0, 0): m = 2, v = 0.25 x 16 = 4, mh = 0.5 x 2 + 0.5 x 4 = 3, w = 2 x 3 / 2 = 3.
    D = (8, 0, 0): m = 1 + 4 = 5, v = 3 + 16 = 19, mh = 2.5 + 4 = 6.5; v without the maximum of
    FADAS.
    """
    story = angles()
    story.start("a", "b")
    story.bring("a", 6, 0, 0)
    assert story.bring("b", 2, 0, 0)[0] == "publish 3 0 0"
    assert story.strategy.first.tolist() == [2, 0, 0] and story.strategy.second.tolist() == [
        4,
        0,
        0,
    ]
    story.bring("b", 8, 0, 0)
    story.bring("b", 8, 0, 0)
    assert story.weights == pytest.approx([3 + 2 * 6.5 / 19**0.5, 0, 0])


def test_r_is_the_cosine_with_the_motion_since_the_start_at_least_a_tenth_and_1_if_fresh() -> None:
    """w has moved by (3, 0, 0) since a began. D = (0, 5, 0): cos 0 -> 0.1; (-1, 0, 0): cos -1 ->
    0.1; (3, 4, 0): cos 0.6.
    """
    strategy = angles().strategy
    strategy.weights = vector(3, 0, 0)
    for by, expected in (((0, 5, 0), 0.1), ((-1, 0, 0), 0.1), ((3, 4, 0), 0.6), ((2, 0, 0), 1.0)):
        update = UpdateArrived(
            "a", 0, 0, vector(0, 0, 0), {"weights": vector(*by), "control": vector(0, 0, 0)}, {}
        )
        assert strategy.agreement(update) == pytest.approx(expected)
        for gap, weight in ((0, 1.0), (1, expected), (5, expected)):
            strategy.gathered.clear()
            strategy.add(update, gap)
            assert strategy.gathered.weight == pytest.approx(weight), (
                "a gap of 0 has no motion to compare with"
            )


@pytest.mark.parametrize(
    ("share", "once", "twice"), [("participation", 1.5, 2.5), ("whole", 3.0, 5.0)]
)
def test_the_control_variate_as_scaffold_takes_it(share: str, once: float, twice: float) -> None:
    """M = 2 of N = 4, C_i = 1, 1, 2, 2 and then 2, 2, 3, 3. With M / N C is their mean, 1.5 and
    2.5; the whole of dC makes it N / M = 2 times that.
    """
    story = angles(control_share=share, concurrency=4)
    story.start("a", "b", "c", "d")
    for edge, change in zip("abcd", (1, 1, 2, 2)):
        story.bring(edge, 1, 0, 0, control=(0, 0, change))
    assert control(story.strategy) == [0, 0, once]
    for edge in sorted(story.open):
        story.bring(edge, 1, 0, 0, control=(0, 0, 1))
    assert control(story.strategy) == pytest.approx([0, 0, twice])


def test_an_update_without_its_control_variate_is_discarded() -> None:
    story = angles()
    story.start("a", "b")
    assert story.move("a", 1, 0, 0)[0] == "discard 0: no control variate"
    assert story.strategy.buffered == 0 and story.strategy.running == {"a": 0, "b": 0}
    assert (
        story.strategy.update_size("a", "control")
        == 3
        == story.strategy.update_size("a", "weights")
    )
