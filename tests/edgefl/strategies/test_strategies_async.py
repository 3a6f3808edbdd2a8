"""FedAsync and FedBuff, event by event, with vectors of three numbers computed by hand."""

from __future__ import annotations

from typing import Any

import pytest
from builders import S, Server, make, vector

from edgefl.strategies.base.events_and_decisions import FreshRequested, SendFresh
from edgefl.strategies.base.strategy import MOST_FAILED, Strategy
from edgefl.strategies.ca2fl import CA2FL
from edgefl.strategies.fadas import FADAS
from edgefl.strategies.fedasync import FedAsync, FedAsyncOptions, damping
from edgefl.strategies.fedbuff import FedBuff
from edgefl.strategies.feddelay import FedDelay
from edgefl.streams import Streams
from edgefl.vectors import Layout, LayoutEntry


def mixing(**options: Any) -> Server:
    """FedAsync that mixes half and half by default; two edges at work."""
    return Server(
        make(FedAsync, **{"alpha": 0.5, "staleness": "constant", "concurrency": 2} | options)
    )


def buffering(**options: Any) -> Server:
    """FedBuff with K = 2; three at work."""
    return Server(
        make(FedBuff, **{"buffer_size": 2, "concurrency": 3, "staleness_exponent": 1.0} | options)
    )


# ------------------------------------------------------------------ FedAsync
def test_every_update_is_mixed_in_at_once() -> None:
    """Xie et al., Algorithm 1: x_t <- (1 - alpha_t) x_{t-1} + alpha_t x_new."""
    story = mixing()
    assert story.start("a", "b") == ["assign a,b <- 0 0 0"]
    assert story.deliver("a", 4, 8, -4) == ["publish 2 4 -2", "assign a <- 2 4 -2"]
    assert story.deliver("b", 0, 0, 0) == ["publish 1 2 -1", "assign b <- 1 2 -1"]
    assert story.deliver("a", 3, 2, 1) == ["publish 2 2 0", "assign a <- 2 2 0"]


@pytest.mark.parametrize(
    ("staleness", "a", "b", "at_0_1_5"),
    [
        ("constant", 0.5, 4.0, (1, 1, 1)),
        ("polynomial", 0.5, 4.0, (1, 2**-0.5, 6**-0.5)),  # s = (t - tau + 1)^-a
        ("polynomial", 1.0, 4.0, (1, 1 / 2, 1 / 6)),
        ("hinge", 10.0, 4.0, (1, 1, 1 / 11)),  # s = 1 up to b, then 1 / (a (t - tau - b) + 1)
        ("hinge", 0.5, 0.0, (1, 1 / 1.5, 1 / 3.5)),
    ],
)
def test_staleness_is_the_gap_in_versions_and_a_fresh_update_has_0(
    staleness: str, a: float, b: float, at_0_1_5: tuple[float, ...]
) -> None:
    options = FedAsyncOptions.model_validate({"staleness": staleness, "a": a, "b": b})
    assert [damping(options, gap) for gap in (0, 1, 5)] == pytest.approx(at_0_1_5, rel=1e-15)


def test_alpha_is_halved_once_from_a_version_on() -> None:
    story = mixing(concurrency=1, halve_alpha_at=2)
    story.start("a")
    assert [story.deliver("a", 16, 0, 0)[0] for _ in range(4)] == [
        "publish 8 0 0",
        "publish 12 0 0",
        "publish 13 0 0",
        "publish 13.75 0 0",
    ]


def test_an_update_beyond_the_bound_is_discarded_and_makes_no_version() -> None:
    story = mixing(max_staleness=1)
    story.start("a", "b")
    story.deliver("a", 8, 0, 0)
    assert story.deliver("b", 0, 0, 0)[0] == "publish 2 0 0", "gap 1 is at the bound"
    story.deliver("a", 2, 0, 0)
    story.deliver("a", 2, 0, 0)
    assert story.deliver("b", 9, 9, 9) == ["discard 3: too stale", "assign b <- 2 0 0"]
    assert story.strategy.version == 4


# ------------------------------------------------------------------ who works when


