"""FedDyn by hand: the linear term, the clip, and the server's mean over all devices (Acar et al.
2021).
"""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from builders import Server, make, vector
from trainers import FakeTask, finished, linear_trainer

from edgefl.edges.training import TrainingPlan
from edgefl.strategies.base.events_and_decisions import Assign, EdgeJoined, RunStarted
from edgefl.strategies.feddyn import Dynamic, FedDyn, FedDynOptions


def adjusted(gradient: list[float], h: list[float], **options: float) -> list[float]:
    """At w = (3, 0 | 5), w_srv = (1, 1 | 9), alpha_k = 0.5; the third element is a buffer."""
    run = SimpleNamespace(
        parameters=2,
        start=torch.tensor([1.0, 1.0, 9.0]),
        weights=torch.tensor([3.0, 0.0, 5.0]),
        memory={"h": torch.tensor(h)},
        task=SimpleNamespace(numbers={"alpha": 0.5}),
    )
    given = torch.tensor(gradient)
    Dynamic(FedDynOptions(**options)).adjust(run, given)
    return given.tolist()


def test_the_local_gradient_has_the_linear_and_the_quadratic_term() -> None:
    """grad f + alpha_k (h_k - w_srv) + alpha_k w = (1, 1) + 0.5 ((2, 4) - (1, 1)) + 0.5 (3, 0)."""
    assert adjusted([1.0, 1.0], [2.0, 4.0]) == [3.0, 2.5]


def test_the_gradient_is_clipped_before_the_quadratic_term() -> None:
    """(2.5, 5.5) + (0.5, -1.5) = (3, 4), of norm 5, clipped at 1: (0.6, 0.8) + 0.5 (3, 0)."""
    assert adjusted([2.5, 5.5], [2.0, -2.0], clip_norm=1.0) == pytest.approx([2.1, 0.8], rel=1e-6)
    assert adjusted([2.5, 5.5], [2.0, -2.0], clip_norm=5.0) == [4.5, 4.0]


def test_h_adds_up_what_the_device_has_moved() -> None:
    """h_k <- h_k + w_k - w_srv; h_k starts at 0 and stays on the device."""
    taught, rule = linear_trainer(TrainingPlan(1, 2, 0.5)), Dynamic(FedDynOptions())
    task = FakeTask({"weights": np.zeros(3, np.float32)}, numbers={"alpha": 0.0})
    run = finished(taught, rule, task)
    vectors, _ = taught.payload(run, rule)
    assert set(vectors) == {"weights"} and run.weights.tolist() == [0.5, 2.0, 0.0]
    kept = taught.remembered(run, rule)
    assert kept["h"].tolist() == [0.5, 2.0, 0.0]
    again = finished(taught, rule, task, kept)
    taught.payload(again, rule)
    assert taught.remembered(again, rule)["h"].tolist() == [1.0, 4.0, 0.0]


# ------------------------------------------------------------------ server
def test_the_first_term_is_over_the_selected_and_hbar_over_all_devices() -> None:
    """N = 4, S = {two}: hbar = (1/4) sum_S (w_k - w_srv), w_srv <- plain mean_S w_k + hbar."""
    story = Server(make(FedDyn, (1, 1, 1), clients_per_round=2))
    story.start("a", "b", "c", "d")
    one, other = sorted(story.open)
    story.deliver(one, 3, 1, 1, samples=1)
    assert story.deliver(other, 5, 1, -3, samples=9)[0] == "publish 5.5 1 -2", (
        "mean (4, 1, -1) + (2 + 4, 0, -4) / 4: samples do not matter"
    )


def test_hbar_is_the_mean_of_h_k_over_all_devices() -> None:
    """Against brute force, over rounds of 2 out of 5."""
    rng = np.random.Generator(np.random.PCG64(1))
    story = Server(make(FedDyn, clients_per_round=2))
    story.start(*"abcde")
    h = {edge: np.zeros(3) for edge in "abcde"}
    for _ in range(20):
        moves = {edge: rng.normal(size=3).astype(np.float32) for edge in list(story.open)}
        before = story.strategy.weights.astype(float)
        for edge, by in moves.items():
            h[edge] += by
            story.move(edge, *by)
        hbar = np.mean(list(h.values()), axis=0)
        assert story.strategy.weights == pytest.approx(
            before + np.mean(list(moves.values()), axis=0) + hbar, rel=1e-4, abs=1e-4
        )


def test_with_a_lossy_download_hbar_counts_from_the_model_that_a_device_received() -> None:
    """N = S = 2 from w = 0, received as (1, 0, 0) by a: h_a = (2, 0, 0), h_b = (1, 0, 4)."""
    story = Server(make(FedDyn, clients_per_round=2))
    story.start("a", "b")
    task, version, base = story.open["a"]
    story.open["a"] = task, version, base + vector(1, 0, 0)
    story.deliver("a", 3, 0, 0)
    assert story.deliver("b", 1, 0, 4)[0] == "publish 3.5 0 4", "mean (2, 0, 2) + (1.5, 0, 2)"


def test_alpha_of_a_device_is_weighed_by_its_share_of_the_samples() -> None:
    """p_k = N n_k / sum n, alpha_k = alpha / p_k: n = 1 and 3 give p = 0.5 and 1.5."""
    strategy = make(FedDyn, clients_per_round=2, alpha=0.3)
    for edge, samples in (("a", 1), ("b", 3)):
        strategy.handle(EdgeJoined(edge, samples), 0)
    decisions = strategy.handle(RunStarted(), 0)
    assert [(d.edges, d.numbers["alpha"]) for d in decisions if isinstance(d, Assign)] == [
        (("a",), pytest.approx(0.6)),
        (("b",), pytest.approx(0.2)),
    ]


def test_identical_devices_that_all_take_part_end_at_the_centralised_optimum() -> None:
    """f_k(w) = ||w - 2||^2 / 2 for every k: each device's optimum of f + alpha <w, h - w_srv> +
    (alpha/2) ||w||^2, in closed form.
    """
    alpha, story = 0.5, Server(make(FedDyn, clients_per_round=3, alpha=0.5))
    story.start("a", "b", "c")
    h = dict.fromkeys("abc", 0.0)
    for _ in range(60):
        start = story.weights[0]
        for edge in list(story.open):
            end = (2.0 - alpha * (h[edge] - start)) / (1 + alpha)
            h[edge] += end - start
            story.deliver(edge, end, 0, 0)
    assert story.weights[0] == pytest.approx(2.0, abs=1e-4)
