"""The limit of open files: it is raised, and a run of too many edges is refused in one line."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

CONFIG = """
name = "many"
model = {name = "mlp", hidden = [4]}
training = {trainer = "none"}
edges = {count = 20}
stop = {versions = 1}
strategies = [{strategy = "fedavg"}]
"""
LIMITED = """
import resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (%d, %d))
%s
"""
ROOM = "from edgefl.hosts.wall.coordinator.open_files import room_for_edges\n"
LEFT = ROOM + "print(room_for_edges(20), resource.getrlimit(resource.RLIMIT_NOFILE)[0])"
RUN = "from edgefl.cli import main; sys.argv[1:] = ['run', 'many.toml']; main()"


def limited(soft: int, hard: int, code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", LIMITED % (soft, hard, code)],
        cwd=folder,
        capture_output=True,
        text=True,
    )


@pytest.mark.processes
def test_the_limit_is_raised_and_what_is_left_is_told(tmp_path: Path) -> None:
    done = limited(70, 100, LEFT, tmp_path)
    assert done.stdout.split() == ["16", "100"], done.stderr


@pytest.mark.processes
def test_too_many_edges_for_the_limit_are_one_line(tmp_path: Path) -> None:
    (tmp_path / "many.toml").write_text(CONFIG)
    done = limited(70, 80, RUN, tmp_path)
    assert done.returncode == 2 and done.stderr.splitlines() == [
        "edgefl: 20 edges need 84 open files, this system allows 80 (ulimit -n)"
    ]
    assert not (tmp_path / "runs").exists()
