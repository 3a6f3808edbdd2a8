"""When a device asks: the meta model (REINFORCE), the device's own table (Q-learning),
heuristics; arXiv 2507.06031, section 4.3.1.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from builders import Server, make
from merging import deliver, local_run, rule

from edgefl.strategies.base.events_and_decisions import Assign, UpdateArrived
from edgefl.strategies.dissemination.device import chosen_move, learned_table, point_after
from edgefl.strategies.dissemination.refresh_points import (
    ANY_REFRESH_POINT,
    MetaModel,
    RefreshPoints,
)
from edgefl.strategies.fedasmu import FedASMU, FedASMUOptions
from edgefl.streams import Streams

FRESH = np.array([1, 1, 1], dtype=np.float32)


def model(hidden: int = 8) -> MetaModel:
    return MetaModel(Streams(1).rng("test"), hidden)


def probabilities(meta: MetaModel, points: int) -> np.ndarray:
    """P(point = 1), ..., P(point = n) by 4000 draws."""
    rng = Streams(2).rng("draws")
    drawn = np.array([meta.draw(rng) for _ in range(4000)])
    return np.array([(drawn == point).mean() for point in range(1, points + 1)])


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


def test_untrained_a_quarter_asks_at_each_refresh_point() -> None:
    """Of the four points of five epochs: .25, .19, .14, and the rest at the last."""
    found = probabilities(model(32), 3)
    assert found == pytest.approx([0.25, 0.19, 0.14], abs=0.03)


def test_a_reward_above_the_baseline_makes_its_refresh_point_likelier_and_one_below_it_rarer() -> (
    None
):
    before, better, worse = model(), model(), model()
    for _ in range(300):
        better.learn([0, 0, 1], +1.0, 0.3)
    for _ in range(50):
        worse.learn([0, 0, 1], -1.0, 0.05)
    third = [probabilities(meta, 3)[2] for meta in (worse, before, better)]
    assert third[0] < third[1] - 0.03 and third[2] > third[1] + 0.3


# ------------------------------------------------------------------ the server side
def told(server: Server) -> dict[str, dict[str, float]]:
    return {
        edge: decision.numbers
        for decision in server.decisions
        if isinstance(decision, Assign)
        for edge in decision.edges
    }


def replacing(**options: float | str) -> Server:
    return Server(make(FedASMU, dispatch="replace", concurrency=1, **{"epsilon": 0.0} | options))


def test_a_device_is_given_refresh_points_until_its_first_merge() -> None:
    """t_i = 0: the meta model decides for each task; then the device's table does, and the last
    point is only repeated.
    """
    server = replacing()
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
    for one, given in ((points, 7), (other, 3)):
        one.assign(["a"], FRESH)
        one.given["a"] = given
        said = {"refresh_point": 3.0, "merged": 1.0, "reward": 1.0, "baseline": 0.0}
        one.learn(UpdateArrived("a", 0, 0, FRESH, {"weights": FRESH}, said))
    first = MetaModel(Streams(1).rng("slot model"), 32)
    for one, row in ((points, [0, 0, 0]), (other, [0, 0, 1])):
        np.testing.assert_allclose(
            one.model.weights["out"] - first.weights["out"], 0.5 * first.gradient(row)["out"]
        )


def test_draws_are_keyed_by_edge_and_task() -> None:
    runs = []
    for _ in range(2):
        points = RefreshPoints(FedASMUOptions(epsilon=0.5), Streams(1))
        runs.append(
            [decision.numbers for _ in range(10) for decision in points.assign(["a", "b"], FRESH)]
        )
    assert runs[0] == runs[1] and len({numbers["draw"] for numbers in runs[0]}) == 20
    assert {numbers["refresh_point"] == ANY_REFRESH_POINT for numbers in runs[0]} == {
        True,
        False,
    }, "epsilon = 1/2: any point, half of the time"


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


@pytest.mark.parametrize("selector", ["learned", "h1", "h2", "h3", "fixed"])
def test_with_one_epoch_a_device_does_not_ask(selector: str) -> None:
    options = {"selector": selector} | ({"refresh_point": 1} if selector == "fixed" else {})
    run = local_run(1.0, 1.0, 1.0, epochs=1, refresh_point=1.0, draw=0.05)
    run.checkpoint = rule(**options).checkpoint(run)
    assert run.checkpoint is None
    numbers = rule(**options).payload(run)[1]
    assert (numbers["asked"], numbers["merged"]) == (0, 0) and "refresh_point" not in numbers


@pytest.mark.parametrize("epochs", [2, 3, 5])
def test_no_draw_asks_before_training_or_after_the_last_epoch(epochs: int) -> None:
    """Before any training, a newer model almost never exists: a device that asks there learns
    nothing and stays there. After the last epoch there is no training.
    """
    for said in (0.0, 1.0, 2.0, 9.0):
        for draw in np.linspace(0.0, 0.999, 21):
            run = local_run(0.0, epochs=epochs, refresh_point=said, draw=float(draw))
            step = rule(epsilon=0.5).checkpoint(run)
            assert step is not None and 3 <= step <= 3 * (epochs - 1)


@pytest.mark.parametrize(("point", "step"), [(1, 3), (2, 6), (4, 12), (5, 12), (99, 12)])
def test_a_refresh_point_beyond_the_last_is_the_last(point: int, step: int) -> None:
    """The request comes after l* epochs, at step l* n; from the config and from the server."""
    assert (
        rule(selector="fixed", refresh_point=point).checkpoint(local_run(0.0))
        == step
        == rule().checkpoint(local_run(0.0, refresh_point=float(point)))
    )


def test_any_refresh_point_alike_is_the_devices_own_draw() -> None:
    assert [
        rule().refresh_point(local_run(0.0, refresh_point=0.0, draw=draw))
        for draw in (0.0, 0.24, 0.25, 0.74, 0.999)
    ] == [1, 1, 2, 3, 4]


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
    device.merge(first, FRESH, 1)
    assert "q_table" not in first.memory, "the first merge is the meta model's"
    second = local_run(
        2.0, 0.0, 0.0, task=2, memory=dict(first.memory), refresh_point=5.0, draw=0.15
    )
    assert device.checkpoint(second) == 9
    device.merge(second, FRESH, 1)
    numbers = device.payload(second)[1]
    table = np.asarray(second.memory["q_table"]).reshape(4, 3)
    assert (
        table[1, 1] == pytest.approx(0.5 * numbers["reward"], rel=1e-6)
        and np.count_nonzero(table) == 1
    )
    third = local_run(2.0, 0.0, 0.0, task=3, memory=dict(second.memory), draw=0.9)
    assert device.checkpoint(third) == 9, "point 3 and nothing known of it: stay"
