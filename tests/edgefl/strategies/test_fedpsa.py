"""FedPSA (reconstructed) by hand: sketches, temperature, weights, and the job's sensitivities
(arXiv 2602.15337).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from builders import EXAMPLES, Server, experiment, make, vector

from edgefl.clocks.setup.learning import Learning, learning
from edgefl.jobs import Sensitivity
from edgefl.strategies.base.events_and_decisions import JobDone, JobFailed, Publish, Report, RunJob
from edgefl.strategies.fedpsa import FedPSA, cosine_of_sketches, softmax
from edgefl.streams import Streams


class Sketching(Server):
    """Two updates a step, three at work; M_0 after two updates, gamma 1, delta 1."""

    def __init__(self, **options: Any) -> None:
        small = {"buffer_size": 2, "concurrency": 3, "queue_length": 2, "gamma": 1.0, "delta": 1.0}
        super().__init__(make(FedPSA, **small | options))

    def sketched(self, name: str, *sketch: float) -> list[str]:
        return self.give(JobDone(name, {"sketch": vector(*sketch)}))

    def jobs(self) -> dict[str, Any]:
        return {each.name: each.job for each in self.decisions if isinstance(each, RunJob)}

    def report(self) -> dict[str, float]:
        return next(each.values for each in self.decisions if isinstance(each, Report))


def full(**options: Any) -> Sketching:
    """a moved by (2, 0, 0) and b by (0, 4, 0); the global model's sketch is (1, 0)."""
    story = Sketching(**options)
    story.start("a", "b", "c")
    story.sketched("model 0", 1, 0)
    story.move("a", 2, 0, 0)
    story.move("b", 0, 4, 0)
    return story


# ------------------------------------------------------------------ weights
def test_the_weights_are_a_softmax_of_the_cosines() -> None:
    """p_i = softmax(c_i / T)."""
    high, low = math.exp(1 / 2), math.exp(-1 / 2)
    assert softmax([1.0, -1.0], 2.0) == pytest.approx([high / (high + low), low / (high + low)])
    assert softmax([0.3, 0.9, -1.0], None) == [1 / 3] * 3
    assert softmax([1.0, 0.0], 1e-9) == [1.0, 0.0], "no overflow"


def test_the_cosine_of_sketches() -> None:
    assert cosine_of_sketches(vector(3, 4), vector(4, 3)) == pytest.approx(24 / 25)
    assert cosine_of_sketches(None, vector(1)) == cosine_of_sketches(vector(0), vector(1)) == 0


def test_the_temperature_follows_the_squared_lengths() -> None:
    """M_0 = (4 + 16) / 2 = 10 once the queue of two is full; after a change of 2 and one of 0 M
    is 2.
    """
    story = Sketching()
    strategy = story.strategy
    strategy._note(4.0)
    assert strategy.temperature() is None
    strategy._note(16.0)
    assert strategy.temperature() == 1 + 1 and strategy.first_mean == 10
    strategy._note(4.0)
    strategy._note(0.0)
    assert strategy.temperature() == pytest.approx(2 / 10 + 1)


def test_models_that_do_not_move_have_the_least_temperature() -> None:
    strategy = Sketching().strategy
    strategy._note(0.0), strategy._note(0.0)
    assert strategy.temperature() == 1


# ------------------------------------------------------------------ the step
def test_a_step_waits_for_all_sketches() -> None:
    story = full()
    assert story.version == 0
    assert story.sketched("update 1", 0, 1) == [], "a's is missing"
    lines = story.sketched("update 0", 1, 0)
    # c = (1, 0), M = M_0 so T = 2
    share = math.exp(1 / 2) / (math.exp(1 / 2) + 1)
    assert story.weights == pytest.approx([2 * share, 4 * (1 - share), 0])
    assert story.report() == pytest.approx(
        {"agreement": 0.5, "largest_share": share, "temperature": 2.0}
    )
    assert lines[-1] == "run model 1 for 0.1"
    assert story.jobs()["model 1"].weights.tolist() == story.weights
    (published,) = [each for each in story.decisions if isinstance(each, Publish)]
    assert published.made_of == (0, 1)


def test_it_waits_for_the_sketch_of_the_global_model_too() -> None:
    story = Sketching()
    story.start("a", "b", "c")
    assert list(story.jobs()) == ["model 0"]
    for edge, task in (("a", 0), ("b", 1)):
        story.move(edge, 1, 0, 0)
        story.sketched(f"update {task}", 1, 0)
    assert story.version == 0
    assert story.sketched("model 0", 1, 0)[1] == "publish 1 0 0"


