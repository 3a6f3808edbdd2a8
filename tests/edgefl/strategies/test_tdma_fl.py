"""TDMA-FL, synchronous TDMA-FL and IDFL under the virtual clock, against closed forms and
against a brute-force simulation of the slots.
"""

from __future__ import annotations

from itertools import takewhile
from pathlib import Path
from typing import Any

import pytest
from builders import Server, make, vector
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tdma_rounds import as_played, play, slotted

from edgefl.results.read import read_events
from edgefl.strategies.base.events_and_decisions import UpdateReady
from edgefl.strategies.base.slotted import Timetable
from edgefl.strategies.idfl import Idfl
from edgefl.strategies.tdma_fl import TdmaFL
from emulator.tdma.closed_form import Tdma, simulate


def agrees(
    folder: Path, shape: Tdma, slots: int, takes: list[int] | None = None, **options: Any
) -> None:
    """Check that every round that ends within ``slots`` equals the simulation: which device sends
    when, from which model, and which gets the new one.
    """
    order, wait = options.get("order", "finished"), options.get("wait_for_group", False)
    found = slotted(
        shape.devices,
        takes or shape.compute_slots,
        shape.slots_per_transfer,
        slots,
        per_round=shape.per_round,
        **options,
    )
    summary, played = play(folder, found)
    plan = [
        as_played(done)
        for done in takewhile(
            lambda done: done.end_slot <= slots, simulate(shape, wait, order, takes)
        )
    ]
    assert played[: len(plan)] == plan and len(plan) >= 3
    assert summary["versions"] >= len(plan)


@pytest.mark.parametrize(("per_round", "stale"), [(1, 5), (2, 2), (3, 1), (6, 0)])
def test_staleness_is_min_k_and_groups_less_one(tmp_path: Path, per_round: int, stale: int) -> None:
    """Equation 15: d = k for k < G, G - 1 from there on."""
    summary, played = play(tmp_path, slotted(6, 2, slots=60, per_round=per_round))
    for number, done in enumerate(played):
        assert {number - base for _, base, _ in done.uploads} == {min(number, stale)}
        assert done.end_slot == Tdma(6, per_round, 1, 2).end_slot(number)
    assert max(int(gap) for gap in summary["staleness"]) == stale


def test_figure_two_of_the_paper(tmp_path: Path) -> None:
    """N = 6, S = 2, tau_comp = 2, r = 1: round 0 sends in slots 2 and 3, broadcasts in 4; round
    1 in 5, 6 and 7.
    """
    _, played = play(tmp_path, slotted(6, 2, slots=10, per_round=2))
    assert (
        played[0].uploads == [(0, 0, 2), (1, 0, 3)]
        and played[0].receivers == [0, 1]
        and played[0].end_slot == 5
    )
    assert played[1].uploads == [(2, 0, 5), (3, 0, 6)] and played[1].end_slot == 8


@pytest.mark.parametrize(("computes", "missed"), [(6, 0), (7, 1), (8, 2)])
def test_a_turn_is_missed_by_a_device_that_is_ready_a_slot_later(
    tmp_path: Path, computes: int, missed: int
) -> None:
    """N = 6, S = 2: four are ahead of a group, so its turns are 6 and 7 slots after its model."""
    shape = slotted(6, computes, slots=60, per_round=2)
    play(tmp_path, shape)
    events = read_events(tmp_path / shape.strategies[0].name / "events.jsonl")
    rows = [row for event in events for row in event.get("decisions", ())]
    counts = [row["values"]["missed"] for row in rows if row["do"] == "report"]
    assert set(counts[:3]) == {0} and set(counts[3:]) == {missed}


@pytest.mark.parametrize(
    ("per_round", "models"), [(1, 49_999), (2, 33_333), (5, 16_667), (10, 9_091), (20, 4_001)]
)
@pytest.mark.slow
def test_table_one_under_the_virtual_clock(tmp_path: Path, per_round: int, models: int) -> None:
    """Table I, CIFAR-10: N = 20, tau_comp = 4, T = 100,000 slots; here T / 200, where the closed
    form has been checked, and its whole row.
    """
    assert Tdma(20, per_round, 1, 4).models_by(100_000) == models
    summary, _ = play(tmp_path, slotted(20, 4, slots=500, per_round=per_round))
    assert summary["versions"] + 1 == Tdma(20, per_round, 1, 4).models_by(500)