def test_a_request_for_a_fresher_model_is_answered_even_if_the_strategy_says_nothing_about_it() -> (
    None
):
    """A rule's checkpoint must be enough: an edge that waits and gets no answer would wait
    forever.
    """
    story = mixing()
    story.start("a", "b")
    story.give(FreshRequested("b", 1, 0, 5))
    (nothing,) = story.decisions
    assert isinstance(nothing, SendFresh) and (nothing.edge, nothing.task, nothing.weights) == (
        "b",
        1,
        None,
    )
    story.deliver("a", 4, 8, -4)
    story.give(FreshRequested("b", 1, 0, 5))
    (newer,) = story.decisions
    assert (
        isinstance(newer, SendFresh)
        and newer.weights is not None
        and newer.weights.tolist() == [2, 4, -2]
    )


def test_periodic_starts_min_of_m_and_cap_minus_running() -> None:
    """ALGORITHMS 1.1, step 1: every T seconds min(m', cap - running) idle devices."""
    story = mixing(dispatch="periodic", period_s=5.0, clients_per_trigger=2, concurrency=3)
    started = story.start("a", "b", "c", "d", "e")
    assert started[1] == "alarm dispatch at 5" and len(story.open) == 2
    assert story.ring(5 * S)[1:] == ["alarm dispatch at 10"] and len(story.open) == 3, (
        "min(2, 3 - 2) = 1"
    )
    assert story.ring(10 * S) == ["alarm dispatch at 15"] and len(story.open) == 3, (
        "min(2, 3 - 3) = 0"
    )
    first, second, _ = list(story.open)
    assert story.deliver(first, 0, 0, 0, now=11 * S) == ["publish 0 0 0"], (
        "no edge is replaced before the next trigger"
    )
    assert story.close(second) == [] and story.join("f") == []
    assert len(story.ring(15 * S)) == 2 and len(story.open) == 3


def test_the_journals_trigger_has_no_cap() -> None:
    """Algorithm 1 of FedASMU's journal paper: every T seconds m' devices, however many work."""
    story = mixing(dispatch="periodic", period_s=5.0, clients_per_trigger=2, concurrency="all")
    story.start("a", "b", "c", "d", "e")
    at_work = [len(story.open)]
    for trigger in (1, 2, 3):
        story.ring(5 * trigger * S)
        at_work.append(len(story.open))
    assert at_work == [2, 4, 5, 5], "min(2, idle)"
    story.join("f")
    story.ring(20 * S)
    assert len(story.open) == 6, "an edge that joins later may work, too"


def test_without_a_cap_all_edges_are_replaced_at_once() -> None:
    """Also in the rules that use the number of edges at work: FedDelay's tau_C is that of all."""
    for kind, options in ((FedAsync, {}), (FedBuff, {"buffer_size": 5}), (FedDelay, {})):
        story = Server(make(kind, concurrency="all", **options))
        story.start("a", "b", "c")
        assert len(story.open) == 3 and kind.concurrency(story.strategy.options, 40) == 40
        story.deliver(next(iter(story.open)), 1, 0, 0)
        assert len(story.open) == 3
        assert kind.warnings(story.strategy.options, 1) == []


@pytest.mark.parametrize("concurrency", ["all", 2, 1000])
def test_a_hundred_failed_tasks_of_each_edge_at_work_end_the_run(concurrency: int | str) -> None:
    closing = Server(make(FedAsync, concurrency=concurrency))
    closing.start("a", "b")
    closed, said = 0, list[str]()
    while closed < 1000 and not any(line.startswith("finish") for line in said):
        closed, said = closed + 1, closing.close(next(iter(closing.open)))
    assert closed == 2 * MOST_FAILED


# ------------------------------------------------------------------ FedBuff
def test_k_changes_make_one_step() -> None:
    """Nguyen et al., Algorithm 1: Delta_bar += Delta_i; at K updates w <- w + eta_g Delta_bar /
    K.
    """
    story = buffering()
    assert story.start("a", "b", "c") == ["assign a,b,c <- 0 0 0"]
    assert story.move("a", 2, 0, 0) == ["assign a <- 0 0 0"], "K - 1: no version yet"
    assert story.move("b", 0, 4, 0) == ["publish 1 2 0", "assign b <- 1 2 0"]
    assert story.strategy.version == 1 and story.strategy.gathered.sum is None