def test_devices_do_not_wait_and_later_updates_stay_for_the_next_step() -> None:
    story = full()
    assert set(story.open) == {"a", "b", "c"}
    story.move("a", 0, 0, 1)
    for task in (3, 0, 1):
        story.sketched(f"update {task}", 1, 0)
    assert story.version == 1 and len(story.strategy.waiting) == 1
    assert story.weights == [1, 2, 0], "the first two, which agree equally"


def test_before_the_queue_is_full_all_weigh_the_same() -> None:
    story = full(queue_length=3)
    story.sketched("update 0", 1, 0)
    story.sketched("update 1", -1, 0)
    assert story.weights == [1, 2, 0] and "temperature" not in story.report()


def test_a_model_without_a_sketch_agrees_by_0() -> None:
    story = full()
    assert story.give(JobFailed("update 0", "not finite")) == ["report sensitivity_failed=1"]
    story.sketched("update 1", 1, 0)
    share = math.exp(1 / 2) / (math.exp(1 / 2) + 1)
    assert story.weights == pytest.approx([2 * (1 - share), 4 * share, 0])


def test_without_a_sketch_of_the_global_model_all_weigh_the_same() -> None:
    story = Sketching()
    story.start("a", "b", "c")
    story.give(JobFailed("model 0", "not finite"))
    for edge, task in (("a", 0), ("b", 1)):
        story.move(edge, 2, 0, 0)
        story.sketched(f"update {task}", task, 1)
    assert story.weights == [2, 0, 0]


def test_a_too_stale_update_has_no_job() -> None:
    story = Sketching(max_staleness=0, buffer_size=1)
    story.start("a", "b")
    story.sketched("model 0", 1, 0)
    story.move("a", 1, 0, 0)
    story.sketched("update 0", 1, 0)
    assert story.move("b", 1, 0, 0)[0] == "discard 1: too stale" and not story.jobs()


# ------------------------------------------------------------------ the job
@pytest.fixture(scope="module")
def learned() -> Learning:
    return learning(experiment(task="my_task.py:build"), EXAMPLES)


def by_hand(learned: Learning, weights: np.ndarray, rows: np.ndarray, fisher: str) -> np.ndarray:
    """|g w - F w^2 / 2| of a linear model of two inputs and two classes, in closed form: the
    gradient of the cross-entropy is (softmax - one-hot) times the inputs.
    """
    inputs, targets = (each[torch.from_numpy(rows)] for each in learned.train)
    points = inputs.numpy().astype(np.float64)
    matrix, offset = weights[:4].reshape(2, 2).astype(np.float64), weights[4:6]
    scores = points @ matrix.T + offset
    likely = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
    error = likely - np.eye(2)[targets.numpy()]
    each = np.concatenate([np.einsum("ni,nj->nij", error, points).reshape(-1, 4), error], axis=1)
    mean = each.mean(0)
    squares = (each**2).mean(0) if fisher == "samples" else mean**2
    return np.abs(mean * weights - squares * weights**2 / 2)


@pytest.mark.parametrize("fisher", ["samples", "batch"])
def test_the_sensitivities_are_those_of_the_closed_form(learned: Learning, fisher: str) -> None:
    """A sketch is linear, so it is compared with the sketch of the vector made by hand."""
    assert [entry.shape for entry in learned.layout.entries] == [(2, 2), (2,)]
    weights = learned.initial_weights()
    job = Sensitivity(weights, 20, 3, 5, fisher)
    drawn = Streams(5).rng("server samples").permutation(len(learned.train[1]))[:20]
    expected = by_hand(learned, weights, np.sort(drawn), fisher)
    sketch = job.work(learned)[0]["sketch"]
    matrix = Streams(5).rng("sketch").standard_normal((3, 6), np.float32)
    assert sketch == pytest.approx(matrix @ expected / math.sqrt(3), rel=1e-4)


@pytest.mark.slow
def test_a_sketch_keeps_lengths_and_angles(learned: Learning) -> None:
    """With many rows: <R x, R y> is about <x, y>."""
    rng = np.random.default_rng(1)
    one, other = (rng.normal(size=40_000).astype(np.float32) for _ in range(2))
    other += one
    job = Sensitivity(one, 1, 500, 5, "batch")
    sketches = [job._sketch(each, Streams(5)) for each in (one, other)]
    assert float(sketches[0] @ sketches[0]) == pytest.approx(float(one @ one), rel=0.2)
    assert cosine_of_sketches(*sketches) == pytest.approx(2**-0.5, abs=0.1)


def test_all_jobs_of_a_run_have_the_same_samples_and_rows() -> None:
    story = full()
    jobs = [story.strategy._job("x", vector(0)).job for _ in range(2)]
    assert jobs[0].seed == jobs[1].seed and jobs[0].samples == 32
    other = make(FedPSA, seed=2)
    assert other._job("x", vector(0)).job.seed != jobs[0].seed
