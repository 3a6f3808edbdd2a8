"""Both clocks play the same run: the real coordinator and edges, on the wall clock of a simulated
machine, make the virtual clock's decisions at its moments, to the nanosecond.

The machine is that of the fault search: threads, sockets and disks of a real run, whose time costs
nothing. Messages take up to a millisecond on their way, a slice of training up to 20 ms, a job 10.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from search import scenario, system
from search.run import Run
from search.scenario import EDGES, EVENTS_FILE, STRATEGIES, Scenario, World, rows_of
from search.story import Story

from edgefl.clocks.virtual.run import run_virtual
from edgefl.results.read import read_events

AWAY = "e0,0,1.3\ne0,2.1,9\ne1,0.9,2.3\ne1,3.2,9\ne2,0,2.7\ne2,3.9,9\ne3,0,9\n"
FEDBUFF: dict[str, Any] = {"strategy": "fedbuff", "concurrency": 3, "buffer_size": 2}
CELL = {"kind": "cell", "up_mbit_s": 0.2, "down_mbit_s": 0.3}
FAULTS = [
    {"kind": "cut", "edges": ["e1"], "at_s": 0.4, "for_s": 0.7},
    {"kind": "cut_up", "edges": ["e2"], "at_s": 1.0, "for_s": 0.3},
    {"kind": "slow", "edges": ["e0"], "at_s": 0.2, "for_s": 2.0, "factor": 0.5},
    {"kind": "duplicate", "edges": ["e3"], "at_s": 0.5},
]


def absences(on_leave: str) -> dict[str, Any]:
    where = {"kind": "file", "file": "away.csv", "on_leave": on_leave}
    return {
        "edges": {"names": list(EDGES), "availability": where},
        "network": {"realtime": "off", "report_s": 0.0, "grace_s": 0.6},
    }


# what else a run may have, by name: the entry of its strategy, and further sections
OTHERS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "a cell": (FEDBUFF, {"medium": CELL, "links": {"latency_ms": 10.0}}),
    "faults of links": (FEDBUFF, {"faults": FAULTS}),
    **{f"absences, {leave}": (FEDBUFF, absences(leave)) for leave in ("keep", "lose")},
}
COMPRESSED = [Scenario("fedasync", "process", up="int8", down="float16")]
COMPRESSED += [Scenario("fedavg", "power", up="top_k"), Scenario("gsgm", "power", up="sign")]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return World(tmp_path_factory.mktemp("world"))


def both(world: World, played: Scenario, directory: Path) -> tuple[list[Any], list[Any]]:
    """The events with their decisions and moments, then the model: wall clock, virtual clock."""
    run = Run(world, Story(1, played, ()))
    outcome = run.play()
    assert outcome.broken is None and run.coordinator is not None
    wall: list[Any] = rows_of(bytes(run.disk.files[EVENTS_FILE].data))
    models: list[np.ndarray] = []
    run_virtual(
        world.learned(played),
        0,
        directory,
        lambda now, opened: models.append(opened.coordinator.weights),
    )
    virtual = list(read_events(directory / "events.jsonl"))
    ends = run.coordinator.run.coordinator.weights, models[-1]
    first, second = (
        [*(row for row in rows if "event" in row), weights.tobytes()]
        for rows, weights in zip((wall, virtual), ends, strict=True)
    )
    return first, second


@pytest.mark.parametrize("name", STRATEGIES)
def test_every_strategy_decides_the_same_at_the_same_moments(
    name: str, world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(system, "WORK_NS", 10_000_000)
    wall, virtual = both(world, Scenario(name, "process"), tmp_path)
    assert wall == virtual and len(wall) > 15


@pytest.mark.parametrize("name", OTHERS)
def test_so_it_is_on_shared_links_and_with_faults_and_absences(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(STRATEGIES, name, OTHERS[name])
    (tmp_path / "task.py").write_bytes((scenario.FOLDER / "task.py").read_bytes())
    (tmp_path / "away.csv").write_text(AWAY)
    monkeypatch.setattr(scenario, "FOLDER", tmp_path)
    wall, virtual = both(World(tmp_path), Scenario(name, "process"), tmp_path / "virtual")
    assert wall == virtual and len(wall) > 15


@pytest.mark.parametrize("played", COMPRESSED, ids=lambda each: each.up)
def test_so_it_is_with_compressed_messages(played: Scenario, world: World, tmp_path: Path) -> None:
    wall, virtual = both(world, played, tmp_path)
    assert wall == virtual and len(wall) > 15