@settings(
    max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    takes=st.lists(st.integers(0, 30), min_size=2, max_size=8),
    per_round=st.integers(1, 8),
    transfer=st.integers(1, 3),
    order=st.sampled_from(["finished", "oldest"]),
    wait=st.booleans(),
)
@pytest.mark.slow
def test_unequal_devices_against_the_simulation(
    tmp_path_factory: pytest.TempPathFactory,
    takes: list[int],
    per_round: int,
    transfer: int,
    order: str,
    wait: bool,
) -> None:
    shape = Tdma(len(takes), min(per_round, len(takes)), transfer, 0)
    slots = 40 + 5 * transfer * (shape.per_round + 1)
    agrees(
        tmp_path_factory.mktemp("run"),
        shape,
        max(slots, 200),
        takes,
        order=order,
        wait_for_group=wait,
    )


# ------------------------------------------------------------------ intentional delay
@pytest.mark.parametrize(
    ("computes", "transfer", "d_star", "alpha"),
    [(50, 1, 25, 74), (10, 1, 5, 94), (2, 1, 1, 98), (50, 5, 5, 94)],
)
@pytest.mark.slow
def test_the_delays_of_proposition_one(
    tmp_path: Path, computes: int, transfer: int, d_star: int, alpha: int
) -> None:
    """N = 100, S = 1: alpha = G - d* - 1 with d* = ceil(tau_comp / (r (S + 1))); staleness
    min(k, d*), and no round ends later.
    """
    plain, delayed = Tdma(100, 1, transfer, computes), Tdma(100, 1, transfer, computes, alpha)
    assert (plain.d_star, plain.auto_delay) == (d_star, alpha)
    _, played = play(
        tmp_path, slotted(100, computes, transfer, 260 * transfer, "idfl", per_round=1)
    )
    for number, done in enumerate(played):
        assert [number - base for _, base, _ in done.uploads] == [min(number, d_star)]
        assert done.end_slot == delayed.end_slot(number) == plain.end_slot(number)
    assert len(played) > 90


