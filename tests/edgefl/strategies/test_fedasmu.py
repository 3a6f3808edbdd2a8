"""FedASMU's server, event by event: trigger, bound, eqs. 1 and 2, fresher models, kept models; its
ablations; bad options.
"""

from __future__ import annotations

from math import log, sqrt
from typing import Any

import numpy as np
import pytest
import torch
from builders import S, Server, make, vector
from hypothesis import given
from hypothesis import strategies as st
from merging import PATH, deliver, descended, local_run, loss, rule
from torch import nn
from trainers import FakeTask, half_square

from edgefl.edges.training import LocalRun, Merge, Trainer, TrainingPlan
from edgefl.errors import UserError
from edgefl.models.workspace import Workspace
from edgefl.protocol.messages import Fresh
from edgefl.strategies.base.catalog import load, strategy_names
from edgefl.strategies.base.events_and_decisions import (
    Assign,
    FreshRequested,
    SendFresh,
    UpdateArrived,
)
from edgefl.strategies.base.strategy import LocalRule
from edgefl.strategies.dissemination.device import (
    LearningRateRule,
    Refresh,
    chosen_move,
    learned_table,
    point_after,
)
from edgefl.strategies.dissemination.learned import (
    LEAST_ALPHA,
    DeviceControls,
    ServerControls,
    clipped,
    weight,
)
from edgefl.strategies.dissemination.refresh_points import (
    MetaModel,
    RefreshPoints,
)
from edgefl.strategies.fedasmu import FedASMU, FedASMU0, FedASMUDA, FedASMUFA, FedASMUOptions
from edgefl.strategies.fedssmu import FedSSMU, FedSSMUOptions, RefreshInRound
from edgefl.streams import Streams
from edgefl.vectors import Layout, LayoutEntry, VectorStore

ONE = {
    "mu_alpha": 1.0,
    "lambda0": 0.5,
    "iota0": 0.5,
    "eta_lambda": 0.0,
    "eta_sigma": 0.0,
    "eta_iota": 0.0,
}


def replacing(kind: type = FedASMU, count: int = 2, **options: Any) -> Server:
    return Server(
        make(
            kind,
            dispatch="replace",
            concurrency=count,
            **(ONE if kind in (FedASMU, FedASMUFA) else {}) | options,
        )
    )


# ------------------------------------------------------------------ eqs. 1 and 2
def test_an_arriving_model_is_mixed_in_by_eq_2() -> None:
    """a: t = 1, s = 1: xi = 1, alpha = 1/2. b: t = 2, s = 2, sigma = 1/2: xi = 0.5 / (sqrt(2)
    sqrt(2)) + 0.5 = 0.75, alpha = 3/7.
    """
    story = replacing()
    story.start("a", "b")
    assert deliver(story, "a", (4, 8, 0)) == {
        "alpha": 0.5,
        "xi": 1.0,
        "lambda": 0.5,
        "sigma": 0.5,
        "iota": 0.5,
        "gap": 0.0,
        "product": 0.0,
        "vectors": 1,
    }
    assert story.weights == [2, 4, 0]
    values = deliver(story, "b", (9, 4, 7))
    assert (values["gap"], values["xi"], values["alpha"]) == (
        1.0,
        pytest.approx(0.75),
        pytest.approx(3 / 7),
    )
    assert story.weights == pytest.approx([5, 4, 3])


@pytest.mark.parametrize(("tau", "kept"), [(1, 1), (2, 2), (3, 3)])
def test_staleness_beyond_tau_is_discarded(tau: int, kept: int) -> None:
    """Algorithm 1, line 10: s = t - o + 1 > tau. Three start at version 0; their staleness is 1,
    2, 3.
    """
    story = replacing(count=3, tau=tau)
    story.start("a", "b", "c")
    found = [bool(deliver(story, edge, (1, 1, 1))) for edge in "abc"]
    assert found == [number < kept for number in range(3)] and story.version == kept


