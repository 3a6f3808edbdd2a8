"""Slotted strategies against rounds that are simulated slot by slot from the paper's text.

Also an IDFL run against one computed with numpy only (slot_by_slot.py, idfl_by_hand.py).
"""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import idfl_by_hand
import pytest
import tdma_shapes as shapes
from slot_by_slot import SlotBySlot

from edgefl.clocks.setup.learning import learning
from edgefl.clocks.virtual.run import run_virtual
from emulator.tdma.closed_form import Tdma

SHAPES, PARTS = 200, 10
SEED = 1


@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.slow
def test_random_shapes_are_played_as_slot_by_slot(part: int) -> None:
    """Which device sends which update in which slot, its age, the model's receivers, slots wasted
    and lost.

    N up to 12, S that does not divide N, r from 1 to 3, times from 0 on, deaths and returns.
    """
    for number in range(part, SHAPES, PARTS):
        shape = shapes.drawn(SEED, number)
        expected = SlotBySlot(shape).play()
        assert shapes.on_virtual(shape, expected)[0] == expected, (number, shape)


def test_the_shapes_have_all_that_they_should() -> None:
    drawn = [shapes.drawn(SEED, number) for number in range(SHAPES)]
    faults = [fault for shape in drawn for fault in shape.faults]
    played = [SlotBySlot(shape).play() for shape in drawn]
    rounds = [each for one in played for each in one]
    assert len(rounds) > 3_000 and sum(not one for one in played) < SHAPES // 20
    assert {shape.devices for shape in drawn} == set(range(1, 13))
    assert {shape.transfer for shape in drawn} == {1, 2, 3}
    assert {takes for shape in drawn for takes in shape.takes} == set(range(10))
    assert sum(shape.devices % shape.per_round > 0 for shape in drawn) > SHAPES // 4
    returns = [fault.back < shapes.NEVER for fault in faults if not fault.cut]
    assert len(returns) - sum(returns) > 50 < sum(returns) and any(fault.cut for fault in faults)
    assert sum(each.lost for each in rounds) > 100 < sum(each.wasted > 0 for each in rounds)


def uneven(count: int) -> list[tuple[int, int, int, int]]:
    """N, S that does not divide it, r and tau_comp."""
    pick, found = random.Random(4), list[tuple[int, int, int, int]]()
    while len(found) < count:
        devices, per_round = pick.randint(3, 12), pick.randint(2, 11)
        if per_round < devices and devices % per_round:
            found.append((devices, per_round, pick.randint(1, 3), pick.randint(0, 30)))
    return found


@pytest.mark.slow
def test_the_automatic_delay_is_the_longest_that_loses_no_slot() -> None:
    """It is the longest of all delays with which every round has S updates and no round ends later.

    This also holds if S does not divide N. With some longer delays no round ends later either; but
    their rounds have fewer updates, so that updates are sent later.
    """
    longer = 0
    for shape in uneven(100):
        runs = with_each_delay(*shape)
        in_time = {delay for delay, run in runs.items() if ends_no_later(run, runs[0])}
        full = {delay for delay in in_time if all(len(x.updates) == shape[1] for x in runs[delay])}
        no_later = {delay for delay, run in runs.items() if sends_no_later(run, runs[0])}
        assert Tdma(*shape).auto_delay == max(full), shape
        assert in_time & no_later == full, shape
        longer += max(in_time) > max(full)
    assert longer > 10


def with_each_delay(
    devices: int, per_round: int, transfer: int, computes: int
) -> dict[int, list[Any]]:
    """The first rounds, equally many for every delay."""
    groups = -(-devices // per_round)
    count = 2 * groups + devices
    slots = (count + groups) * (transfer * (per_round + 1) + computes)
    plain = shapes.Shape((computes,) * devices, per_round, transfer, slots, "idfl")
    given = (replace(plain, delay=delay) for delay in range(groups))
    return {one.delay: SlotBySlot(one).play()[:count] for one in given}


def ends_no_later(run: list[Any], plain: list[Any]) -> bool:
    pairs = zip(run, plain)
    return len(run) == len(plain) and all(one.end <= other.end for one, other in pairs)


def sends_no_later(run: list[Any], plain: list[Any]) -> bool:
    """The n-th update of all is sent as early as without delay."""
    slots, before = ([slot for each in one for _, _, slot in each.updates] for one in (run, plain))
    return all(slot <= early for slot, early in zip(slots, before))


@pytest.mark.parametrize("local_steps", [1, 3])
@pytest.mark.slow
def test_an_idfl_run_worked_out_again_with_numpy(local_steps: int, tmp_path: Path) -> None:
    """The same batches, w and its gradients computed here: 40 models, updates two rounds old."""
    learned = learning(shapes.by_hand(local_steps), None)
    summary = run_virtual(learned, 0, tmp_path / "idfl")
    assert summary["versions"] == 40 and summary["staleness"].keys() == {"0", "1", "2"}
    off = idfl_by_hand.difference(tmp_path / "idfl", learned, local_steps)
    print(f"largest difference of weights, {local_steps} local steps: {off:.2g}")
    assert off <= 1e-5
