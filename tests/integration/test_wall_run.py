"""The launcher when there is nothing left to wait for."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgefl.clocks.wall.launcher import LaunchOptions, WallRun
from edgefl.config.file import load

pytestmark = [pytest.mark.processes, pytest.mark.alone]

ALGORITHM = """
import os
import sys

from edgefl.strategies.fedavg import FedAvg
from edgefl.strategies.base.strategy import LocalRule

class Fails(LocalRule):
    def begin(self, run):
        print("out of memory", file=sys.stderr, flush=True)
        os._exit(9)

class Broken(FedAvg):
    rule = Fails
"""
CONFIG = """
[edges]
count = 2
[devices]
samples_per_s = 500.0
[network]
grace_s = 1000.0
[stop]
versions = 3
[[strategies]]
strategy = "broken.py:Broken"
label = "broken"
"""


def test_a_run_whose_edges_have_all_died_ends_and_says_so(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text(ALGORITHM)
    (tmp_path / "config.toml").write_text(CONFIG)
    said: list[str] = []
    run = WallRun(
        load(tmp_path / "config.toml"), LaunchOptions(tmp_path / "out", tmp_path), said.append
    )
    (summary,) = run.run(lambda index, directory, port: None)
    assert summary["finished"] == "no edge left" and summary["versions"] == 0
    assert sum("died" in line for line in said) == 2
    assert "out of memory" in (tmp_path / "out" / "edges.log").read_text()
