"""Edges that come and go on real processes."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from processes import SMALL, happened, start, wait_for
from terminals import Terminals, end, family, gone

from edgefl.clocks.setup.learning import learning
from edgefl.clocks.virtual.run import run_virtual
from edgefl.loading.file import load

pytestmark = pytest.mark.alone

TIMES = "e000,0,1.3\ne000,2.1,9\ne001,0.9,2.3\ne001,3.2,9\ne002,0,2.7\ne002,3.9,9\n"


def when(directory: Path, event: str) -> list[tuple[str, int]]:
    """Return the edges of an event and when it was, in emulated ns, in the record's order."""
    return [(line["edge"], line["t"]) for line in happened(directory, event=event)]


def test_edges_that_do_not_have_the_file_get_its_times(
    folder: Path, started: list[subprocess.Popen[str]]
) -> None:
    """One edge has the config and the file itself; the file of the others is deleted."""
    text = SMALL.replace(
        "{count = 3}", '{count = 3, availability = {kind = "file", file = "times.csv"}}'
    ).replace("{versions = 8}", "{emulated_s = 4.0}")
    (folder / "own").mkdir()
    for place in (folder, folder / "own"):
        (place / "away.toml").write_text(text + "[network]\ngrace_s = 0.6\n")
        (place / "times.csv").write_text(TIMES)
    experiment = load(folder / "away.toml")
    virtual = folder / "virtual"
    run_virtual(learning(experiment, folder), 0, virtual)
    run = Terminals(started, "away.toml")
    (folder / "times.csv").unlink()
    edges = [run.edge(f"e00{number}") for number in range(2)]
    edges.append(run.edge("e002", "--config", str(folder / "own" / "away.toml")))
    assert [end(process)[0] for process in (run.coordinator, *edges)] == [0, 0, 0, 0]
    wall = folder / "runs" / "small" / experiment.strategies[0].name
    for what in ("edge_lost", "edge_joined"):
        here = when(wall, what)
        assert here == when(virtual, what) and len(here) >= 3


def test_a_run_that_is_broken_off_during_an_absence_goes_on_with_the_times_of_the_file(
    folder: Path, started: list[subprocess.Popen[str]]
) -> None:
    text = SMALL.replace(
        "{count = 3}", '{count = 3, availability = {kind = "file", file = "times.csv"}}'
    ).replace("{versions = 8}", "{emulated_s = 9.0}")
    times = "e000,0,1.3\ne000,5.1,20\ne001,0,6.3\ne001,7.2,20\ne002,0,20\n"
    (folder / "away.toml").write_text(text + "[network]\ngrace_s = 9.0\n")
    (folder / "times.csv").write_text(times)
    process = start(started, "run", "away.toml")
    wall = folder / "runs" / "small" / load(folder / "away.toml").strategies[0].name
    wait_for(lambda: happened(wall, event="edge_lost"))
    processes = family(process)
    process.kill()
    process.communicate(timeout=60)
    assert gone(processes)
    assert end(start(started, "run", "--resume", "runs/small"))[0] == 0
    (resumed,) = happened(wall, fact="resumed")
    assert 1.3 <= resumed["t"] < 5.1, "the edge was away"
    lost = [(row["edge"], row["t"]) for row in happened(wall, event="edge_lost")]
    joined = [(row["edge"], row["t"]) for row in happened(wall, event="edge_joined")]
    assert lost.count(("e000", 1.3)) == 1 and ("e001", 6.3) in lost
    assert [t for edge, t in joined if edge == "e000" and t > 1.3] == [5.1]
    assert ("e001", 7.2) in joined
