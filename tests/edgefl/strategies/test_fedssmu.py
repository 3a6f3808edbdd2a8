"""FedSSMU (Algorithm 3), event by event: aggregation within a round, staleness k + 1, one version
per round.
"""

from __future__ import annotations

from math import sqrt
from typing import Any

import numpy as np
import pytest
from builders import Server, make
from merging import deliver, local_run

from edgefl.strategies.base.events_and_decisions import FreshRequested, SendFresh
from edgefl.strategies.fedssmu import FedSSMU, FedSSMUOptions, RefreshInRound

STILL = {
    "mu_alpha": 1.0,
    "lambda0": 0.5,
    "iota0": 0.5,
    "eta_lambda": 0.0,
    "eta_sigma": 0.0,
    "eta_iota": 0.0,
    "selector": "h2",
}


def story(**options: Any) -> Server:
    return Server(make(FedSSMU, **{"clients_per_round": 2} | STILL | options))


def test_a14_every_trained_model_is_mixed_in_when_it_arrives_and_a_round_makes_one_version() -> (
    None
):
    """Round 1: alpha = 1/2 (xi = 1), then s = 2, t = 1: xi = 0.5 / sqrt(2) + 0.5. w_{2,0} =
    w_{1,2}; the local model is the trained one.
    """
    server = story()
    assert server.start("a", "b") == ["assign a,b <- 0 0 0"]
    assert deliver(server, "a", (4, 8, 0)) == {
        "alpha": 0.5,
        "xi": 1.0,
        "lambda": 0.5,
        "sigma": 0.5,
        "iota": 0.5,
        "gap": 0.0,
        "product": 0.0,
        "vectors": 1,
    }
    assert (
        server.strategy.model.tolist() == [2, 4, 0]
        and server.weights == [0, 0, 0]
        and server.version == 0
    )
    values = deliver(server, "b", (6, 4, 4))
    alpha = (0.5 / sqrt(2) + 0.5) / (1.5 + 0.5 / sqrt(2))
    assert (values["gap"], values["alpha"]) == (1.0, pytest.approx(alpha)) and server.version == 1
    assert server.weights == pytest.approx([2 + 4 * alpha, 4, 4 * alpha]) and list(server.open) == [
        "a",
        "b",
    ]


def test_a14_t_is_the_round_or_counts_aggregations_as_told() -> None:
    """The second round's first aggregation: t = 2 as a round, t = 3 as the third aggregation.
    Its staleness is 1 again.
    """
    for index, t in (("round", 2), ("aggregation", 3)):
        server = story(index=index)
        server.start("a", "b")
        for edge in "ab":
            deliver(server, edge, (1, 1, 1))
        assert deliver(server, "a", (1, 1, 1))["xi"] == pytest.approx(0.5 / sqrt(t) + 0.5)


def ask(server: Server, edge: str) -> SendFresh:
    task, version, _ = server.open[edge]
    (answer,) = server.strategy.handle(FreshRequested(edge, task, version, 6), 0)
    assert isinstance(answer, SendFresh)
    return answer


def test_a_request_is_answered_with_the_rounds_model_if_k_is_above_0() -> None:
    """Its number is version + k, so that g - o + 1 = k + 1."""
    server = story(clients_per_round=3)
    server.start("a", "b", "c")
    assert ask(server, "c").weights is None
    deliver(server, "a", (4, 8, 0))
    answer = ask(server, "c")
    assert answer.weights is server.strategy.model and answer.version == 1


def test_a_second_round_counts_from_0() -> None:
    server = story()
    server.start("a", "b")
    for edge in "ab":
        deliver(server, edge, (1, 1, 1))
    assert ask(server, "a").weights is None
    deliver(server, "b", (1, 1, 1))
    assert ask(server, "a").version == 1 + 1


def test_beyond_tau_arrivals_of_a_round_are_discarded() -> None:
    """s = k + 1 > tau: the second of a round at tau = 1. The round ends all the same."""
    server = story(tau=1)
    server.start("a", "b")
    assert deliver(server, "a", (4, 8, 0))
    assert (
        deliver(server, "b", (9, 9, 9)) == {}
        and server.version == 1
        and server.weights == [2, 4, 0]
        and len(server.open) == 2
    )


def test_a_round_in_which_a_task_closes_goes_on_with_the_others() -> None:
    server = story(subtract_merge=True)
    server.start("a", "b")
    deliver(server, "a", (4, 8, 0))
    ask(server, "b")
    assert (
        server.close("b")[0] == "publish 2 4 0"
        and server.strategy.sent == {}
        and server.strategy.k == 0
    )


def test_a_round_without_a_delivery_is_drawn_again_from_the_same_model() -> None:
    server = story()
    server.start("a", "b")
    assert (
        server.close("a") == []
        and server.close("b") == ["assign a,b <- 0 0 0"]
        and server.version == 0
    )
    assert deliver(server, "a", (4, 8, 0))["gap"] == 0


@pytest.mark.parametrize(("index", "g"), [("round", 4), ("aggregation", 33)])
def test_the_device_takes_the_round_or_the_count_for_g(index: str, g: int) -> None:
    """Version 3, 30 aggregations before, k = 2 in the round: g - o + 1 = 3; phi = gamma /
    sqrt(g) (1 - ups / sqrt(3)).
    """
    device = RefreshInRound(
        FedSSMUOptions.model_validate({"index": index, "mu_beta": 1.0, "upsilon0": 0.6})
    )
    run = local_run(1.0, 0.0, 0.0, version=3, refresh_point=2.0, aggregations=30.0)
    device.merge(run, np.zeros(3, np.float32), 3 + 2)
    phi = (1 - 0.6 / sqrt(3)) / sqrt(g)
    assert device.payload(run)[1]["beta"] == pytest.approx(phi / (1 + phi))