@settings(
    max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    data=st.data(),
    devices=st.integers(2, 9),
    transfer=st.integers(1, 3),
    computes=st.integers(0, 20),
)
@pytest.mark.slow
def test_odd_shapes_with_a_delay_against_the_simulation(
    tmp_path_factory: pytest.TempPathFactory,
    data: st.DataObject,
    devices: int,
    transfer: int,
    computes: int,
) -> None:
    """S that does not divide N: a delay that leaves S devices for every round."""
    per_round = data.draw(st.integers(1, devices))
    shape = Tdma(
        devices,
        per_round,
        transfer,
        computes,
        data.draw(st.integers(0, max(devices // per_round - 1, 0))),
    )
    agrees(
        tmp_path_factory.mktemp("run"),
        shape,
        max(200, 5 * (computes + shape.comm_slots)),
        strategy="idfl",
        alpha=shape.delay,
    )


# ------------------------------------------------------------------ the server's step
def test_the_server_adds_the_mean_change() -> None:
    """w_{k+1} = w_k - (eta / S) sum u_n with u_n = (w_khat - w_end) / eta: changes of 4 and 2
    from different bases move it by 3.
    """
    strategy = make(TdmaFL, (1,), per_round=2)
    assert isinstance(strategy, TdmaFL)
    strategy.use(Timetable(1, 1, 0, True, lambda edge, samples, steps: 1, lambda n, s, tau: 0))
    server = Server(strategy)
    server.start("a", "b")
    updates = [event_of(server, "a", 5.0), event_of(server, "b", 3.0)]
    assert strategy.aggregate(updates).tolist() == [4.0]


@pytest.mark.parametrize(("alpha", "first"), [(1, 2), (2, 1), (3, 1), (4, 1)])
def test_with_edges_missing_somebody_begins_whatever_alpha_is(alpha: int, first: int) -> None:
    """Only three of the config's edges have joined, so there are three groups. If no edge started,
    no round would ever end.
    """
    strategy = make(Idfl, (1,), per_round=1, alpha=alpha)
    assert isinstance(strategy, Idfl)
    strategy.use(Timetable(1, 1, 0, True, lambda edge, samples, steps: 1, lambda n, s, tau: 0))
    server = Server(strategy)
    server.start("a", "b", "c")
    assert len(server.open) == first and len(strategy.owed) == 3 - first


def event_of(server: Server, edge: str, end: float) -> Any:
    from edgefl.strategies.base.events_and_decisions import UpdateArrived

    task, version, base = server.open[edge]
    return UpdateArrived(edge, task, version, base, {"weights": vector(end)}, {"samples": 1.0})


def test_adaptive_delay_of_unequal_devices_wastes_nothing(tmp_path: Path) -> None:
    """Every second device takes four times as long: groups with a slow one start earlier, the
    others later.
    """
    takes = [4, 4, 4, 4, 16, 16] * 2
    _, played = play(
        tmp_path / "a",
        slotted(12, takes, slots=300, strategy="idfl", per_round=2, alpha="adaptive"),
    )
    _, plain = play(tmp_path / "p", slotted(12, takes, slots=300, per_round=2))
    ages = [
        [number - base for number, done in enumerate(run) for _, base, _ in done.uploads][60:]
        for run in (played, plain)
    ]
    assert len(played) == len(plain) and sum(ages[0]) < 0.8 * sum(ages[1])


def test_adaptive_delay_starts_no_group_a_round_too_early(tmp_path: Path) -> None:
    """S = 1, r = 1: a round has two slots. The slow devices need four slots, so their updates are
    d* = 2 rounds old, and those of the fast one, 1. Who starts earlier gains no slot.
    """
    takes = [1, 4, 4]
    adaptive = slotted(
        3, takes, slots=60, strategy="idfl", per_round=1, alpha="adaptive", margin_slots=0
    )
    _, played = play(tmp_path / "a", adaptive)
    _, plain = play(tmp_path / "p", slotted(3, takes, slots=60, per_round=1))
    ages = {
        (device, number - base)
        for number, done in enumerate(played)
        for device, base, _ in done.uploads
        if number >= 12
    }
    assert ages == {(0, 1), (1, 2), (2, 2)} and len(played) == len(plain)


@pytest.mark.parametrize("offered", [False, True])
def test_an_update_without_a_slot_does_not_hold_the_round(offered: bool) -> None:
    """a's update comes without a grant, so its task is over: no slot is kept for it."""
    strategy = make(TdmaFL, (1,), per_round=2)
    assert isinstance(strategy, TdmaFL)
    strategy.use(Timetable(1, 1, 0, True, lambda edge, samples, steps: 1, lambda n, s, tau: 0))
    server = Server(strategy)
    server.start("a", "b")
    if offered:
        server.give(UpdateReady("a", 0), 1)
    assert server.deliver("a", 2, now=1)[0] == "discard 0: without a slot"
    server.give(UpdateReady("b", 1), 1)
    assert server.ring(1)[0] == "grant b 1"
    assert server.deliver("b", 3, now=2)[:2] == ["publish 3", "assign b,a <- 3"]


@pytest.mark.parametrize("per_round", [2, None])
def test_a_round_grows_to_s_when_edges_come_later(per_round: int | None) -> None:
    """Only a was there at the start. Once b has a model, a round has S = 2 updates (none: all)."""
    strategy = make(TdmaFL, (1,), **({} if per_round is None else {"per_round": per_round}))
    assert isinstance(strategy, TdmaFL)
    strategy.use(Timetable(1, 1, 0, True, lambda edge, samples, steps: 1, lambda n, s, tau: 0))
    server = Server(strategy)
    server.start("a")
    server.join("b")
    server.give(UpdateReady("a", 0), 1)
    server.ring(1)
    assert server.deliver("a", 3, now=2)[:2] == ["publish 3", "assign a,b <- 3"]
    server.give(UpdateReady("a", 1), 4)
    server.give(UpdateReady("b", 2), 4)
    assert server.ring(4)[0] == "grant a 1"
    assert not [line for line in server.deliver("a", 5, now=5) if line.startswith("publish")]
    assert server.ring(5)[0] == "grant b 2"
    assert server.deliver("b", 7, now=6)[0] == "publish 6"


def test_a_late_start_of_idfl_asks_for_the_delay_of_those_that_are_there() -> None:
    """auto_delay knows no round of more updates than there are devices."""
    asked: list[tuple[int, int]] = []

    def auto_delay(devices: int, per_round: int, compute_slots: int) -> int:
        asked.append((devices, per_round))
        return 0

    strategy = make(Idfl, (1,), per_round=2)
    assert isinstance(strategy, Idfl)
    strategy.use(Timetable(1, 1, 0, True, lambda edge, samples, steps: 1, auto_delay))
    Server(strategy).start("a")
    assert asked == [(1, 1)]
