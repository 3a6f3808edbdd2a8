"""ACE and ACED (reconstructed) against a brute-force server, and by hand (arXiv 2511.19066)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from builders import Server, make

from edgefl.strategies.ace import ACE
from edgefl.vectors import Layout, LayoutEntry


def engaged(**options: Any) -> Server:
    """Three at work."""
    return Server(make(ACE, **{"concurrency": 3} | options))


def test_a_step_is_along_the_mean_of_all_latest_changes() -> None:
    """a: 6 alone; then b: mean of (6, 0, 0) and (0, 4, 0); a's next change replaces its first."""
    story = engaged()
    story.start("a", "b", "c")
    assert story.move("a", 6, 0, 0)[:2] == ["report devices=1", "publish 6 0 0"]
    assert story.move("b", 0, 4, 0)[:2] == ["report devices=2", "publish 9 2 0"]
    assert story.move("a", 0, 0, 2)[:2] == ["report devices=2", "publish 9 4 1"]


def test_a_device_sends_one_gradient_unless_more_steps_are_asked_for() -> None:
    for options, numbers in (
        ({}, {"most_steps": 1.0}),
        ({"local_steps": 4}, {"most_steps": 4.0}),
        ({"local_steps": None}, {}),
    ):
        story = engaged(**options)
        story.start("a")
        assert story.decisions[0].numbers == numbers


@pytest.mark.parametrize(("eta", "most"), [(1.0, None), (0.3, None), (1.0, 2), (0.5, 6)])
def test_against_a_brute_force_server(eta: float, most: int | None) -> None:
    """300 updates of 6 devices, four at work; with ``most`` the old ones are left out, and an
    update that is too old on arrival is discarded.
    """
    size, rng = 12, np.random.default_rng(5)
    story = Server(
        make(
            ACE,
            start=(0,) * size,
            server_learning_rate=eta,
            max_age=most,
            concurrency=4,
        )
    )
    story.start(*"abcdef")
    latest: dict[str, tuple[int, np.ndarray]] = {}
    weights, version, discarded = np.zeros(size), 0, 0
    for _ in range(300):
        edge, started, change, moved = story.drawn(rng)
        if most is None or version - started <= most:
            latest[edge] = started, moved
            active = [
                part for start, part in latest.values() if most is None or version - start <= most
            ]
            weights = weights + eta * sum(active) / len(active)
            version += 1
            story.move(edge, *change)
        else:
            discarded += 1
            assert story.move(edge, *change)[0].endswith("too stale")
        np.testing.assert_allclose(story.weights, weights, rtol=0, atol=2e-3)
    assert story.version == version and (discarded > 0) == (most is not None)


def test_aced_forgets_a_device_that_is_long_gone() -> None:
    """a's change from version 0 counts at versions 0 and 1, not at 2."""
    story = engaged(max_age=1)
    story.start("a", "b")
    story.move("a", 6, 0, 0)
    story.lose("a"), story.close("a")
    assert story.move("b", 0, 4, 0)[:2] == ["report devices=2", "publish 9 2 0"]
    assert story.move("b", 0, 4, 0)[:2] == ["report devices=1", "publish 9 6 0"]


def test_the_smaller_of_two_bounds_counts() -> None:
    assert [
        make(ACE, max_staleness=one, max_age=other).bound
        for one, other in ((None, None), (3, None), (None, 4), (5, 4))
    ] == [None, 3, 4, 4]


def test_normalisation_buffers_come_from_the_arriving_device() -> None:
    """Weight 1 of one device, 1 / 2 of two; never more than 1."""
    strategy = make(ACE, (0, 1), server_learning_rate=2.0, concurrency=2)
    strategy.layout = Layout(
        (LayoutEntry("w", (1,), 0, "parameter", ""), LayoutEntry("v", (1,), 1, "buffer", ""))
    )
    for name in ("changes", "sum_h"):
        setattr(strategy, name, getattr(make(ACE, (0,)), name))
    story = Server(strategy)
    story.start("a", "b")
    assert story.deliver("a", 1, 5)[1] == "publish 2 5"
    story.strategy.options = strategy.options.model_copy(update={"server_learning_rate": 1.0})
    assert story.move("b", 1, 6)[1] == "publish 3 6"
