"""Slotted strategies over real sockets: the rounds, slots and models of the virtual clock, and
bytes that stay in their slots.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from media import ns, transfers
from paths import EXAMPLES
from safetensors.numpy import load_file
from tdma_rounds import rounds

from edgefl.clocks.setup.learning import learning
from edgefl.clocks.virtual.run import run_virtual
from edgefl.clocks.wall.launcher import LaunchOptions, WallRun
from edgefl.loading.file import load
from edgefl.results.read import read_csv, read_events
from emulator.tdma.closed_form import Tdma

pytestmark = pytest.mark.alone

TRIES = 3  # of a run that is faithful on an idle machine: this machine may be busy
NAMES = ("tdma-fl", "idfl")
MS = 1_000_000
CONFIG = f"""
name = "slots"
task = "{EXAMPLES / "my_task.py"}:build"
edges = {{count = 6}}
training = {{batch_size = 16}}
devices = {{samples_per_slot = 7.0}}
medium = {{kind = "tdma", slot_ms = 60.0, guard_ms = 20.0, rate_mbit_s = 1.0}}
stop = {{versions = 10}}
evaluation = {{every_versions = 5}}
strategies = [
    {{strategy = "tdma-fl", per_round = 2, local_steps = "epochs"}},
    {{strategy = "idfl", per_round = 1, local_steps = "epochs"}},
]
"""


@pytest.fixture(scope="module")
def runs(
    warm_python: None, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, tuple[Path, Path]]:
    """Strategy -> its run directories on the wall clock and under the virtual clock."""
    folder = tmp_path_factory.mktemp("slots")
    (folder / "slots.toml").write_text(CONFIG)
    for _ in range(TRIES):
        wall = WallRun(
            load(folder / "slots.toml", []), LaunchOptions(folder / "runs", folder), print
        )
        if {summary["fidelity"]["verdict"] for summary in wall.run(lambda *_: None)} == {
            "faithful"
        }:
            break
    learned = learning(wall.experiment, folder)
    for index, name in enumerate(NAMES):
        run_virtual(learned, index, folder / "virtual" / name)
    return {
        name: (wall.directory(index), folder / "virtual" / name) for index, name in enumerate(NAMES)
    }


def values(directory: Path) -> list[dict[str, float]]:
    found = [
        each
        for event in read_events(directory / "events.jsonl")
        for each in event.get("decisions", [])
    ]
    return [each["values"] for each in found if each["do"] == "report"]


@pytest.mark.parametrize("name", NAMES)
def test_both_clocks_play_the_same_slots(name: str, runs: dict[str, tuple[Path, Path]]) -> None:
    """Which edge sends in which slot, from which model, and which edge gets the next one.

    So the last model is equal bit for bit.
    """
    wall, virtual = runs[name]
    if rounds(wall) != rounds(virtual) and any(each["wasted_slots"] for each in values(wall)[1:]):
        pytest.skip("this machine was too busy to be ready in every slot")
    assert rounds(wall) == rounds(virtual) and len(rounds(wall)) == 10
    assert (
        load_file(wall / "model.safetensors")["weights"].tobytes()
        == load_file(virtual / "model.safetensors")["weights"].tobytes()
    )


@pytest.mark.parametrize(
    ("name", "shape"), [("tdma-fl", Tdma(6, 2, 1, 5)), ("idfl", Tdma(6, 1, 1, 5, 2))]
)
def test_rounds_end_as_planned(name: str, shape: Tdma, runs: dict[str, tuple[Path, Path]]) -> None:
    """33 or 34 samples at 7 per slot take 5 slots.

    On the wall clock a round ends within one slot of the plan, shifted by the lost slots.
    """
    assert shape.delay == Tdma(6, shape.per_round, 1, 5).auto_delay * (name == "idfl")
    for directory, most in zip(runs[name], (1, 0)):
        found, shifted = values(directory), 0.0
        for number, each in enumerate(found):
            planned_idle = (
                shape.end_slot(number)
                - (shape.end_slot(number - 1) if number else 0)
                - shape.comm_slots
            )
            shifted += max(each["wasted_slots"] - planned_idle, 0)
            assert abs(each["end_slot"] - shape.end_slot(number) - shifted) <= most


@pytest.mark.parametrize("name", NAMES)
def test_no_byte_lies_outside_its_slot_in_the_plan(
    name: str, runs: dict[str, tuple[Path, Path]]
) -> None:
    for directory in runs[name]:
        rows = sorted(
            (ns(row["begins_s"]), ns(row["ends_s"]), row["edge"])
            for row in read_csv(directory / "slots.csv")
        )
        assert all(first[1] <= second[0] for first, second in pairwise(rows))
        assert all(
            begin_ns % (60 * MS) == 0 and end_ns - begin_ns == 40 * MS
            for begin_ns, end_ns, _ in rows
        )


@pytest.mark.parametrize("name", NAMES)
def test_a_broadcast_is_one_transfer(name: str, runs: dict[str, tuple[Path, Path]]) -> None:
    """Its bytes count once, for any number of receivers; w_0 is known and costs nothing."""
    for directory in runs[name]:
        down: list[dict[str, Any]] = transfers(directory, direction="down")
        assert {row["edge"] for row in down} == {"*"} and 8 <= len(down) <= 10
        assert not (directory / "measured.csv").exists()  # of native links alone
