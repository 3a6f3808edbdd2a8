"""K-async SGD and its variants by hand: when an edge gets the new model, and the weights of the
gradients (Dutta et al. 2018; WKAFL, arXiv 2203.01214, 6.1.2).
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from builders import Desk, experiment, make, vector
from gradient_server import GradientServer, gradient, moved

from edgefl.config.file import check_names
from edgefl.config.section import Source
from edgefl.errors import UserError
from edgefl.protocol.messages import Update
from edgefl.strategies.base.events_and_decisions import Report
from edgefl.strategies.base.gradients import Gradients
from edgefl.strategies.base.strategy import MOST_FAILED
from edgefl.strategies.gsgm import GSGM
from edgefl.strategies.k_async import KAsync
from edgefl.strategies.sasgd import SASGD
from edgefl.strategies.twafl import TWAFL


def served(
    kind: type[Gradients] = KAsync, edges: str = "abcd", **options: object
) -> GradientServer:
    server = GradientServer(
        make(kind, (0, 0), **{"buffer_size": 2, "server_learning_rate": 1.0} | options)
    )
    server.start(*edges)
    return server


# ------------------------------------------------------------------ the frame
def test_everybody_works_and_the_first_two_make_a_step_and_get_the_new_model() -> None:
    server = GradientServer(make(KAsync, (0, 0), buffer_size=2, server_learning_rate=0.5))
    assert server.start("a", "b", "c", "d") == ["assign a,b,c,d <- 0 0"]
    assert server.send("c", 2, 0) == []  # it waits, without work
    report, *rest = server.send("a", 0, 4)
    assert rest == ["publish -0.5 -1", "assign a,c <- -0.5 -1"] and report.startswith(
        "report gradients=2 weighted_staleness=0 aggregated=2 predominant=2"
    )
    assert set(server.open) == {"a", "b", "c", "d"}


def test_the_others_go_on_with_the_old_model_and_are_stale() -> None:
    server = served()
    server.send("a", 1, 0), server.send("b", 1, 0)
    server.send("a", 1, 0), server.send("c", 1, 0)
    assert server.report["weighted_staleness"] == 0.5, "a fresh, c of version 0"
    server.send("a", 1, 0), server.send("d", 1, 0)
    assert server.report["weighted_staleness"] == 1.0, "a fresh, d two versions behind"


def test_when_too_few_are_left_the_last_delivery_makes_the_step() -> None:
    server = served(edges="abc", buffer_size=3)
    server.send("a", 3, 0)
    server.lose("b"), server.close("b")
    server.send("c", 1, 0)
    assert server.weights == [-2, 0] and server.report["gradients"] == 2


def test_the_shares_of_a_step_are_reported_with_their_edges_if_asked_for() -> None:
    """TWAFL at gaps 0 and 1: p = 1 / (1 + 2/e) and the rest."""
    server = served(TWAFL, report_shares=True)
    server.send("a", 1, 0), server.send("b", 1, 0)
    server.send("d", 1, 0), server.send("a", 1, 0)
    step, *shares = [each for each in server.decisions if isinstance(each, Report)]
    fresh = 1 / (1 + 2 / math.e)
    assert [each.edge for each in shares] == ["a", "d"] and step.edge is None
    assert [each.values for each in shares] == [
        {"share": pytest.approx(fresh)},
        {"share": pytest.approx(1 - fresh)},
    ]
    plain = served(TWAFL)
    plain.send("a", 1, 0), plain.send("b", 1, 0)
    assert sum(isinstance(each, Report) for each in plain.decisions) == 1


def test_a_run_in_which_nothing_is_delivered_ends() -> None:
    server = served(edges="ab")
    ends = [server.close("a", "not finite") for _ in range(MOST_FAILED * 2)]
    assert ends[-2] == ["assign a <- 0 0"] and ends[-1] == ["finish: no task delivers: not finite"]


def test_running_statistics_are_mixed_not_stepped() -> None:
    """The buffers behind the parameters: the mean by the gradients' shares."""
    strategy = make(KAsync, (0, 0, 9), buffer_size=2, server_learning_rate=1.0)
    strategy.parameters = 2
    made = strategy.step([gradient(1, 0), gradient(3, 0)])
    assert strategy.stepped(made.terms, [vector(4), vector(6)], made.shares).tolist() == [-2, 0, 5]
    assert strategy.stepped(made.terms, [vector(4), None], made.shares).tolist() == [
        -2,
        0,
        9,
    ], "one did not send them"


@pytest.mark.parametrize(
    ("vectors", "reason"),
    [
        ({"gradient": vector(1)}, "wrong length"),
        ({"weights": vector(1, 2)}, "wrong length"),
        ({"gradient": vector(1, math.nan)}, "not finite"),
    ],
)
def test_a_gradient_that_cannot_be_used_is_discarded_with_its_reason(
    vectors: dict[str, np.ndarray], reason: str, tmp_path: Path
) -> None:
    desk = Desk(tmp_path, make(KAsync, (0, 0), buffer_size=2))
    desk.start("a", "b")
    out = desk.hear("a", Update(0, 0, vectors, {"samples": 1.0, "loss": 1.0}))
    assert out == ["a <- Acknowledged 0", "a <- task 2 v0 (0 0)"]
    assert [fact["reason"] for fact in desk.facts("discarded")] == [reason]


def test_more_gradients_than_edges_are_refused() -> None:
    with pytest.raises(
        UserError, match=r"buffer_size: expected at most 3, as many as there are edges, found 4"
    ):
        check_names(
            experiment(strategies=[{"strategy": "wkafl", "buffer_size": 4}]),
            Source("my.toml"),
            None,
        )


