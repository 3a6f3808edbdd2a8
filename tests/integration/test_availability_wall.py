"""Edges that come and go on real processes: the decisions of the virtual clock."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from processes import SMALL, happened

from edgefl.hosts.setup.learning import learning
from edgefl.hosts.virtual.run import run_virtual
from edgefl.hosts.wall.launcher import LaunchOptions, WallRun
from edgefl.loading.file import load
from edgefl.results.tail import read_events

pytestmark = pytest.mark.alone

TRIES = 3  # of a run that is faithful on an idle machine: this machine may be busy
TIMES = "e000,0,1.3\ne000,2.1,9\ne001,0.9,2.3\ne001,3.2,9\ne002,0,2.7\ne002,3.9,9\n"


def story(directory: Path) -> list[dict[str, Any]]:
    """The strategy's events and decisions, without the times."""
    return [
        {key: value for key, value in line.items() if key != "t"}
        for line in read_events(directory / "events.jsonl")
        if "event" in line
    ]


@pytest.mark.parametrize("on_leave", ["keep", "lose"])
def test_both_clocks_make_the_same_decisions(
    on_leave: str, warm_python: None, tmp_path: Path
) -> None:
    (tmp_path / "times.csv").write_text(TIMES)
    where = f'{{kind = "file", file = "times.csv", on_leave = "{on_leave}"}}'
    text = SMALL.replace("{count = 3}", f"{{count = 3, availability = {where}}}")
    text = text.replace("{versions = 8}", "{emulated_s = 5.0}")
    text = text.replace("samples_per_s = 2000.0", "samples_per_s = 700.0")
    (tmp_path / "away.toml").write_text(text + "[network]\ngrace_s = 0.6\n")
    experiment = load(tmp_path / "away.toml")
    virtual = tmp_path / "virtual"
    run_virtual(learning(experiment, tmp_path), 0, virtual)
    moments = [line["t"] for line in read_events(virtual / "events.jsonl") if line["t"] > 0]
    assert min(step for step in np.diff(moments) if step > 0) > 0.002, (
        "events too close for their order to be the same on both clocks"
    )
    for attempt in range(TRIES):
        options = LaunchOptions(tmp_path / f"runs{attempt}", tmp_path, force=True)
        wall = WallRun(experiment, options, print)
        summary = wall.run(lambda *_: None)[0]
        if story(wall.directory(0)) == story(virtual):
            break
    if summary["fidelity"]["reasons"] and story(wall.directory(0)) != story(virtual):
        pytest.skip(f"this machine was too busy: {summary['fidelity']['reasons']}")
    assert story(wall.directory(0)) == story(virtual)
    for what in ("edge_lost", "edge_joined"):
        here, there = (
            [(line["edge"], line["t"]) for line in happened(run, event=what)]
            for run in (wall.directory(0), virtual)
        )
        assert here == there, "to the nanosecond: the coordinator knows when"
