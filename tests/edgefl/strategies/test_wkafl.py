"""WKAFL equation by equation, with separate tests for the errata of its printed form (Zhou et al.
2022, arXiv 2203.01214).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from builders import make
from gradient_server import gradient, moved

from edgefl.strategies.base.gradients import GradientRule, GradientStep
from edgefl.strategies.wkafl import (
    MEASURED_AT,
    MEASURED_STEPS,
    WKAFL,
    WKAFLNoNonIID,
    WKAFLNoSelection,
    WKAFLNoStaleness,
)

PLAIN: dict[str, Any] = {"server_learning_rate": 1.0, "momentum": 0.0, "staleness_damping": 0.0}


def wkafl(kind: type[WKAFL] = WKAFL, size: int = 2, **options: Any) -> WKAFL:
    """Without momentum and adapted rate by default: one step moves w by -G."""
    strategy = make(kind, (0,) * size, **PLAIN | options)
    assert isinstance(strategy, WKAFL)
    return strategy


def by_the_book(
    g: np.ndarray, gaps: Sequence[int], past: np.ndarray, stage: int, o: Any
) -> np.ndarray:
    """eta_j G_j, computed line by line as in the paper, in float64."""
    with_past = g + o.momentum * past  # eq. 4
    clipped = np.array([v * min(1, o.clip_norm / np.linalg.norm(v)) for v in with_past])
    a = np.array([(math.e / 2) ** -gap for gap in gaps])
    estimate = (a[:, None] * clipped).sum(axis=0) / a.sum()  # eq. 5
    sims = np.array(
        [v @ estimate / (np.linalg.norm(v) * np.linalg.norm(estimate)) for v in clipped]
    )
    p = np.where(sims >= o.least_similarity, np.exp(o.similarity_weight * sims), 0)
    bound = o.norm_ratio * np.linalg.norm(estimate)
    if stage == 2:
        clipped = np.array(
            [v * bound / np.linalg.norm(v) if np.linalg.norm(v) >= bound else v for v in clipped]
        )
    found = (p[:, None] * clipped).sum(axis=0) / p.sum() if p.any() else estimate
    return o.server_learning_rate / (1 + o.staleness_damping * min(gaps)) * found  # eq. 9, 10


@pytest.mark.parametrize("stage", [1, 2])
@pytest.mark.parametrize("seed", range(5))
def test_two_steps_are_the_paper_s(seed: int, stage: int) -> None:
    """The inner products and the one weighted sum of the code against the equations as they are
    written.
    """
    rng = np.random.Generator(np.random.PCG64(seed))
    options = {
        "momentum": 0.5,
        "clip_norm": 2.0,
        "norm_ratio": 0.8,
        "staleness_damping": 0.1,
        "server_learning_rate": 0.3,
        "stage_two_at": 0 if stage == 2 else 99,
    }
    strategy, past = wkafl(size=4, **options), np.zeros(4)
    for _ in range(2):
        rows, gaps = rng.normal(1, 1, (5, 4)).astype(np.float32), rng.integers(0, 6, 5).tolist()
        taken = [gradient(*row, gap=gap) for row, gap in zip(rows, gaps)]
        assert moved(strategy, taken) == pytest.approx(
            by_the_book(rows.astype(np.float64), gaps, past, stage, strategy.options),
            rel=1e-5,
            abs=1e-6,
        )
        past = strategy.past.astype(np.float64)


# ------------------------------------------------------------------ 1: the last estimate is added


def test_the_code_s_momentum_of_the_selection_is_a_switch() -> None:
    strategy = wkafl(momentum=0.5, least_similarity=0.8, momentum_of="selected")
    moved(strategy, [gradient(2, 0), gradient(0, 4)])
    assert moved(strategy, [gradient(1, 1), gradient(1, 1)]) == pytest.approx([1, 3])


# ------------------------------------------------------------------ 4: staleness


def test_staleness_at_which_every_weight_underflows_leaves_the_freshest() -> None:
    """Underflow: (e/2)^-4000 is 0 in float64, and 0/0 would follow."""
    strategy = wkafl()
    moved(strategy, [gradient(1, 0, gap=4000), gradient(0, 1, gap=9000)])
    assert strategy.past.tolist() == [1, 0]


def test_a_similarity_equal_to_the_threshold_is_kept() -> None:
    """Definitions 3.1 and 3.2 leave it open; eq. 7 keeps it. One gradient: its cosine with
    itself is 1.
    """
    assert wkafl(least_similarity=1.0).step([gradient(1, 0)]).report["selected"] == 1


# ------------------------------------------------------------------ 5: selection


def test_all_similarities_below_the_threshold_leave_the_estimate() -> None:
    """The paper divides 0 by 0; its code falls back to gbar."""
    strategy = wkafl(least_similarity=0.9)
    step = strategy.step([gradient(1, 0), gradient(0, 1)])
    assert step.report["selected"] == 0 and strategy.past == pytest.approx([0.5, 0.5])
    assert [(vector.tolist(), factor) for vector, factor in step.terms] == [
        ([0.5, 0.5], 1.0)
    ] and list(step.shares) == [0.5, 0.5]


def test_a_gradient_of_zeros_harms_nobody() -> None:
    assert moved(wkafl(), [gradient(0, 0), gradient(2, 0)]) == pytest.approx([2, 0])
    assert moved(wkafl(momentum=0.5), [gradient(0, 0)]).tolist() == [0, 0]


@pytest.mark.filterwarnings("ignore:overflow")
@pytest.mark.parametrize("kind", [WKAFL, WKAFLNoNonIID])
def test_gradients_that_are_all_too_long_to_be_measured_leave_the_model_where_it_is(
    kind: type[WKAFL],
) -> None:
    strategy = wkafl(kind)
    for _ in range(2):
        assert moved(strategy, [gradient(1e30, 0), gradient(0, 1e30)]).tolist() == [0, 0]


def test_the_code_s_staleness_in_the_selection_is_a_switch() -> None:
    options = {"similarity_weight": 0.0, "least_similarity": 0.0}
    taken = [gradient(1, 0), gradient(0, 1, gap=2)]
    assert list(wkafl(**options).step(taken).shares) == pytest.approx([0.5, 0.5])
    weight = (math.e / 2) ** -2
    assert list(
        wkafl(**options, selected_by="similarity and staleness").step(taken).shares
    ) == pytest.approx([1 / (1 + weight), weight / (1 + weight)])


# ------------------------------------------------------------------ 2 and 6: the second stage
def test_stage_2_begins_when_the_mean_loss_is_at_epsilon_and_never_ends() -> None:
    """The listing prints the sum of the losses, text and intent are the mean: 2 losses of .5 at
    eps = .5.
    """
    strategy = wkafl(stage_two_loss=0.5)
    stages = [
        strategy.step([gradient(1, 0, loss=loss)] * 2).report["stage"] for loss in (0.6, 0.5, 9.0)
    ]
    assert stages == [1, 2, 2]


def test_epsilon_is_half_of_the_mean_loss_of_ten_steps_after_50_unless_it_is_given() -> None:
    """One step's loss is that of K devices of one label each, and says little: here the first is
    much too low, and the mean of the ten is 2. So eps = 1.
    """
    strategy, stages = wkafl(), {}
    measured = [0.2, 3.8, *[2.0] * (MEASURED_STEPS - 2)]
    losses = {0: 0.0, MEASURED_AT - 1: 0.1}
    losses |= {MEASURED_AT + number: loss for number, loss in enumerate(measured)}
    end = MEASURED_AT + MEASURED_STEPS
    for version, loss in (losses | {end: 1.1, end + 1: 1.0, end + 2: 9.0}).items():
        strategy.version = version
        stages[version] = strategy.step([gradient(1, 0, loss=loss)]).report["stage"]
    assert strategy.stage_two_loss == pytest.approx(1.0)
    assert [version for version, stage in stages.items() if stage == 2] == [end + 1, end + 2]


def test_stage_2_may_begin_at_a_version_as_in_the_code() -> None:
    strategy = wkafl(stage_two_at=1, stage_two_loss=5.0)
    assert strategy.step([gradient(1, 0, loss=0.0)]).report["stage"] == 1, "the loss has no say"
    strategy.version = 1
    assert strategy.step([gradient(1, 0, loss=9.0)]).report["stage"] == 2


# ------------------------------------------------------------------ 8: the rate
@pytest.mark.parametrize(
    ("gaps", "rate"), [((0, 7), 0.3), ((1, 7), 0.3 / 1.1), ((5, 5), 0.3 / 1.5)]
)
def test_eq_10_divides_the_rate_by_the_least_staleness_and_fresh_is_0(
    gaps: tuple[int, int], rate: float
) -> None:
    """eta_j = eta_0 / (1 + gamma min tau). Zero staleness leaves eta_0: the code, which counts
    from 1, never has it.
    """
    step = wkafl(server_learning_rate=0.3, staleness_damping=0.1).step(
        [gradient(1, 0, gap=gap) for gap in gaps]
    )
    assert step.report["learning_rate"] == pytest.approx(rate)


# ------------------------------------------------------------------ the ablations
TAKEN = [gradient(1, 0), gradient(0, 1, gap=2), gradient(1, 1, gap=4)]


def two_steps(
    kind: type[WKAFL], first: Sequence[GradientRule] = TAKEN, second: Sequence[GradientRule] = TAKEN
) -> tuple[GradientStep, np.ndarray]:
    strategy = wkafl(kind, momentum=0.5, staleness_damping=0.1)
    strategy.step(first)
    return strategy.step(second), strategy.past


def test_without_selection_the_estimate_is_the_step() -> None:
    step, past = two_steps(WKAFLNoSelection)
    assert [vector is past for vector, _ in step.terms] == [True] and "selected" not in step.report


def test_without_staleness_all_count_alike_and_the_rate_is_eta_0() -> None:
    stale = [gradient(2, 0, gap=5), gradient(0, 2, gap=9)]
    strategy = wkafl(WKAFLNoStaleness, staleness_damping=0.1)
    assert strategy.step(stale).report["learning_rate"] == 1.0 and strategy.past.tolist() == [1, 1]


def test_without_the_non_iid_term_nothing_is_added() -> None:
    strategy = wkafl(WKAFLNoNonIID, momentum=0.5)
    moved(strategy, [gradient(8, 0)])
    assert moved(strategy, [gradient(0, 1)]) == pytest.approx([0, 1])
