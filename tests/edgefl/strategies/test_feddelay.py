"""FedDelay by hand: full steps up to the concurrency, 1 / gap beyond it (Koloskova et al. 2022)."""

from __future__ import annotations

from builders import Server, make

from edgefl.strategies.feddelay import FedDelay, delay_factor


def test_the_step_is_full_up_to_the_concurrency_and_then_1_over_the_gap() -> None:
    """eta_t = eta if tau_t <= tau_C, else eta / tau_t; a fresh update has gap 0."""
    assert [delay_factor(gap, 3) for gap in (0, 1, 3, 4, 5, 10)] == [1, 1, 1, 1 / 4, 1 / 5, 1 / 10]


def test_changes_are_added_whatever_they_started_from() -> None:
    """w <- w + eta_g c_t (w_k - w_start)."""
    story = Server(make(FedDelay, concurrency=2, server_learning_rate=0.5))
    story.start("a", "b")
    assert story.move("a", 8, 0, 0)[0] == "publish 4 0 0"
    assert story.move("a", 8, 0, 0)[0] == "publish 8 0 0"
    assert story.move("b", 0, 4, 0)[0] == "publish 8 2 0", "gap 2 = tau_C: in full"


def test_beyond_the_concurrency_the_step_shrinks() -> None:
    story = Server(make(FedDelay, concurrency=2, server_learning_rate=1.0))
    story.start("a", "b")
    for _ in range(4):
        story.move("a", 1, 0, 0)
    assert story.move("b", 0, 8, 0)[0] == "publish 4 2 0", "gap 4 > 2: 8 / 4"


def test_the_number_at_work_is_at_most_that_of_the_edges() -> None:
    story = Server(make(FedDelay, concurrency=50, server_learning_rate=1.0))
    story.start("a", "b")
    for _ in range(4):
        story.move("a", 0, 0, 0)
    assert story.move("b", 0, 0, 8)[0] == "publish 0 0 2"
