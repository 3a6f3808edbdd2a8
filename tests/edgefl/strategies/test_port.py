"""PORT by hand: when it steps, the weights of updates, and which edges it urges (Su, Li 2022)."""

from __future__ import annotations

from typing import Any

import pytest
from builders import Server, make

from edgefl.strategies.port import Port, PortOptions, fusing_weights
from edgefl.vectors import Layout, LayoutEntry


def ports(**options: Any) -> Server:
    """Two updates a step, three at work, a bound of 2."""
    return Server(
        make(Port, **{"least_updates": 2, "concurrency": 3, "staleness_bound": 2} | options)
    )


# ------------------------------------------------------------------ weights
def test_a_fresh_update_weighs_its_share_of_the_samples() -> None:
    """raw_i = (n_i / sum n)(s_w (cos + 1)/2 + t_w B / (gap + B)): at gap 0 and cos 1, shares
    alone.
    """
    assert fusing_weights([1, 3], [0, 0], [1, 1], PortOptions()) == [0.25, 0.75]


@pytest.mark.parametrize(
    ("gap", "raw"), [(0, 1 + 3), (1, 1 + 3 * 10 / 11), (5, 1 + 3 * 10 / 15), (10, 1 + 3 / 2)]
)
def test_staleness_is_the_gap_and_fresh_is_0(gap: int, raw: float) -> None:
    """s_w = 1, t_w = 3, B_s = 10, against a fresh update of raw weight 4."""
    assert fusing_weights([1, 1], [gap, 0], [1, 1], PortOptions()) == pytest.approx(
        [raw / (raw + 4), 4 / (raw + 4)]
    )


def test_an_update_against_the_latest_motion_weighs_less() -> None:
    """cos = -1 takes the whole of s_w, cos = 0 half of it."""
    assert fusing_weights([1, 1], [0, 0], [-1, 0], PortOptions()) == pytest.approx(
        [3 / 6.5, 3.5 / 6.5]
    )


# ------------------------------------------------------------------ steps
def test_changes_are_gathered_until_enough_wait() -> None:
    """w <- w + sum c_i (w_i - w_start): samples 1 and 3 at gap 0."""
    story = ports()
    story.start("a", "b", "c")
    assert story.move("a", 8, 0, 0, samples=1) == ["assign a <- 0 0 0"], (
        "replaced at once, by the model as it is"
    )
    assert story.move("b", 0, 8, 0, samples=3)[0] == "publish 2 6 0"


def test_agreement_is_with_the_last_global_step() -> None:
    """c's update has gap 2: its cosine with the last step, (0, 4, 0), counts; a's is fresh: 1 +
    3.
    """
    story = ports(staleness_bound=10)
    story.start("a", "b", "c")
    for by in ((4, 0, 0), (4, 0, 0), (0, 4, 0), (0, 4, 0)):
        story.move("a", *by)
    story.move("a", 0, 0, 1)
    raw = (3 / 5 + 1) / 2 + 3 * 10 / 12  # cosine of (4, 3, 0) with (0, 4, 0)
    story.move("c", 4, 3, 0)
    c = raw / (raw + 4)
    assert story.weights == pytest.approx([4 + 4 * c, 4 + 3 * c, 1 - c], rel=1e-6)


def test_the_reference_may_be_the_model_that_the_device_started_from() -> None:
    """w_now - w_start of c is (4, 4, 0): cosine of (4, 3, 0) with it is 28 / (5 sqrt(32))."""
    story = ports(staleness_bound=10, reference="start")
    story.start("a", "b", "c")
    for by in ((4, 0, 0), (4, 0, 0), (0, 4, 0), (0, 4, 0), (0, 0, 1)):
        story.move("a", *by)
    story.move("c", 4, 3, 0)
    raw = (28 / (5 * 32**0.5) + 1) / 2 + 3 * 10 / 12
    assert story.weights[0] == pytest.approx(4 + 4 * raw / (raw + 4), rel=1e-6)


def test_normalisation_buffers_are_mixed_and_not_compared() -> None:
    strategy = make(Port, (0, 1), least_updates=1, concurrency=1)
    strategy.layout = Layout(
        (LayoutEntry("w", (1,), 0, "parameter", ""), LayoutEntry("v", (1,), 1, "buffer", ""))
    )
    story = Server(strategy)
    story.start("a")
    assert story.deliver("a", 2, 5)[0] == "publish 2 5"


# ------------------------------------------------------------------ late devices
def stale(**options: Any) -> tuple[Server, list[str]]:
    """b runs from version 0 while the others make versions up to 3, one more than the bound
    allows: (story, the last decisions).
    """
    story = ports(**options)
    story.start("a", "b", "c")
    lines: list[str] = []
    for _ in range(6):
        lines = story.move("a", 1, 0, 0)
    return story, lines


def test_nothing_is_fused_while_a_device_exceeds_the_bound() -> None:
    story, _ = stale()
    assert story.version == 3
    for _ in range(5):
        assert not any(line.startswith("publish") for line in story.move("a", 1, 0, 0))
    assert not any(line.startswith("publish") for line in story.move("b", 0, 1, 0)), (
        "c exceeds it too"
    )
    assert (
        story.move("c", 0, 1, 0)[0].startswith("publish")
        and story.version == 4
        and story.strategy.waiting == []
    )


def test_each_late_edge_is_urged_once() -> None:
    story, lines = stale()
    assert [line for line in lines if line.startswith("urge")] == ["urge b", "urge c"]
    assert not [line for line in story.move("a", 1, 0, 0) if line.startswith("urge")]


def test_the_closing_of_a_late_device_s_task_frees_the_others() -> None:
    story, _ = stale()
    story.move("a", 1, 0, 0)
    story.move("b", 0, 1, 0)
    story.lose("c")
    assert story.close("c")[0].startswith("publish")


def test_a_late_update_that_is_too_stale_frees_the_others() -> None:
    """The server has waited for it; it is not used, so the step follows at once."""
    story, _ = stale(max_staleness=2)
    story.move("a", 1, 0, 0)
    story.move("a", 1, 0, 0)
    assert [line.split()[0] for line in story.move("b", 0, 1, 0)] == ["discard", "assign"]
    after = [line.split()[0] for line in story.move("c", 0, 1, 0)]
    assert after == ["discard", "publish", "assign"], "from the new model"
