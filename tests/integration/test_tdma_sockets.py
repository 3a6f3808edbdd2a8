"""A slotted strategy over real sockets: bytes stay in their slots, a broadcast is one transfer."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from media import ns, transfers
from paths import EXAMPLES

from edgefl.clocks.wall.launcher import LaunchOptions, WallRun
from edgefl.loading.file import load
from edgefl.results.read import read_csv

pytestmark = pytest.mark.alone

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
strategies = [{{strategy = "idfl", per_round = 1, local_steps = "epochs"}}]
"""


@pytest.fixture(scope="module")
def run(warm_python: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a run."""
    folder = tmp_path_factory.mktemp("slots")
    (folder / "slots.toml").write_text(CONFIG)
    wall = WallRun(load(folder / "slots.toml", []), LaunchOptions(folder / "runs", folder), print)
    assert wall.run(lambda *_: None)[0]["versions"] == 10
    return wall.directory(0)


def test_no_byte_lies_outside_its_slot_in_the_plan(run: Path) -> None:
    rows = sorted(
        (ns(row["begins_s"]), ns(row["ends_s"]), row["edge"]) for row in read_csv(run / "slots.csv")
    )
    assert rows and all(first[1] <= second[0] for first, second in pairwise(rows))
    assert all(
        begin_ns % (60 * MS) == 0 and end_ns - begin_ns == 40 * MS for begin_ns, end_ns, _ in rows
    )


def test_a_broadcast_is_one_transfer(run: Path) -> None:
    """Its bytes count once, for any number of receivers; w_0 is known and costs nothing."""
    down: list[dict[str, Any]] = transfers(run, direction="down")
    assert {row["edge"] for row in down} == {"*"} and 8 <= len(down) <= 10
    assert not (run / "measured.csv").exists()  # of native links alone
