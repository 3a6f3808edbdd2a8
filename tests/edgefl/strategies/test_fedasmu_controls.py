"""FedASMU's equations and the derivatives of its control parameters, against autograd and by hand.

Tests of errata have the number of the erratum in their names.
"""

from __future__ import annotations

from math import log, sqrt
from typing import Any

import numpy as np
import pytest
import torch
from builders import S, Server, make
from hypothesis import given
from hypothesis import strategies as st
from merging import deliver, descended, local_run, loss, rule

from edgefl.strategies.dissemination.learned import (
    LEAST_ALPHA,
    DeviceControls,
    ServerControls,
    clipped,
    weight,
)
from edgefl.strategies.fedasmu import FedASMU
from edgefl.strategies.fedssmu import FedSSMU

ETA = {"eta_lambda": 1e-3, "eta_sigma": 1e-3, "eta_iota": 1e-3}
FIRST = {"lambda0": 1.2, "sigma0": 0.7, "iota0": 0.2, "mu_alpha": 1.5}
W_B, W_A, W_C = (2.0, 1.0, -1.0), (-1.0, 3.0, 0.5), (0.5, -2.0, 1.5)


def alpha(controls: tuple[torch.Tensor, ...], t: int, staleness: int) -> torch.Tensor:
    """Eq. 2, implemented a second time."""
    xi = controls[0] / (t**0.5 * staleness ** controls[1]) + controls[2]
    return FIRST["mu_alpha"] * xi / (1 + FIRST["mu_alpha"] * xi)


def by_autograd(last: str, start: tuple[float, ...] = (1.0, 1.0, 1.0)) -> list[float]:
    """dF(w_3)/d(lambda, sigma, iota) of the step that mixed ``last``: b fresh, a stale by 1, c
    by 2, all from w_0.
    """
    fixed = tuple(
        torch.tensor(FIRST[name], dtype=torch.float64) for name in ("lambda0", "sigma0", "iota0")
    )
    moving = tuple(value.clone().requires_grad_() for value in fixed)
    w = torch.tensor(start, dtype=torch.float64)
    for number, (edge, start_of) in enumerate((("b", W_B), ("a", W_A), ("c", W_C))):
        weigh = alpha(moving if edge == last else fixed, number + 1, number + 1)
        w = w + weigh * (torch.tensor(start_of, dtype=torch.float64) - w)
    return [float(slope) for slope in torch.autograd.grad(loss(w), moving)]


def learned(values: dict[str, float]) -> list[float]:
    """The derivatives, computed from the first step of the controls."""
    return [
        (FIRST[f"{name}0"] - values[name]) / ETA[f"eta_{name}"]
        for name in ("lambda", "sigma", "iota")
    ]


def third_model(**options: Any) -> Server:
    """All three have delivered and work again, from version 3."""
    server = Server(
        make(
            FedASMU,
            (1, 1, 1),
            dispatch="periodic",
            concurrency=3,
            most_product=1e6,
            **FIRST | ETA | options,
        )
    )
    server.start("a", "b", "c")
    for edge, weights in (("b", W_B), ("a", W_A), ("c", W_C)):
        deliver(server, edge, weights)
    server.ring(10 * S)
    assert [version for _, version, _ in server.open.values()] == [3, 3, 3]
    return server


def one_round(**options: Any) -> Server:
    """FedSSMU after its first round, with the same deliveries; all three work again."""
    server = Server(
        make(
            FedSSMU,
            (1, 1, 1),
            clients_per_round=3,
            most_product=1e6,
            index="aggregation",
            **FIRST | ETA | options,
        )
    )
    server.start("a", "b", "c")
    for edge, weights in (("b", W_B), ("a", W_A), ("c", W_C)):
        deliver(server, edge, weights)
    assert len(server.open) == 3
    return server


# ------------------------------------------------------------------ derivatives
@pytest.mark.parametrize("edge", ["a", "b"])
def test_per_device_derivatives_are_those_of_autograd(edge: str) -> None:
    """Chain rule through the later steps: prod (1 - alpha_k) (W - w_q) d alpha_q."""
    server = third_model()
    values = deliver(server, edge, descended(server, edge))
    assert learned(values) == pytest.approx(by_autograd(edge), rel=1e-4)


def test_shared_derivatives_are_those_of_autograd() -> None:
    """The triple of the step that made w_3, which was that of c, whichever device uploads."""
    for edge in "ab":
        server = third_model(controls="shared")
        assert learned(deliver(server, edge, descended(server, edge))) == pytest.approx(
            by_autograd("c"), rel=1e-4
        )