def test_normalisation_buffers_are_mixed_but_no_gradient() -> None:
    """The layout has one trainable element: p uses only that one."""
    layout = Layout(
        (LayoutEntry("w", (1,), 0, "parameter", ""), LayoutEntry("mean", (2,), 1, "buffer", ""))
    )
    for controls in ("device", "shared"):
        options = FedASMUOptions.model_validate(
            ONE
            | {
                "dispatch": "replace",
                "concurrency": 1,
                "most_product": 1e6,
                "controls": controls,
            }
        )
        story = Server(FedASMU(vector(4, 0, 0), layout, options, Streams(1)))
        story.start("a")
        deliver(story, "a", (2, 8, 8))
        assert story.weights == [3, 4, 4]
        assert deliver(story, "a", (3 - PATH, 90, 90))["product"] == pytest.approx(-2, rel=1e-5)


# ------------------------------------------------------------------ fresher models
def ask(story: Server, edge: str) -> SendFresh:
    task, version, _ = story.open[edge]
    (answer,) = story.strategy.handle(FreshRequested(edge, task, version, 6), 0)
    assert isinstance(answer, SendFresh) and (answer.edge, answer.task) == (edge, task)
    return answer


@pytest.mark.parametrize("subtract", [True, False])
def test_the_merges_jump_can_be_left_out_of_the_gradient(subtract: bool) -> None:
    """True gradient 12.5 in x throughout, 8 steps of 0.01, merged after 4 with beta = 1/2; W -
    w_q = -2. The jump would count as training.
    """
    story = replacing(most_product=1e6, subtract_merge=subtract)
    story.start("a", "b")
    deliver(story, "a", (-2, 0, 0))  # w_1 = (-1, 0, 0), and a starts from it
    base = story.open["a"][2]
    deliver(story, "b", (8, 0, 0))
    fresh = ask(story, "a").weights
    assert fresh is not None
    half = vector(12.5 * 0.04, 0, 0)
    values = deliver(
        story,
        "a",
        0.5 * (base - half) + 0.5 * fresh - half,
        merged=1.0,
        beta=0.5,
        merge_step=4.0,
        fresh_version=2.0,
    )
    jump = 0.5 * float(fresh[0] - base[0])
    expected = -2 * 12.5 if subtract else -2 * (0.75 * 12.5 * PATH - jump) / PATH
    assert values["product"] == pytest.approx(expected, rel=1e-5) and story.strategy.sent == {}


# ------------------------------------------------------------------ what is kept


