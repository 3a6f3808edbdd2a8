"""Training that raises, on both hosts: the same failed tasks, the same reasons, the same end."""

from __future__ import annotations

from pathlib import Path

import pytest
from paths import SUPPORT

from edgefl.clocks.setup.learning import learning
from edgefl.clocks.virtual.run import run_virtual
from edgefl.clocks.wall.launcher import LaunchOptions, WallRun
from edgefl.loading.file import load
from edgefl.results.compare import load_run
from edgefl.results.read import read_events

pytestmark = pytest.mark.processes

# 67, 67 and 66 samples: the last batch of edge c has one sample, and batch norm needs two.
CONFIG = f"""
name = "failing"
task = "{SUPPORT / "own_task.py"}:build"
edges = {{names = ["a", "b", "c"]}}
training = {{batch_size = 65}}
devices = {{samples_per_s = 1000.0}}
stop = {{versions = 4}}
[[strategies]]
strategy = "fedavg"
[[strategies]]
strategy = "fedasync"
[[strategies]]
strategy = "{SUPPORT / "pool_strategies.py"}:Refusing"
"""
NAMES = ("fedavg", "fedasync", "refusing")
BATCH = "step 2 of 2, batch of 1 sample: ValueError: Expected more than 1 value per channel"
HOOK = "before its first step: this model has no layers to speak of (pool_strategies.py, line"


@pytest.fixture(scope="module")
def runs(
    warm_python: None, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, tuple[Path, Path]]:
    """The run directories of each strategy, on the wall clock and under the virtual clock."""
    folder = tmp_path_factory.mktemp("failing")
    (folder / "failing.toml").write_text(CONFIG)
    options = LaunchOptions(folder / "runs", folder, force=True)
    wall = WallRun(load(folder / "failing.toml", []), options, print)
    wall.run(lambda *_: None)
    learned = learning(wall.experiment, folder)
    for index, name in enumerate(NAMES):
        run_virtual(learned, index, folder / "virtual" / name)
    return {
        name: (wall.directory(index), folder / "virtual" / name) for index, name in enumerate(NAMES)
    }


def failures(directory: Path) -> set[tuple[str, str]]:
    """(edge, reason) of all failed tasks; the strategy gets each of them, too."""
    events = read_events(directory / "events.jsonl")
    failed = [(row["edge"], row["reason"]) for row in events if "training_failed" in row.values()]
    closed = [(row["edge"], row["reason"]) for row in events if "task_closed" in row.values()]
    assert closed == [
        (edge, f"training failed: edge {edge}, {reason}") for edge, reason in failed
    ] and any("Traceback" in row.get("trace", "") for row in events)
    return set(failed)


@pytest.mark.parametrize("name", ["fedavg", "fedasync"])
def test_the_run_goes_on_with_the_other_edges(
    name: str, runs: dict[str, tuple[Path, Path]]
) -> None:
    wall, virtual = runs[name]
    [(edge, reason)] = failures(wall)
    assert edge == "c" and reason.startswith(BATCH)
    assert failures(virtual) == {(edge, reason)}
    for directory in (wall, virtual):
        row = load_run(directory, name)
        assert (row.finished, row.versions) == ("versions", 4)
        assert row.warnings.startswith("training failed in ") and BATCH in row.warnings


def test_the_run_ends_if_most_edges_fail(runs: dict[str, tuple[Path, Path]]) -> None:
    wall, virtual = runs["refusing"]
    ends = [load_run(directory, "refusing").finished or "" for directory in (wall, virtual)]
    for end in ends:
        assert end.startswith("training fails on most edges: edge ") and HOOK in end
    assert {reason for _, reason in failures(wall)} == {reason for _, reason in failures(virtual)}


def test_the_traceback_stands_in_the_log_of_the_edge(
    runs: dict[str, tuple[Path, Path]],
) -> None:
    log = (runs["fedavg"][0].parent / "edges.log").read_text()
    assert log.count("_verify_batch_size(input.size())") >= 1
    assert f"c: task 2 failed: {BATCH}" in log