def test_fedssmu_derivatives_per_device_are_those_of_autograd() -> None:
    """Rounds of three, t = number of aggregations + 1: the first round is the story above."""
    server = one_round()
    assert learned(deliver(server, "a", descended(server, "a"))) == pytest.approx(
        by_autograd("a"), rel=1e-4
    )


def test_fedssmu_shared_derivatives_are_those_of_autograd() -> None:
    """The aggregation before is that of c, and its triple had learned twice in the round: from
    b's aggregation, then from a's.
    """
    server = one_round(controls="shared")
    step = server.strategy.weighing.steps[3]
    triple = [
        torch.tensor(value, dtype=torch.float64, requires_grad=True)
        for value in (step.controls.lam, step.controls.sigma, step.controls.iota)
    ]
    older, given = (
        torch.tensor(values, dtype=torch.float64) for values in (step.older.tolist(), W_C)
    )
    slopes = torch.autograd.grad(loss(older + alpha(tuple(triple), 3, 3) * (given - older)), triple)
    values = deliver(server, "a", descended(server, "a"))
    found = [
        (value.item() - values[name]) / 1e-3
        for name, value in zip(("lambda", "sigma", "iota"), triple)
    ]
    assert found == pytest.approx([float(slope) for slope in slopes], rel=1e-4)


@pytest.mark.parametrize(("version", "fresh"), [(0, 1), (4, 11), (99, 103)])
def test_device_derivatives_are_those_of_autograd(version: int, fresh: int) -> None:
    run = local_run(1.0, -2.0, 0.5, version=version, refresh_point=3.0)
    device = rule(
        mu_beta=4.0, gamma0=1.3, upsilon0=0.6, eta_gamma=1e-2, eta_upsilon=1e-2, most_product=1e6
    )
    model = np.array([0.5, 1.0, 2.0], dtype=np.float32)
    gamma, upsilon = (
        torch.tensor(value, dtype=torch.float64, requires_grad=True) for value in (1.3, 0.6)
    )
    phi = gamma / (fresh + 1) ** 0.5 * (1 - upsilon / (fresh - version + 1) ** 0.5)
    beta, before = 4 * phi / (1 + 4 * phi), run.weights.double()
    slopes = torch.autograd.grad(
        loss(before + beta * (torch.from_numpy(model).double() - before)), (gamma, upsilon)
    )
    device.merge(run, model, fresh)
    numbers = device.payload(run)[1]
    assert numbers["beta"] == pytest.approx(beta.item(), rel=1e-12)
    assert [(1.3 - numbers["gamma"]) / 1e-2, (0.6 - numbers["upsilon"]) / 1e-2] == pytest.approx(
        [float(slope) for slope in slopes], rel=1e-4
    )


# ------------------------------------------------------------------ errata
def alone(**options: Any) -> Server:
    """One device; its first model came half of the way, alpha = 1/2 (xi = 1 at t = 1), from (4,
    0, 0) to (2, 0, 0): w_1 = (3, 0, 0).
    """
    first = {"mu_alpha": 1.0, "lambda0": 0.5, "iota0": 0.5, "most_product": 1e6}
    server = Server(
        make(FedASMU, (4, 0, 0), dispatch="replace", concurrency=1, **first | ETA | options)
    )
    server.start("a")
    assert deliver(server, "a", (2, 0, 0))["alpha"] == 0.5 and server.weights == [3, 0, 0]
    return server


def test_a1_the_gradient_is_where_a_device_began_minus_where_it_ended() -> None:
    """g = (w_o - w_i) / (eta n) = 0.8 / 0.08 = 10; W - w_q = -2: p = -20, so lambda and iota rise:
    mixing that model in was right.

    K = mu / (1 + mu xi)^2 = 1/4, so each moves by 1e-3 x 20 / 4.
    """
    values = deliver(alone(), "a", (3 - 0.8, 0, 0))
    assert values["product"] == pytest.approx(-20, rel=1e-5)
    assert (values["lambda"], values["iota"]) == pytest.approx((0.505, 0.505), rel=1e-6) and values[
        "sigma"
    ] == 0.5


def test_a2_the_local_model_is_the_one_that_arrives_now() -> None:
    """Trained from w_o, not the one that was mixed into w_o; and divided by SGD steps, not by
    epochs.
    """
    before = alone()
    same_as_before = deliver(
        before, "a", before.weights
    )  # did not move: no gradient, though W - w_o is not 0
    assert same_as_before["product"] == 0 and same_as_before["lambda"] == 0.5
    assert deliver(alone(), "a", (2.2, 0, 0), steps=16.0)["product"] == pytest.approx(-10, rel=1e-5)


