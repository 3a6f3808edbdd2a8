"""FADAS step by step, with numbers that can be checked by hand (Wang et al. 2024)."""

from __future__ import annotations

from math import sqrt
from typing import Any

import pytest
from builders import Server, make

from edgefl.strategies.fadas import FADAS, FADASOptions


def adapting(**options: Any) -> Server:
    """One update per step, eta = 1, no bias correction by default."""
    given = {
        "buffer_size": 1,
        "concurrency": 1,
        "server_learning_rate": 1.0,
        "beta1": 0.5,
        "beta2": 0.5,
        "bias_correction": False,
    }
    return Server(make(FADAS, **given | options))


def test_without_memory_it_is_a_sign_step() -> None:
    """b1 = b2 = 0: m / sqrt(vh) = D / |D| (ALGORITHMS 6, test 7); an element that has never
    changed stays.
    """
    story = adapting(beta1=0.0, beta2=0.0, server_learning_rate=0.5)
    story.start("a")
    assert story.move("a", 4, -2, 0)[1] == "publish 0.5 -0.5 0"


def test_the_moments_and_the_maximum() -> None:
    """D = 4: m = 2, v = vh = 8, step 2 / sqrt(8). D = 0: m = 1, v = 4, but vh stays 8: step 1 /
    sqrt(8). D = -8: m = -3.5, v = vh = 34.
    """
    story = adapting()
    story.start("a")
    story.move("a", 4, 0, 0)
    assert story.weights[0] == pytest.approx(2 / sqrt(8))
    story.move("a", 0, 0, 0)
    assert story.weights[0] == pytest.approx(3 / sqrt(8))
    before = story.weights[0]
    story.deliver("a", before - 8, 0, 0)
    assert story.weights[0] == pytest.approx(before - 3.5 / sqrt(34))


def test_bias_correction_as_in_the_authors_code() -> None:
    """D = 4: m / (1 - b1) = 4, vh / (1 - b2) = 16: a whole eta. D = 0: m = 1, over 0.75; vh = 8,
    over 0.75.
    """
    story = adapting(bias_correction=True)
    story.start("a")
    story.move("a", 4, 0, 0)
    assert story.weights[0] == pytest.approx(1)
    story.move("a", 0, 0, 0)
    assert story.weights[0] == pytest.approx(1 + (1 / 0.75) / sqrt(8 / 0.75))
    assert FADASOptions().bias_correction


def test_the_change_is_the_mean_of_the_buffer_without_staleness_weights() -> None:
    """M = 2: D = ((6, 0, 0) + (2, 4, 0)) / 2 = (4, 2, 0)."""
    story = adapting(buffer_size=2, concurrency=2)
    story.start("a", "b")
    assert story.move("a", 6, 0, 0) == ["assign a <- 0 0 0"]
    story.move("b", 2, 4, 0)
    assert story.strategy.first.tolist() == [2, 1, 0] and story.strategy.second.tolist() == [
        8,
        2,
        0,
    ]


@pytest.mark.parametrize(
    ("adaptive", "threshold", "at_0_1_2_5"),
    [
        (False, 1, (0.6, 0.6, 0.6, 0.6)),
        (True, 1, (0.6, 0.6, 0.3, 0.12)),
        (True, 3, (0.6, 0.6, 0.6, 0.12)),
    ],
)
def test_a_late_buffer_makes_a_smaller_step(
    adaptive: bool, threshold: int, at_0_1_2_5: tuple[float, ...]
) -> None:
    """eta_t = eta if tau_max <= tau_c, else eta / tau_max; a fresh update has tau = 0."""
    strategy = make(
        FADAS, server_learning_rate=0.6, delay_adaptive=adaptive, delay_threshold=threshold
    )
    assert [strategy.learning_rate(gap) for gap in (0, 1, 2, 5)] == pytest.approx(at_0_1_2_5)
