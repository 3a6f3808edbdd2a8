"""Slotted strategies against rounds that were played slot by slot from the paper's text, and an
IDFL run against one worked out with numpy alone (slot_by_slot.py, idfl_by_hand.py).
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest
from paths import BENCHMARKS

from edgefl.hosts.setup.learning import learning
from edgefl.hosts.virtual.run import run_virtual

SHAPES, PARTS = 200, 10
SEED = 1


@pytest.fixture(autouse=True)
def beside_the_benchmarks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(BENCHMARKS)


@pytest.fixture
def shapes() -> Any:
    return importlib.import_module("tdma_shapes")


@pytest.mark.parametrize("part", range(PARTS))
def test_random_shapes_are_played_as_slot_by_slot(part: int, shapes: Any) -> None:
    """Who sends which update in which slot, how old it is, who gets the model, slots wasted and
    lost: N up to 12, S that does not divide N, r 1 to 3, times from 0 on, deaths and returns.
    """
    for number in range(part, SHAPES, PARTS):
        shape = shapes.drawn(SEED, number)
        expected = shapes.slot_by_slot.SlotBySlot(shape).play()
        assert shapes.on_virtual(shape, expected)[0] == expected, (number, shape)


def test_the_shapes_have_all_that_they_should(shapes: Any) -> None:
    drawn = [shapes.drawn(SEED, number) for number in range(SHAPES)]
    faults = [fault for shape in drawn for fault in shape.faults]
    played = [shapes.slot_by_slot.SlotBySlot(shape).play() for shape in drawn]
    rounds = [each for one in played for each in one]
    assert len(rounds) > 3_000 and sum(not one for one in played) < SHAPES // 20
    assert {shape.devices for shape in drawn} == set(range(1, 13))
    assert {shape.transfer for shape in drawn} == {1, 2, 3}
    assert {takes for shape in drawn for takes in shape.takes} == set(range(10))
    assert sum(shape.devices % shape.per_round > 0 for shape in drawn) > SHAPES // 4
    returns = [fault.back < shapes.NEVER for fault in faults if not fault.cut]
    assert len(returns) - sum(returns) > 50 < sum(returns) and any(fault.cut for fault in faults)
    assert sum(each.lost for each in rounds) > 100 < sum(each.wasted > 0 for each in rounds)


@pytest.mark.parametrize("local_steps", [1, 3])
def test_an_idfl_run_worked_out_again_with_numpy(
    local_steps: int, shapes: Any, tmp_path: Path
) -> None:
    """The same batches, w and its gradients by hand: 40 models, updates two rounds old."""
    learned = learning(shapes.by_hand(local_steps), None)
    summary = run_virtual(learned, 0, tmp_path / "idfl")
    assert summary["versions"] == 40 and summary["staleness"].keys() == {"0", "1", "2"}
    off = shapes.idfl_by_hand.difference(tmp_path / "idfl", learned, local_steps)
    print(f"largest difference of weights, {local_steps} local steps: {off:.2g}")
    assert off <= 1e-5
