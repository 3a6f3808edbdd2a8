"""FedAvg and FedProx, event by event, with vectors of three numbers computed by hand."""

from __future__ import annotations

from types import SimpleNamespace

import torch
from builders import Server, make

from edgefl.edges.training import adjust
from edgefl.strategies.base.strategy import ProximalRule
from edgefl.strategies.fedavg import FedAvg
from edgefl.strategies.fedprox import FedProxOptions
from edgefl.streams import Streams


def server(**options: int) -> Server:
    return Server(make(FedAvg, **options))


def test_the_mean_is_weighted_by_samples() -> None:
    """McMahan et al., Algorithm 1: w_{t+1} <- sum_k (n_k / n) w_{t+1}^k. With n = (1, 3): (4, 0,
    8) / 4 + 3 (0, 4, 8) / 4 = (1, 3, 8).
    """
    story = server(clients_per_round=2)
    assert story.start("a", "b") == ["assign a,b <- 0 0 0"]
    assert story.deliver("a", 4, 0, 8, samples=1) == []
    assert story.deliver("b", 0, 4, 8, samples=3) == ["publish 1 3 8", "assign a,b <- 1 3 8"]
    assert story.deliver("b", 1, 3, 8, samples=3) == []
    assert story.deliver("a", 5, 7, 8, samples=1) == ["publish 2 4 8", "assign a,b <- 2 4 8"]


def test_the_round_waits_for_all_and_the_order_of_arrival_changes_no_bit() -> None:
    updates = {"a": (3, (0.1, 0.7, 1e-8)), "b": (5, (1e7, 0.3, 1.0)), "c": (7, (-1e7, 0.2, 3.0))}
    ends = set()
    for order in ("abc", "cab", "bca"):
        story = server(clients_per_round=3)
        story.start("a", "b", "c")
        lines = [story.deliver(edge, *updates[edge][1], samples=updates[edge][0]) for edge in order]
        assert lines[:2] == [[], []] and len(lines[2]) == 2
        ends.add(story.strategy.weights.tobytes())
    assert len(ends) == 1


def test_a_lost_edge_is_waited_for_until_its_task_closes() -> None:
    story = server(clients_per_round=2)
    story.start("a", "b")
    assert story.lose("b") == []
    assert story.deliver("a", 2, 2, 2) == [], "b may come back within the grace time"
    assert story.close("b") == [
        "publish 2 2 2",
        "assign a <- 2 2 2",
    ], "the mean of those that delivered; b is not selected any more"


def test_a_round_without_any_delivery_is_drawn_again() -> None:
    """Same version, another draw: the same edges again might fail again."""
    story = server(clients_per_round=2)
    story.start(*"abcdefgh")
    drawn = [set(story.open)]
    for _ in range(4):
        first, second = sorted(story.open)
        assert story.close(first, "not finite") == []
        (line,) = story.close(second)
        assert line.endswith("<- 0 0 0") and story.strategy.version == 0
        drawn.append(set(story.open))
    assert len({frozenset(pair) for pair in drawn}) > 1
    idle, rng = list("abcdefgh"), Streams(1).rng("selection", 4)
    assert drawn[4] == {idle[index] for index in rng.choice(8, size=2, replace=False)}, (
        "the fifth draw is the stream's trigger 4"
    )


def test_a_late_joiner_takes_part_from_the_next_round_on() -> None:
    story = server(clients_per_round=3)
    assert story.start("a", "b") == ["assign a,b <- 0 0 0"], "fewer than m' are there"
    assert story.join("c") == []
    story.deliver("a", 1, 1, 1)
    assert story.deliver("b", 1, 1, 1) == ["publish 1 1 1", "assign a,b,c <- 1 1 1"]


def test_m_of_m_are_drawn_uniformly_without_replacement_from_the_sorted_idle() -> None:
    counts = dict.fromkeys("abcde", 0)
    story = server(clients_per_round=2)
    story.start(*"edcba")
    for _ in range(500):
        one, other = list(story.open)
        assert one < other
        for edge in (one, other):
            counts[edge] += 1
            story.deliver(edge, 0, 0, 0)
    assert all(150 <= n <= 250 for n in counts.values()), (
        counts
    )  # 200 expected, standard deviation 11


def test_the_selection_depends_on_the_seed_and_on_nothing_else() -> None:
    def drawn(seed: int) -> list[str]:
        story = Server(make(FedAvg, seed=seed, clients_per_round=3))
        return story.start(*"abcdefghij")

    assert drawn(1) == drawn(1) and len({str(drawn(seed)) for seed in range(6)}) > 1


# ------------------------------------------------------------------ FedProx
def pulled(mu: float, gradient: list[float]) -> list[float]:
    run = SimpleNamespace(
        parameters=2, start=torch.tensor([1.0, 1.0, 9.0]), weights=torch.tensor([3.0, 0.0, 5.0])
    )
    given = torch.tensor(gradient)
    adjust(ProximalRule(FedProxOptions(mu=mu)), run, given)
    return given.tolist()


def test_the_pull_is_the_gradient_of_the_proximal_term() -> None:
    """Li et al., eq. 2: h_k(w; w^t) = F_k(w) + (mu/2) ||w - w^t||^2, so g + mu (w - w^t) = (1,
    1) + 0.5 (2, -1). The buffer is left alone.
    """
    assert pulled(0.5, [1.0, 1.0]) == [2.0, 0.5]