def test_a4_square_roots_count_versions_from_1_and_staleness_does_not_change() -> None:
    """The first aggregation has t = 1, and a fresh update s = 1: xi = lambda + iota; the second
    sqrt(2).
    """
    server = alone()
    assert deliver(server, "a", server.weights)["xi"] == pytest.approx(0.5 / sqrt(2) + 0.5)


def test_a5_sigma_moves_with_the_logarithm_of_staleness_times_lambda() -> None:
    """d xi / d sigma = -lambda ln(s) / (sqrt(t) s^sigma): 0 for a fresh model, and twice as much
    for twice the lambda (same xi).
    """
    assert ServerControls(1.0, 0.5, 0.0).slopes(1.0, 4, 1)[1] == 0
    small = ServerControls(1.0, 0.5, 0.5).slopes(1.0, 4, 4)
    large = ServerControls(2.0, 0.5, 0.25).slopes(1.0, 4, 4)
    assert small[1] == pytest.approx(-log(4) / (2 * 2) / (1 + 0.75) ** 2) and large[
        1
    ] == pytest.approx(2 * small[1])


def test_a6_whose_controls_move_is_a_mode() -> None:
    """w_1 was made by b. Per device: a has made no model yet, so its controls do not change.
    Shared: any device that uploads from w_1 changes the one triple.
    """
    for controls, moved in (("device", False), ("shared", True)):
        server = Server(
            make(
                FedASMU,
                (4, 0, 0),
                dispatch="periodic",
                concurrency=2,
                clients_per_trigger=2,
                controls=controls,
                **ETA,
            )
        )
        server.start("b")
        deliver(server, "b", (2, 0, 0))
        server.join("a")
        server.ring(10 * S)
        assert (deliver(server, "a", descended(server, "a"))["lambda"] != 1.0) is moved


def test_a10_the_device_takes_its_gradient_at_the_merged_model() -> None:
    """Before: w = 0, where the gradient is 0; merged: beta w_g. dF/dgamma = Kb / sqrt(g) (1 -
    ups / sqrt(g-o+1)) <C beta w_g, w_g>.
    """
    device = rule(mu_beta=1.0, gamma0=1.0, upsilon0=0.0, eta_gamma=0.1, eta_upsilon=0.1)
    run = local_run(0.0, 0.0, 0.0, version=3, refresh_point=1.0)
    device.merge(
        run, np.array([1, 0, 0], dtype=np.float32), 3 + 0
    )  # g = 4 from 1: phi = 1/2, beta = 1/3, Kb = 4/9
    numbers = device.payload(run)[1]
    assert numbers["beta"] == pytest.approx(1 / 3) and numbers["gamma"] == pytest.approx(
        1 - 0.1 * (4 / 9) / 2 / 3, rel=1e-6
    )


@given(st.floats(-1e6, 1e6), st.floats(-1e6, 1e6), st.integers(1, 10_000), st.integers(1, 99))
def test_a13_weights_stay_in_their_range_whatever_the_controls_learn(
    product: float, rate: float, t: int, staleness: int
) -> None:
    server, device = ServerControls(1.0, 0.5, 0.03), DeviceControls(1.0, 0.5)
    for _ in range(3):
        server = server.moved(server.slopes(3.0, t, staleness), product, (rate, rate, rate))
        device = device.moved(device.slopes(30.0, t, staleness), product, (rate, rate))
    assert LEAST_ALPHA * (1 - 1e-9) <= weight(3.0, server.xi(3.0, t, staleness)) < 1
    assert 0 <= weight(30.0, device.phi(t, staleness)) < 1


def test_a13_upsilon_beyond_the_root_of_staleness_gives_no_negative_beta_and_no_pole() -> None:
    """1 - 2 / sqrt(1) = -1: beta is limited to 0, and the slopes are those at the limit, so that
    upsilon can return.
    """
    controls = DeviceControls(1.0, 2.0)
    assert controls.phi(1, 1) == 0 and controls.slopes(1.0, 1, 1) == (-1.0, -1.0)


def test_a13_products_are_cut_and_what_is_not_finite_teaches_nothing() -> None:
    assert [clipped(value, 10) for value in (3.0, -25.0, float("inf"), float("nan"))] == [
        3.0,
        -10.0,
        0.0,
        0.0,
    ]
    server = alone(most_product=5.0)
    assert deliver(server, "a", (2.2, 0, 0))["product"] == -5.0