# ------------------------------------------------------------------ TWAFL
def test_twafl_weighs_by_the_batch_and_half_e_to_the_minus_gap() -> None:
    """c ~ m_i (e/2)^-tau: 1 and 3 samples, gaps 0 and 2."""
    raw = [1.0, 3 * (math.e / 2) ** -2]
    expected = np.array(raw) / sum(raw)
    strategy = make(TWAFL, (0, 0), server_learning_rate=2.0)
    assert moved(
        strategy, [gradient(1, 0, batch=1), gradient(0, 1, gap=2, batch=3)]
    ) == pytest.approx(2 * expected)


def test_twafl_un_normalised_is_the_paper_s_sum() -> None:
    """Fresh gradients have full weight, gap 1 has 2/e = .736: with a count from 1, all weights
    would have this factor.
    """
    strategy = make(TWAFL, (0, 0), server_learning_rate=1.0, normalised=False)
    assert moved(strategy, [gradient(1, 0), gradient(0, 1, gap=1)]) == pytest.approx(
        [0.5, 0.5 * 0.7357589]
    )


@pytest.mark.parametrize("normalised", [True, False])
def test_twafl_at_gaps_where_all_weights_underflow_uses_the_freshest(normalised: bool) -> None:
    """(e/2)^-5000 is 0 in any float."""
    strategy = make(TWAFL, (0, 0), server_learning_rate=1.0, normalised=normalised)
    assert moved(strategy, [gradient(1, 0, gap=5000), gradient(0, 1, gap=9000)]).tolist() == [1, 0]


def test_twafl_may_clip_as_wkafl_does() -> None:
    """(6, 8) and (0, 2) at CB = 5: the first becomes (3, 4); each counts a half."""
    strategy = make(TWAFL, (0, 0), server_learning_rate=1.0, clip_norm=5.0)
    taken = [gradient(6, 8), gradient(0, 2)]
    assert moved(strategy, taken) == pytest.approx([1.5, 3])
    assert strategy.step(taken).report == {"clipped": 1.0}
    assert make(TWAFL, (0, 0)).step(taken).report == {}, "without a bound nothing is said of it"


# ------------------------------------------------------------------ SASGD
@pytest.mark.parametrize(
    ("base", "gaps", "inverse"), [(1, (0, 1, 5), (1, 1 / 2, 1 / 6)), (0, (0, 1, 5), (1, 1, 1 / 5))]
)
def test_sasgd_divides_the_rate_by_staleness_and_never_by_zero(
    base: int, gaps: tuple[int, ...], inverse: tuple[float, ...]
) -> None:
    """w <- w - (1/K) sum (eta_0/tau_i) g_i. The code: tau = gap + 1; the original: gap 0 and 1
    alike eta_0.
    """
    strategy = make(SASGD, (0, 0, 0), server_learning_rate=3.0, staleness_from=base)
    assert moved(
        strategy, [gradient(*row, gap=gap) for row, gap in zip(np.eye(3), gaps)]
    ) == pytest.approx(inverse)


# ------------------------------------------------------------------ GSGM
def test_gsgm_s_rounds_by_hand() -> None:
    """P = 4, K = 2, a_m = .5, eta = 1. Round 1 has no momentum; Mom = (u_1 + u_2) / 2
    afterwards.
    """
    server = served(GSGM, momentum=0.5)
    server.send("a", 2, 0)
    assert server.send("b", 0, 2)[1:] == ["publish -1 -1"], (
        "u = (1, 1); both are blocked: no edge gets work"
    )
    server.send("c", 4, 0)
    assert server.send("d", 0, 0)[1:] == [
        "publish -3 -1",
        "assign a,b,c,d <- -3 -1",
    ], "u = (2, 0); the round is over"
    server.send("d", 0, 0)
    assert server.send("a", 0, 0)[1:] == ["publish -3.75 -1.25"], "u = .5 Mom, Mom = (1.5, .5)"
    server.send("b", 0, 0), server.send("c", 0, 0)
    assert server.weights == [-4.5, -1.5]
    server.send("a", 0, 0), server.send("b", 0, 0)
    assert server.weights == [-4.875, -1.625], "now Mom = (.75, .25)"


def test_gsgm_s_edge_that_failed_starts_again_from_its_own_last_step() -> None:
    server = served(GSGM, momentum=0.0, start_from="own step")
    for edge in "abcd":
        server.send(edge, 1, 0)
    server.send("b", 1, 0), server.send("c", 1, 0), server.close("a", "not finite")
    server.send("d", 1, 0)
    assert {edge: base.tolist() for edge, (_, _, base) in server.open.items()} == {
        "a": [-1, 0],
        "b": [-3, 0],
        "c": [-3, 0],
        "d": [-4, 0],
    }


def test_gsgm_s_momentum_is_the_mean_of_those_that_delivered() -> None:
    """P = 4, two fail: acc = 2/4 (2, 0), and Mom is the mean (2, 0) of the two."""
    server = served(GSGM, momentum=0.5)
    server.send("a", 2, 0), server.close("b"), server.close("c"), server.send("d", 2, 0)
    server.send("a", 0, 0), server.send("b", 0, 0)
    assert server.weights == [-3, 0], "u = (2, 0), then .5 Mom"


def test_gsgm_s_last_step_of_a_round_takes_what_is_left() -> None:
    """P = 3, K = 2: the third gradient makes a step alone, and is a third of the momentum."""
    server = served(GSGM, "abc", momentum=0.5)
    server.send("a", 3, 0), server.send("b", 3, 0)
    assert server.send("c", 0, 6)[1:] == ["publish -3 -6", "assign a,b,c <- -3 -6"]
    server.send("a", 0, 0), server.send("b", 0, 0)
    assert server.weights == [-4, -7], "Mom = 2/3 (3, 0) + 1/3 (0, 6) = (2, 2)"