def test_a_full_disk_is_one_line_and_no_bus_error(monkeypatch: pytest.MonkeyPatch) -> None:
    store = VectorStore(1000, 'controls = "shared"')
    store.row("a")[:] = 1

    def full(*_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.posix_fallocate", full)
    with pytest.raises(
        UserError,
        match=r'no room for .* \(1 are stored\): set TMPDIR, or controls = "shared" \(No space',
    ):
        store.row("b")
    assert len(store) == 1 and store.row("a")[0] == 1


# ------------------------------------------------------------------ the ablations
def test_the_ablations_are_a_two_by_two_factorial() -> None:
    names = {
        "fedasmu": (True, Refresh),
        "fedasmu-da": (False, Refresh),
        "fedasmu-fa": (True, LearningRateRule),
        "fedasmu-0": (False, LocalRule),
    }
    assert set(names) < set(strategy_names())
    for name, expected in names.items():
        kind = load(name)
        learned, found_rule = expected
        assert (kind.learned, kind.rule) == expected
        assert (
            "mu_alpha" in kind.Options.model_fields,
            "mu_beta" in kind.Options.model_fields,
        ) == (learned, found_rule is Refresh)
    assert (
        FedASMUDA.Options().alpha == FedASMU0.Options().alpha
        and FedASMUDA.Options().a == FedASMU0.Options().a
    )


# ------------------------------------------------------------------ fedASMU's equations and the de
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


def test_a13_products_are_cut_and_what_is_not_finite_teaches_nothing() -> None:
    assert [clipped(value, 10) for value in (3.0, -25.0, float("inf"), float("nan"))] == [
        3.0,
        -10.0,
        0.0,
        0.0,
    ]
    server = alone(most_product=5.0)
    assert deliver(server, "a", (2.2, 0, 0))["product"] == -5.0


# ------------------------------------------------------------------ fedASMU's device side: one req
FRESH = np.array([0, 2, 0], dtype=np.float32)


def test_eqs_9_and_10_by_hand() -> None:
    """g = 4 from 1, g - o + 1 = 4: phi = 2 / 2 (1 - 1/2) = 1/2, mu = 2: beta = 1/2. w <- (w +
    w_g) / 2.
    """
    device = rule(mu_beta=2.0, gamma0=2.0, upsilon0=1.0)
    run = local_run(2.0, 0.0, 1.0, version=0, refresh_point=2.0)
    device.merge(run, FRESH, 3)
    assert run.weights.tolist() == [1, 1, 0.5]
    numbers = device.payload(run)[1]
    assert (
        numbers["beta"],
        numbers["fresh_version"],
        numbers["refresh_point"],
        numbers["asked"],
        numbers["merged"],
        numbers["merge_step"],
    ) == (0.5, 3, 2, 1, 1, 6)


def test_the_reward_is_the_loss_before_minus_the_loss_after_and_moves_the_baseline() -> None:
    """F = (4 + 4 * 1) / 2 = 4 before; (1 + 2 + 4/4) / 2 = 2 after: R = 2, b <- (1 - 0.1) 0 + 0.1
    R.
    """
    device = rule(mu_beta=2.0, gamma0=2.0, upsilon0=1.0)
    run = local_run(2.0, 0.0, 1.0, refresh_point=3.0)
    assert float(loss(run.weights)) == 4
    device.merge(run, FRESH, 3)
    numbers = device.payload(run)[1]
    assert (numbers["reward"], numbers["baseline"]) == (pytest.approx(2.0), pytest.approx(0.2))
    again = local_run(2.0, 0.0, 1.0, task=2, memory=dict(run.memory), draw=0.9)
    device.merge(again, FRESH, 3)
    second = device.payload(again)[1]
    assert second["baseline"] == pytest.approx(0.9 * 0.2 + 0.1 * second["reward"])


def test_a9_a_task_merges_once() -> None:
    """After the first reception every later epoch would have merged again."""
    device, run = rule(), local_run(2.0, 0.0, 1.0, refresh_point=3.0)
    device.merge(run, FRESH, 3)
    once, told = run.weights.clone(), device.payload(run)[1]
    device.merge(run, FRESH + 1, 9)
    assert torch.equal(run.weights, once) and device.payload(run)[1] == told
    next_task = local_run(2.0, 0.0, 1.0, task=2, memory=run.memory, draw=0.9)
    device.merge(next_task, FRESH, 3)
    assert not torch.equal(next_task.weights, torch.tensor([2.0, 0.0, 1.0]))


# ------------------------------------------------------------------ with the real trainer
ROWS = torch.eye(3).repeat(2, 1)


def trained(memory: dict[str, Any] | None = None) -> tuple[Trainer, LocalRun, Refresh]:
    """Five epochs of two batches of three, stopped at the request of refresh point 1."""
    plan = TrainingPlan(epochs=5, batch_size=3, learning_rate=0.1)
    trainer = Trainer(
        Workspace(lambda: nn.Linear(3, 1, bias=False)),
        ROWS,
        torch.ones(6, 1),
        half_square,
        plan,
        Streams(1),
        "e1",
    )
    device = Refresh(FedASMUOptions(selector="fixed", refresh_point=1))
    run = trainer.begin(FakeTask({"weights": np.zeros(3, np.float32)}), device, memory or {})
    assert run.checkpoint == 2 and trainer.advance(run, device, run.checkpoint)
    return trainer, run, device


def test_the_probe_is_the_batch_to_come_and_training_does_not_notice() -> None:
    """The probe gives loss and gradient at any weights, for the batch of the next step."""
    trainer, run, device = trained()
    expected, before = [], run.weights.clone()

    def spy(rows: Any, fresh: np.ndarray, version: int) -> None:
        expected.append(rows.probe(rows.weights))

    device.merge = spy
    trainer.merge(run, device, Merge(2, Fresh(0, 1, {"weights": FRESH})))
    assert torch.equal(run.weights, before) and run.probe is None
    (value, gradient), done = expected[0], run.loss_sum
    trainer.advance(run, device, 3)
    assert run.loss_sum - done == pytest.approx(value)
    assert torch.allclose(run.weights, before - 0.1 * gradient)


# ------------------------------------------------------------------ when a device asks: the meta m
FRESH_REFRESH_POINTS = np.array([1, 1, 1], dtype=np.float32)


def model(hidden: int = 8) -> MetaModel:
    return MetaModel(Streams(1).rng("test"), hidden)


# ------------------------------------------------------------------ the meta model
@pytest.mark.parametrize("decisions", [[1], [0, 0, 1], [0, 0, 0, 0, 1], [0, 0, 0]])
def test_the_gradient_is_that_of_autograd(decisions: list[int]) -> None:
    """Eq. 7: grad sum_l log P(f_l | f_{l-1:1}), of the same LSTM in torch, one-hot input of the
    decision before.
    """
    meta = model()
    lstm = torch.nn.LSTM(2, 8, dtype=torch.float64)
    out = torch.nn.Linear(8, 1, dtype=torch.float64)
    given = {name: torch.from_numpy(np.array(value)) for name, value in meta.weights.items()}
    with torch.no_grad():
        lstm.weight_ih_l0.copy_(given["input"])
        lstm.weight_hh_l0.copy_(given["hidden"])
        lstm.bias_ih_l0.copy_(given["bias"])
        lstm.bias_hh_l0.zero_()
        out.weight.copy_(given["out"][None])
        out.bias.copy_(given["out_bias"])
    before = torch.zeros(len(decisions), 1, 2, dtype=torch.float64)
    for number, decision in enumerate(decisions[:-1], 1):
        before[number, 0, decision] = 1.0
    logits = out(lstm(before)[0]).reshape(-1)
    signs = torch.tensor([1.0 if decision else -1.0 for decision in decisions], dtype=torch.float64)
    torch.nn.functional.logsigmoid(signs * logits).sum().backward()
    expected = {
        "input": lstm.weight_ih_l0.grad,
        "hidden": lstm.weight_hh_l0.grad,
        "bias": lstm.bias_ih_l0.grad,
        "out": out.weight.grad[0],
    }
    found = meta.gradient(decisions)
    for name, slope in expected.items():
        np.testing.assert_allclose(found[name], slope.numpy(), rtol=1e-4, atol=1e-12)
    assert float(found["out_bias"]) == pytest.approx(out.bias.grad.item(), rel=1e-4)


# ------------------------------------------------------------------ the server side
def told(server: Server) -> dict[str, dict[str, float]]:
    return {
        edge: decision.numbers
        for decision in server.decisions
        if isinstance(decision, Assign)
        for edge in decision.edges
    }


def replacing_refresh_points(**options: float | str) -> Server:
    return Server(make(FedASMU, dispatch="replace", concurrency=1, **{"epsilon": 0.0} | options))


def test_a_device_is_given_refresh_points_until_its_first_merge() -> None:
    """t_i = 0: the meta model decides for each task; then the device's table does, and the last
    point is only repeated.
    """
    server = replacing_refresh_points()
    server.start("a")
    points = [told(server)["a"]["refresh_point"]]
    for _ in range(8):
        deliver(server, "a", (0, 0, 0), refresh_point=1.0, asked=1.0, merged=0.0)
        points.append(told(server)["a"]["refresh_point"])
    assert len(set(points)) > 1 and min(points) >= 1
    deliver(server, "a", (0, 0, 0), refresh_point=points[-1], merged=1.0, reward=0.5, baseline=0.05)
    assert told(server)["a"]["refresh_point"] == points[-1]
    deliver(server, "a", (0, 0, 0))
    assert told(server)["a"]["refresh_point"] == points[-1]


def test_a_refresh_point_beyond_the_last_one_was_never_drawn() -> None:
    """Point 7 was drawn, with 3 points: the decisions were 0, 0, 0, and the last point was used."""
    points, other = (RefreshPoints(FedASMUOptions(meta_rate=0.5), Streams(1)) for _ in range(2))
    for one, drawn in ((points, 7), (other, 3)):
        one.assign(["a"], FRESH_REFRESH_POINTS)
        one.given["a"] = drawn
        said = {"refresh_point": 3.0, "merged": 1.0, "reward": 1.0, "baseline": 0.0}
        one.learn(
            UpdateArrived("a", 0, 0, FRESH_REFRESH_POINTS, {"weights": FRESH_REFRESH_POINTS}, said)
        )
    first = MetaModel(Streams(1).rng("slot model"), 32)
    for one, row in ((points, [0, 0, 0]), (other, [0, 0, 1])):
        np.testing.assert_allclose(
            one.model.weights["out"] - first.weights["out"], 0.5 * first.gradient(row)["out"]
        )


# ------------------------------------------------------------------ when the request comes
@pytest.mark.parametrize(
    ("selector", "epochs", "point"),
    [
        ("h1", 5, 1),
        ("h2", 5, 2),
        ("h3", 5, 4),  # after the first epoch, midway, after the last but one
        ("h1", 2, 1),
        ("h2", 2, 1),
        ("h3", 2, 1),
        ("h1", 3, 1),
        ("h2", 3, 1),
        ("h3", 3, 2),
        ("h1", 10, 1),
        ("h2", 10, 5),
        ("h3", 10, 9),
    ],
)
def test_heuristic_refresh_points(selector: str, epochs: int, point: int) -> None:
    """H1: l = 1, H2: floor(L / 2), H3: L - 1 finished epochs of three steps each."""
    assert rule(selector=selector).checkpoint(local_run(0.0, epochs=epochs)) == 3 * point


# ------------------------------------------------------------------ the device's table
def test_greedy_takes_the_best_and_epsilon_any() -> None:
    table = np.array([[0.0, 2.0, 1.0]])  # stay, add, minus
    assert chosen_move(table, 1, 0.0, 0.0) == 1 == chosen_move(table, 1, 0.3, 0.3)
    assert [chosen_move(table, 1, 0.3, draw) for draw in (0.0, 0.099, 0.1, 0.199, 0.2, 0.2999)] == [
        0,
        0,
        1,
        1,
        2,
        2,
    ]
    assert chosen_move(np.zeros((1, 3)), 1, 0.0, 0.5) == 0, "nothing learned: stay"


def test_a7_stay_stays() -> None:
    """Printed l* <- l* + 1, as for add."""
    stay, add, minus = 0, 1, 2
    assert [point_after(3, action, 5) for action in (stay, add, minus)] == [3, 4, 2]
    assert point_after(5, add, 5) == 5 and point_after(1, minus, 5) == 1


def test_a8_the_maximum_is_the_next_states() -> None:
    """H(2, add) = 1 + 0.5 (3 + 0.9 max H(3, .) - 1) with max H(3, .) = 10; the printed index
    would take max H(2, .) = 1.
    """
    table = np.array([[0.0, 0.0, 0.0], [0.0, 1.0, 0.0], [10.0, 4.0, 0.0]])
    after = learned_table(table, 2, 1, 3.0, rate=0.5, discount=0.9)
    assert after[1, 1] == pytest.approx(6.5) and table[1, 1] == 1.0
    assert (np.delete(after.reshape(-1), 4) == np.delete(table.reshape(-1), 4)).all()


def test_from_its_second_merge_on_a_device_moves_and_learns_by_its_table() -> None:
    """First task: point 2 of the server. Second: epsilon draws add, point 3, and its reward goes
    to H(2, add).
    """
    device = rule(epsilon=0.3, q_rate=0.5)
    first = local_run(2.0, 0.0, 0.0, task=1, refresh_point=2.0, draw=0.9)
    device.merge(first, FRESH_REFRESH_POINTS, 1)
    assert "q_table" not in first.memory, "the first merge is the meta model's"
    second = local_run(
        2.0, 0.0, 0.0, task=2, memory=dict(first.memory), refresh_point=5.0, draw=0.15
    )
    assert device.checkpoint(second) == 9
    device.merge(second, FRESH_REFRESH_POINTS, 1)
    numbers = device.payload(second)[1]
    table = np.asarray(second.memory["q_table"]).reshape(4, 3)
    assert (
        table[1, 1] == pytest.approx(0.5 * numbers["reward"], rel=1e-6)
        and np.count_nonzero(table) == 1
    )
    third = local_run(2.0, 0.0, 0.0, task=3, memory=dict(second.memory), draw=0.9)
    assert device.checkpoint(third) == 9, "point 3 and nothing known of it: stay"


# ------------------------------------------------------------------ fedSSMU (Algorithm 3), event b
STILL = {
    "mu_alpha": 1.0,
    "lambda0": 0.5,
    "iota0": 0.5,
    "eta_lambda": 0.0,
    "eta_sigma": 0.0,
    "eta_iota": 0.0,
    "selector": "h2",
}


def story(**options: Any) -> Server:
    return Server(make(FedSSMU, **{"clients_per_round": 2} | STILL | options))


def test_a14_every_trained_model_is_mixed_in_when_it_arrives_and_a_round_makes_one_version() -> (
    None
):
    """Round 1: alpha = 1/2 (xi = 1), then s = 2, t = 1: xi = 0.5 / sqrt(2) + 0.5. w_{2,0} =
    w_{1,2}; the local model is the trained one.
    """
    server = story()
    assert server.start("a", "b") == ["assign a,b <- 0 0 0"]
    assert deliver(server, "a", (4, 8, 0)) == {
        "alpha": 0.5,
        "xi": 1.0,
        "lambda": 0.5,
        "sigma": 0.5,
        "iota": 0.5,
        "gap": 0.0,
        "product": 0.0,
        "vectors": 1,
    }
    assert (
        server.strategy.model.tolist() == [2, 4, 0]
        and server.weights == [0, 0, 0]
        and server.version == 0
    )
    values = deliver(server, "b", (6, 4, 4))
    alpha = (0.5 / sqrt(2) + 0.5) / (1.5 + 0.5 / sqrt(2))
    assert (values["gap"], values["alpha"]) == (1.0, pytest.approx(alpha)) and server.version == 1
    assert server.weights == pytest.approx([2 + 4 * alpha, 4, 4 * alpha]) and list(server.open) == [
        "a",
        "b",
    ]


def test_a14_t_is_the_round_or_counts_aggregations_as_told() -> None:
    """The second round's first aggregation: t = 2 as a round, t = 3 as the third aggregation.
    Its staleness is 1 again.
    """
    for index, t in (("round", 2), ("aggregation", 3)):
        server = story(index=index)
        server.start("a", "b")
        for edge in "ab":
            deliver(server, edge, (1, 1, 1))
        assert deliver(server, "a", (1, 1, 1))["xi"] == pytest.approx(0.5 / sqrt(t) + 0.5)


def ask_fedssmu(server: Server, edge: str) -> SendFresh:
    task, version, _ = server.open[edge]
    (answer,) = server.strategy.handle(FreshRequested(edge, task, version, 6), 0)
    assert isinstance(answer, SendFresh)
    return answer


def test_a_request_is_answered_with_the_rounds_model_if_k_is_above_0() -> None:
    """Its number is version + k, so that g - o + 1 = k + 1."""
    server = story(clients_per_round=3)
    server.start("a", "b", "c")
    assert ask_fedssmu(server, "c").weights is None
    deliver(server, "a", (4, 8, 0))
    answer = ask_fedssmu(server, "c")
    assert answer.weights is server.strategy.model and answer.version == 1


def test_beyond_tau_arrivals_of_a_round_are_discarded() -> None:
    """s = k + 1 > tau: the second of a round at tau = 1. The round ends all the same."""
    server = story(tau=1)
    server.start("a", "b")
    assert deliver(server, "a", (4, 8, 0))
    assert (
        deliver(server, "b", (9, 9, 9)) == {}
        and server.version == 1
        and server.weights == [2, 4, 0]
        and len(server.open) == 2
    )


@pytest.mark.parametrize(("index", "g"), [("round", 4), ("aggregation", 33)])
def test_the_device_takes_the_round_or_the_count_for_g(index: str, g: int) -> None:
    """Version 3, 30 aggregations before, k = 2 in the round: g - o + 1 = 3; phi = gamma /
    sqrt(g) (1 - ups / sqrt(3)).
    """
    device = RefreshInRound(
        FedSSMUOptions.model_validate({"index": index, "mu_beta": 1.0, "upsilon0": 0.6})
    )
    run = local_run(1.0, 0.0, 0.0, version=3, refresh_point=2.0, aggregations=30.0)
    device.merge(run, np.zeros(3, np.float32), 3 + 2)
    phi = (1 - 0.6 / sqrt(3)) / sqrt(g)
    assert device.payload(run)[1]["beta"] == pytest.approx(phi / (1 + phi))