def test_the_sum_is_divided_by_k_not_by_the_weights() -> None:
    """c's gap is 1, so s = (1 + 1)^-1 = 1/2: (1/2 (8, 0, 0) + 1 (0, 0, 2)) / 2 = (2, 0, 1). By
    the weights' sum it would be (8/3, 0, 4/3).
    """
    story = buffering()
    story.start("a", "b", "c")
    story.move("a", 0, 0, 0)
    story.move("b", 0, 0, 0)
    story.move("c", 8, 0, 0)
    assert story.move("b", 0, 0, 2)[0] == "publish 2 0 1"


@pytest.mark.parametrize(
    ("exponent", "at_0_1_5"),
    [(0.5, (1, 2**-0.5, 6**-0.5)), (1.0, (1, 1 / 2, 1 / 6)), (0.0, (1, 1, 1))],
)
def test_the_damping_of_a_gap(exponent: float, at_0_1_5: tuple[float, ...]) -> None:
    """s(tau) = (1 + tau)^-p with p = 1/2; a fresh update has tau = 0."""
    for gap, expected in zip((0, 1, 5), at_0_1_5):
        story = buffering(buffer_size=1, concurrency=2, staleness_exponent=exponent)
        story.start("a", "b")
        for _ in range(gap):
            story.move("a", 0, 0, 0)
        story.move("b", 1, 0, 0)
        assert story.weights[0] == pytest.approx(expected, rel=1e-6)


def test_the_server_learning_rate_scales_the_step() -> None:
    story = buffering(server_learning_rate=0.5)
    story.start("a", "b", "c")
    story.move("a", 8, 0, 0)
    assert story.move("b", 0, 8, 0)[0] == "publish 2 2 0"


def test_the_edge_that_fills_the_buffer_is_replaced_after_the_step_or_before_it() -> None:
    after, before = buffering(concurrency=2), buffering(concurrency=2, dispatch_before_step=True)
    for story in (after, before):
        story.start("a", "b")
        story.move("a", 2, 0, 0)
    assert after.move("b", 2, 0, 0) == ["publish 2 0 0", "assign b <- 2 0 0"]
    assert before.move("b", 2, 0, 0) == [
        "assign b <- 0 0 0",
        "publish 2 0 0",
    ], "FedEcho's listing: the old model"
    assert before.open["b"][1] == 0 and before.strategy.running == {"a": 0, "b": 0}


# ------------------------------------------------------------------ running statistics
def normalised(kind: type[Strategy], **options: Any) -> Server:
    """One weight, at 0, and one running variance, at 4; two updates a step."""
    entries = (
        LayoutEntry("w", (1,), 0, "parameter", ""),
        LayoutEntry("running_var", (1,), 1, "buffer", ""),
    )
    given = {"buffer_size": 2, "concurrency": 2} | options
    return Server(kind(vector(0, 4), Layout(entries), kind.Options(**given), Streams(1)))


@pytest.mark.parametrize(
    ("kind", "options"), [(FedBuff, {"staleness_exponent": 0.0}), (CA2FL, {}), (FADAS, {})]
)
@pytest.mark.parametrize("rate", [0.1, 1.0, 10.0])
def test_running_statistics_are_averaged_whatever_the_server_s_learning_rate(
    kind: type[Strategy], options: dict[str, Any], rate: float
) -> None:
    """ALGORITHMS 0.3: a plain weighted average. As changes, 4 + 10 ((1 - 4) + (2 - 4)) / 2 would
    make a variance of -21.
    """
    story = normalised(kind, server_learning_rate=rate, **options)
    story.start("a", "b")
    story.deliver("a", 1, 1)
    story.deliver("b", 1, 2)
    assert story.weights[0] > 0 and story.weights[1] == 1.5
    story.deliver("a", 1, 3)
    story.deliver("b", 1, 5)
    assert story.weights[1] == 4, "nothing of the former buffer is left"


def test_a_damped_update_counts_less_for_the_running_statistics_too() -> None:
    """s = 1 and 1/2, K = 2: (1 - 0.75) 4 + 0.5 x 2 + 0.25 x 8 = 4."""
    story = normalised(FedBuff, staleness_exponent=1.0)
    story.start("a", "b")
    story.deliver("a", 0, 4)
    story.deliver("a", 0, 4)
    story.deliver("a", 0, 2)
    story.deliver("b", 0, 8)
    assert story.weights[1] == 4
