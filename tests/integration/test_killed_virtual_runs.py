"""`edgefl run --clock virtual` killed with SIGKILL again and again: `--resume` gives the bytes of a
run without a break.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from kills import files_of
from paths import SUPPORT
from processes import wait_for
from terminals import end, family, gone

from edgefl.record.files import CHECKPOINTS, SUMMARY
from edgefl.results.run_files import title

pytestmark = pytest.mark.processes

CONFIG = f"""
name = "killed"
task = "{SUPPORT / "own_task.py"}:build"
stop = {{ versions = 20 }}
seeds = [1, 2]
edges = {{ count = 4 }}
devices = {{ samples_per_s = 200.0, slowest_ratio = 3.0, energy = {{ profile = "pi4" }} }}
links = {{ radio = {{ profile = "lte" }} }}
[[strategies]]
strategy = "fedbuff"
concurrency = 3
buffer_size = 2
[[strategies]]
strategy = "fedasmu"
period_s = 1.0
clients_per_trigger = 2
"""
WORDS = ("killed.toml", "--clock", "virtual")
RUNS = [f"{name}/seed{seed}" for name in ("fedbuff", "fedasmu") for seed in (1, 2)]


def start(folder: Path, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, str(SUPPORT / "often_saved.py"), "run", *words],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def checkpoints(folder: Path) -> set[str]:
    return {str(path) for path in folder.glob(f"*/*/{CHECKPOINTS}/*.json")}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run without a break."""
    folder = tmp_path_factory.mktemp("whole")
    (folder / "killed.toml").write_text(CONFIG)
    status, _, err = end(start(folder, *WORDS, "--workers", "2"))
    assert status == 0, err
    return folder / "runs" / "killed"


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_comparison_is_killed_and_resumed(tmp_path: Path, whole: Path, workers: str) -> None:
    (tmp_path / "killed.toml").write_text(CONFIG)
    runs, resumed = tmp_path / "runs" / "killed", ("--resume", "runs/killed")
    for words in (WORDS, resumed):
        known = checkpoints(runs)
        process = start(tmp_path, *words, "--workers", workers)
        wait_for(lambda known=known: checkpoints(runs) - known)
        processes = family(process)
        process.kill()
        assert gone(processes), "workers end with the command"
        process.communicate()
    finished = {path: path.stat().st_mtime_ns for path in runs.glob(f"*/*/{SUMMARY}")}
    assert len(finished) < len(RUNS)
    saved = {Path(path).parent.parent for path in checkpoints(runs)}
    status, out, err = end(start(tmp_path, *resumed, "--workers", workers))
    assert status == 0, err
    assert saved and "going on with" in out
    assert not any(f"{title(run)}: has no checkpoint" in out + err for run in saved)
    assert all(path.stat().st_mtime_ns == at for path, at in finished.items()), "run again"
    for name in RUNS:
        assert files_of(runs / name) == files_of(whole / name)
    assert not checkpoints(runs)
