"""Zeno++ by hand: which gradients are accepted, when the server's gradient is refreshed, and that
gradient itself (Xie et al. 2020, arXiv 1903.07020).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from builders import EXAMPLES, experiment, make, vector
from gradient_server import GradientServer

from edgefl.clocks.setup.learning import learning
from edgefl.jobs import Gradient
from edgefl.strategies.base.events_and_decisions import JobDone, JobFailed, RunJob
from edgefl.strategies.zeno_plus_plus import JOB, ZenoPlusPlus


def served(*own: float, **options: Any) -> GradientServer:
    """Edges a and b at work, v = ``own``; rho is 0 by default."""
    server = GradientServer(
        make(ZenoPlusPlus, (0, 0), **{"server_learning_rate": 0.5, "rho": 0.0} | options)
    )
    server.start("a", "b")
    give_own(server, *own)
    return server


def give_own(server: GradientServer, *own: float) -> list[str]:
    return server.give(JobDone(JOB, {"gradient": vector(*own)}, {"loss": 1.0}))


def test_edges_begin_when_the_server_has_its_first_gradient() -> None:
    server = GradientServer(make(ZenoPlusPlus, (0, 0)))
    server.start("a", "b")
    assert [type(decision) for decision in server.decisions] == [RunJob] and server.join("c") == []
    assert give_own(server, 1, 0) == ["assign a,b,c <- 0 0"]


def test_without_a_first_gradient_of_the_server_the_run_ends() -> None:
    server = GradientServer(make(ZenoPlusPlus, (0, 0)))
    server.start("a")
    assert server.give(JobFailed(JOB, "not finite")) == ["finish: no server gradient"]


def test_an_accepted_gradient_is_scaled_to_the_server_s() -> None:
    """g = (10, 0), v = (3, 4): gh = (5, 0), <v, gh> = 15 > 0; w <- w - .5 gh."""
    server = served(3, 4)
    told = server.send("a", 10, 0)
    assert told == [
        "report score=7.5 gap=0 server_gradient_age=0",
        "publish -2.5 0",
        "assign a <- -2.5 0",
    ]


def test_one_that_points_the_other_way_is_discarded_and_its_edge_goes_on() -> None:
    server = served(3, 4)
    assert (
        server.send("a", -1, 0)[1:] == ["discard 0: score below zero", "assign a <- 0 0"]
        and server.version == 0
    )


@pytest.mark.parametrize(
    ("options", "score"),
    [
        ({"rho": 0.2, "gamma": 1.0}, 15 - 0.2 * 25),  # WKAFL's code: <gh, v> - rho ||gh||^2
        ({"rho": 0.2}, 0.5 * 15 - 0.2 * 25),  # the authors': lr <v, gh> - rho ||gh||^2
        ({"rho": 0.2, "epsilon": 4.0}, 0.5 * 15 - 0.2 * 25 + 0.5 * 4),
    ],
)
def test_the_score(options: dict[str, float], score: float) -> None:
    """Scaled, ||gh|| = ||v|| = 5 whatever the length of g."""
    server = served(3, 4, **options)
    server.send("a", 1e6, 0)
    assert server.decisions[0].values["score"] == pytest.approx(score)


def test_the_bound_itself_is_accepted_and_a_zero_gradient_is_not() -> None:
    server = served(1, 0)
    assert server.send("a", 0, 7)[1] == "publish 0 -0.5", "score 0"
    assert server.send("b", 0, 0)[1] == "discard 1: no direction"


@pytest.mark.filterwarnings("ignore:overflow")
def test_one_too_long_to_be_measured_has_no_direction_and_its_score_is_a_number() -> None:
    """Its square is infinite in float32; what is reported must be finite, or a replay would
    differ from its journal.
    """
    server = served(1, 0)
    assert server.send("a", 1e30, 0)[:2] == [
        "report score=0 gap=0 server_gradient_age=0",
        "discard 0: no direction",
    ]


def test_the_server_s_gradient_is_made_anew_every_k_steps_and_used_until_then() -> None:
    server = served(1, 0, refresh_every=2)
    assert not server.send("a", 1, 0)[-2].startswith("run"), "one step"
    server.send("b", 1, 0)
    (job,) = [decision.job for decision in server.decisions if isinstance(decision, RunJob)]
    assert job.weights.tolist() == server.weights == [-1, 0]
    server.send("a", 1, 0), server.send("b", 1, 0)
    assert not any(isinstance(decision, RunJob) for decision in server.decisions), (
        "version 4, and the job of version 2 is under way"
    )
    assert give_own(server, -1, 0) == []
    assert server.send("a", 1, 0)[1].startswith("discard"), "by the new one"
    server.send("b", -1, 0)
    (job,) = [decision.job for decision in server.decisions if isinstance(decision, RunJob)]
    assert job.weights.tolist() == server.weights, "the refresh of version 4 was postponed"


def test_a_failed_refresh_leaves_the_old_gradient() -> None:
    server = served(1, 0, refresh_every=1)
    server.send("a", 1, 0)
    assert server.give(JobFailed(JOB, "not finite")) == []
    server.send("b", 1, 0)
    assert server.stepped and isinstance(server.decisions[-2], RunJob), (
        "and the next step asks again"
    )


def test_the_job_s_gradient_is_torch_s_and_it_leaves_all_as_it_was() -> None:
    learned = learning(experiment(task="my_task.py:build"), EXAMPLES)
    weights = learned.initial_weights()
    before = weights.copy()
    jobs = [Gradient(weights, 20, 20, 5, draw) for draw in (1, 2)]
    (one, numbers), (other, _) = (job.work(learned) for job in jobs)
    assert one["gradient"] == pytest.approx(other["gradient"], abs=1e-6), (
        "a batch of all its samples, in another order"
    )
    assert np.array_equal(weights, before) and numbers["loss"] > 0
    small = [Gradient(weights, 20, 5, 5, draw).work(learned)[0]["gradient"] for draw in (1, 1, 2)]
    assert np.array_equal(small[0], small[1]) and not np.array_equal(small[0], small[2])
    step = 1e-3
    ahead = [
        Gradient(weights + np.float32(sign * step) * one["gradient"], 20, 20, 5, 1).work(learned)[
            1
        ]["loss"]
        for sign in (1, -1)
    ]
    slope = (ahead[0] - ahead[1]) / (2 * step)
    assert (
        slope == pytest.approx(float(one["gradient"] @ one["gradient"]), rel=0.02)
        and math.isfinite(slope)
        and torch.is_grad_enabled()
    )


def test_the_loss_of_all_edges_at_once_does_not_end_the_run() -> None:
    """K = 1, so that 100 tasks without a gradient would be a hundred steps without one."""
    edges = [f"e{number:03}" for number in range(150)]
    server = GradientServer(make(ZenoPlusPlus, (0, 0)))
    server.start(*edges)
    give_own(server, 1, 0)
    for edge in edges:
        server.lose(edge)
    assert [server.close(edge) for edge in edges] == [[]] * len(edges)
    assert server.join("e000") == ["assign e000 <- 0 0"]
