"""FedLWS by hand: layer groups, the shrinking factor, and its limits (Shi et al. 2025)."""

from __future__ import annotations

import pytest
from builders import Server, make, vector
from pydantic import ValidationError

from edgefl.strategies.fedlws import FedLWS, FedLWSOptions, layers, shrinking
from edgefl.vectors import Layout, LayoutEntry

CONV_AND_NORM = Layout(
    (
        LayoutEntry("conv.weight", (2,), 0, "parameter", "conv"),
        LayoutEntry("norm.weight", (1,), 2, "parameter", "norm"),
        LayoutEntry("norm.bias", (1,), 3, "parameter", "norm"),
        LayoutEntry("head.weight", (2,), 4, "parameter", "head"),
        LayoutEntry("head.bias", (1,), 6, "parameter", "head"),
        LayoutEntry("norm.running_var", (1,), 7, "buffer", "norm"),
    )
)


def test_a_layer_is_a_module_s_own_parameters_and_no_buffer() -> None:
    """This differs from the authors' code: there, the running statistics of a normalisation belong
    to the next layer and shrink with it.
    """
    assert layers(CONV_AND_NORM) == [slice(0, 2), slice(2, 4), slice(4, 7)]


def test_gamma_by_hand() -> None:
    """w_prev = (3, 4), ends (7, 4) and (3, 12), mean (5, 8): u = (2, 4); each end lies sqrt(20)
    from the mean of ends, tau = 0.02 sqrt(20); gamma = 5 / (5 + tau sqrt(20)) = 5 / 5.4.
    """
    ends = [vector(7, 4), vector(3, 12)]
    assert shrinking(vector(3, 4), vector(5, 8), ends, FedLWSOptions(beta=0.02)) == pytest.approx(
        5 / 5.4, rel=1e-6
    )


def test_the_disagreement_is_about_the_plain_mean_of_three() -> None:
    """Ends (3, 4), (3, 4), (3, 10) lie 2, 2, 4 from their mean (3, 6), whatever the weighted mean
    is: tau = 0.03 x 8/3 = 0.08. With all the samples at the third, u = (0, 6): gamma = 5 / (5 +
    0.08 x 6). About the weighted mean they would lie 6, 6, 0. (Of two, each lies half way.)
    """
    ends = [vector(3, 4), vector(3, 4), vector(3, 10)]
    assert shrinking(vector(3, 4), vector(3, 10), ends, FedLWSOptions()) == pytest.approx(
        5 / 5.48, rel=1e-6
    )


def test_a_layer_of_zeros_is_not_held_at_zero() -> None:
    """||w_prev|| = 0 gives gamma 0, or 0/0: the layer would always stay zero."""
    assert (
        shrinking(vector(0, 0), vector(1, 1), [vector(1, 1)], FedLWSOptions())
        == shrinking(vector(0, 0), vector(0, 0), [vector(0, 0)], FedLWSOptions())
        == 1
    )


def test_each_layer_of_fedavg_s_mean_shrinks_by_its_own_factor() -> None:
    """n = 1 and 3; layer one moves alike (tau_min), layer two not at all (gamma 1), the buffer
    is FedAvg's mean.
    """
    layout = Layout(
        (
            LayoutEntry("a.w", (2,), 0, "parameter", "a"),
            LayoutEntry("b.w", (1,), 2, "parameter", "b"),
            LayoutEntry("b.v", (1,), 3, "buffer", "b"),
        )
    )
    strategy = make(FedLWS, (3, 4, 7, 1), clients_per_round=2)
    strategy.layout = layout
    story = Server(strategy)
    story.start("a", "b")
    story.deliver("a", 6, 8, 7, 1, samples=1)
    story.deliver("b", 6, 8, 7, 5, samples=3)
    assert story.weights == pytest.approx([6 / 1.01, 8 / 1.01, 7, 4], rel=1e-6)


def test_limits_in_the_wrong_order_are_said_in_words() -> None:
    with pytest.raises(ValidationError, match="tau_min 0.3 is above tau_max 0.2"):
        FedLWSOptions(tau_min=0.3)
