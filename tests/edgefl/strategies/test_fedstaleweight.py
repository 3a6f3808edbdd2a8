"""FedStaleWeight by hand: the mean gap of each device, and the weights that it makes (Ma 2024)."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np
import pytest
from builders import Server, make

from edgefl.strategies.fedstaleweight import FedStaleWeight, fair_shares
from edgefl.vectors import Layout, LayoutEntry


def fair(**options: Any) -> Server:
    """Two updates a step; three at work."""
    return Server(make(FedStaleWeight, **{"buffer_size": 2, "concurrency": 3} | options))


def test_a_weight_is_the_mean_gap_as_a_share() -> None:
    """p_i = t_i / sum t."""
    assert fair_shares([1.0, 2.0, 5.0]) == pytest.approx([1 / 8, 2 / 8, 5 / 8])


def test_where_nothing_is_stale_all_weigh_the_same() -> None:
    """The authors' code has 0 / 0 = 0 there: the model would stay."""
    story = fair()
    story.start("a", "b", "c")
    story.move("a", 2, 0, 0)
    assert story.move("b", 0, 4, 0)[:2] == ["report largest_share=0.5", "publish 1 2 0"]


def test_the_late_device_counts_by_its_mean_gap() -> None:
    """a's gaps: 0, 0, 1 with mean 1/3. c's gap is 1: p = (1/4, 3/4)."""
    story = fair()
    story.start("a", "b", "c")
    story.move("a", 0, 0, 0)
    story.move("a", 0, 0, 0)  # version 1; a got its task before
    assert story.version == 1
    story.strategy.gaps["a"].clear()
    story.strategy.gaps["a"].extend([0, 0])
    story.open["a"] = (*story.open["a"][:1], 0, story.open["a"][2])  # started from version 0
    story.move("a", 4, 0, 0)
    assert story.move("c", 0, 4, 0)[1] == "publish 1 3 0"


def test_only_the_latest_gaps_count() -> None:
    """With a window of 2 the oldest gap goes. The authors' code removes the newest."""
    strategy = make(FedStaleWeight, window=2)
    story = Server(strategy)
    story.start("a")
    for gap in (9, 1, 2):
        strategy.add(_update(story), gap)
    assert strategy.mean_gap("a") == 1.5
    every = make(FedStaleWeight, window=None)
    for gap in (9, 1, 2):
        every.add(_update(story), gap)
    assert every.mean_gap("a") == 4


def _update(story: Server) -> Any:
    class Told:
        edge, weights, base = "a", story.strategy.weights, story.strategy.weights

    return Told()


@pytest.mark.parametrize(("k", "eta", "window"), [(2, 1.0, 5), (4, 0.5, 2), (3, 1.0, None)])
def test_against_a_brute_force_server(k: int, eta: float, window: int | None) -> None:
    """200 updates of 6 devices of different speeds; a device may come twice within one buffer."""
    size, rng = 10, np.random.default_rng(k)
    story = Server(
        make(
            FedStaleWeight,
            start=(0,) * size,
            buffer_size=k,
            server_learning_rate=eta,
            window=window,
            concurrency=4,
        )
    )
    story.start(*"abcdef")
    gaps: dict[str, list[int]] = defaultdict(list)
    buffer: list[tuple[str, np.ndarray]] = []
    weights = np.zeros(size)
    for _ in range(200):
        edge, started, change, moved = story.drawn(rng)
        gaps[edge].append(story.version - started)
        buffer.append((edge, moved))
        if len(buffer) == k:
            means = [np.mean(gaps[each][-(window or 999) :]) for each, _ in buffer]
            shares = [mean / sum(means) if sum(means) else 1 / k for mean in means]
            weights = weights + eta * sum(share * part for share, (_, part) in zip(shares, buffer))
            buffer = []
        story.move(edge, *change)
        np.testing.assert_allclose(story.weights, weights, rtol=0, atol=1e-4)
    assert story.version == 200 // k


def test_devices_of_all_speeds_have_about_the_same_weight_over_a_run() -> None:
    """Devices that need 1, 2, 4 and 8 s on average deliver about 1000 to 125 times. The sums of
    their weights differ by less than a third from their mean; equal weights: by up to 115 %.
    """
    times, rng = {"a": 1, "b": 2, "c": 4, "d": 8}, np.random.default_rng(1)
    story = Server(make(FedStaleWeight, buffer_size=10, window=None, concurrency=4))
    story.start(*times)
    due = {edge: rng.uniform(0.5, 1.5) * times[edge] for edge in times}
    buffered: list[str] = []
    weights, counts = dict.fromkeys(times, 0.0), dict.fromkeys(times, 0)
    for _ in range(1800):
        edge = min(due, key=lambda each: due[each])
        due[edge] += rng.uniform(0.5, 1.5) * times[edge]
        counts[edge] += 1
        buffered.append(edge)
        story.move(edge, 0, 0, 0)
        if len(buffered) == 10:
            for each, share in zip(buffered, story.strategy.shares):
                weights[each] += share
            buffered = []
    mean = sum(weights.values()) / 4
    assert all(abs(weight / mean - 1) < 1 / 3 for weight in weights.values()), weights
    assert counts["a"] > 7 * counts["d"]


def test_normalisation_buffers_are_mixed_with_the_same_weights() -> None:
    strategy = make(FedStaleWeight, (0, 1), buffer_size=2, concurrency=2)
    strategy.layout = Layout(
        (LayoutEntry("w", (1,), 0, "parameter", ""), LayoutEntry("v", (1,), 1, "buffer", ""))
    )
    story = Server(strategy)
    story.start("a", "b")
    story.deliver("a", 2, 5)
    assert story.deliver("b", 4, 7)[1] == "publish 3 6"
