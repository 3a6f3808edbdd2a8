"""The compared algorithms over real sockets: the run of the virtual clock, and the method's bytes
on the wire.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from builders import experiment
from paths import SUPPORT
from safetensors.numpy import load_file
from sent_elements import DOWN, MODEL, MOST_HEADER, UP

from edgefl.clocks.setup.learning import learning
from edgefl.clocks.virtual.run import run_virtual
from edgefl.clocks.wall.edge.membership import SideBuilder
from edgefl.clocks.wall.launcher import LaunchOptions, WallRun
from edgefl.loading.file import load, to_json
from edgefl.protocol.messages import Setup
from edgefl.results.read import read_csv, read_events
from edgefl.strategies.base.strategy import LocalRule
from edgefl.strategies.moon import Contrast
from edgefl.strategies.syncdrop import SubModel

pytestmark = pytest.mark.alone

TASK = SUPPORT / "own_task.py"
# PORT: tests/edgefl/edges/test_edge.py
NAMES = ("moon", "fedlws", "asofed", "asyncpart", "syncdrop", "fedac")
CONFIG = f"""
name = "sockets"
seed = 3
task = "{TASK}:build"
edges = {{count = 3}}
training = {{batch_size = 16}}
devices = {{samples_per_s = 400.0, slowest_ratio = 2.0}}
links = {{up_mbit_s = 0.5, down_mbit_s = 1.0, latency_ms = 5.0}}
stop = {{versions = 4}}
strategies = [
    {{strategy = "moon", clients_per_round = 2}},
    {{strategy = "fedlws", clients_per_round = 2}},
    {{strategy = "asofed", concurrency = 2}},
    {{strategy = "asyncpart", concurrency = 2, slot_s = 0.25}},
    {{strategy = "syncdrop", concurrency = 2}},
    {{strategy = "fedac", concurrency = 2, buffer_size = 1}},
]
"""


@pytest.fixture(scope="module")
def runs(
    warm_python: None, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, tuple[Path, Path]]:
    """Strategy -> its run directories on the wall clock and under the virtual clock."""
    folder = tmp_path_factory.mktemp("sockets")
    (folder / "sockets.toml").write_text(CONFIG)
    wall = WallRun(load(folder / "sockets.toml", []), LaunchOptions(folder / "runs", folder), print)
    wall.run(lambda *_: None)
    learned = learning(wall.experiment, folder)
    for index, name in enumerate(NAMES):
        run_virtual(learned, index, folder / "virtual" / name)
    return {
        name: (wall.directory(index), folder / "virtual" / name) for index, name in enumerate(NAMES)
    }


def order(directory: Path) -> list[tuple[str, int]]:
    return [
        (line["edge"], line["task"])
        for line in read_events(directory / "events.jsonl")
        if line.get("event") == "update_arrived"
    ]


@pytest.mark.parametrize("name", NAMES)
def test_both_clocks_make_the_same_model(name: str, runs: dict[str, tuple[Path, Path]]) -> None:
    """This includes what edges remember between tasks.

    On a busy machine arrivals that are close may change places; then the runs cannot be compared.
    """
    wall, virtual = runs[name]
    if order(wall) != order(virtual):
        pytest.skip("this machine was too busy to keep the order of arrivals")
    assert (
        load_file(wall / "model.safetensors")["weights"].tobytes()
        == load_file(virtual / "model.safetensors")["weights"].tobytes()
    )


@pytest.mark.parametrize("name", NAMES)
def test_the_wire_carries_what_the_method_sends(
    name: str, runs: dict[str, tuple[Path, Path]]
) -> None:
    rows = read_csv(runs[name][0] / "links.csv")
    for kind, elements in (("task", DOWN.get(name, MODEL)), ("update", UP.get(name, MODEL))):
        sizes = [int(row["bytes"]) for row in rows if row["kind"] == kind]
        assert len(sizes) >= 4 and all(
            4 * elements < size < 4 * elements + MOST_HEADER for size in sizes
        )


def test_an_edge_in_a_terminal_of_its_own_has_each_strategy_s_half() -> None:
    """The edge keeps data and model from strategy to strategy. The coordinator sends each strategy
    alone.
    """
    given = experiment(
        strategies=[{"strategy": "fedavg"}, {"strategy": "moon"}, {"strategy": "syncdrop"}]
    )
    builder = SideBuilder("a", None, None, [])
    kinds, loaded = [], []
    for entry in given.strategies:
        kinds.append(type(builder.side(Setup(to_json(given, entry), entry.strategy)).edge.rule))
        loaded.append(builder.learned.workspace)
    assert kinds == [LocalRule, Contrast, SubModel] and loaded[0] is loaded[1] is loaded[2]
