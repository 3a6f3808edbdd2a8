"""`edgefl sweep` killed with SIGKILL: the same command goes on and gives the same bytes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from kills import files_of
from paths import SUPPORT
from processes import wait_for
from terminals import end, family, gone

from edgefl.record.files import CHECKPOINTS, EVENTS, SUMMARY
from edgefl.results.run_files import title

pytestmark = pytest.mark.processes

CONFIG = f"""
name = "killed"
task = "{SUPPORT / "own_task.py"}:build"
stop = {{ versions = 20 }}
edges = {{ count = 4 }}
devices = {{ samples_per_s = 200.0, slowest_ratio = 3.0 }}
[[strategies]]
strategy = "fedbuff"
concurrency = 3
buffer_size = 2
"""
WORDS = ("sweep", "killed.toml", "--grid", "training.learning_rate=0.03,0.3", "--grid", "seed=1,2")
RUNS = 2 * (1 + 2)  # the seed of the choice, and two of the table


def start(folder: Path, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, str(SUPPORT / "often_saved.py"), *words],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_a_killed_sweep_goes_on(tmp_path: Path) -> None:
    (tmp_path / "killed.toml").write_text(CONFIG)
    out = tmp_path / "runs" / "killed-sweep"
    saved: set[Path] = set()
    for _ in range(2):
        process = start(tmp_path, *WORDS, "--workers", "2")
        known = set(out.rglob(f"{CHECKPOINTS}/*.json"))
        wait_for(lambda known=known: set(out.rglob(f"{CHECKPOINTS}/*.json")) - known)
        processes = family(process)
        process.kill()
        assert gone(processes), "workers end with the command"
        process.communicate()
        saved = {path.parent.parent for path in out.rglob(f"{CHECKPOINTS}/*.json")}
    done = {path: path.stat().st_mtime_ns for path in out.rglob(SUMMARY)}
    assert saved and len(done) < RUNS
    status, told, err = end(start(tmp_path, *WORDS, "--workers", "2"))
    assert status == 0, err
    assert f"[{RUNS} of {RUNS} runs]" in told and "best setting of fedbuff" in told
    assert not done or f"done before: {len(done)} of {RUNS} runs" in told
    assert not any(f"{title(run)}: has no checkpoint" in told + err for run in saved)
    assert all(path.stat().st_mtime_ns == at for path, at in done.items()), "run again"
    status, _, err = end(start(tmp_path, *WORDS, "--workers", "2", "--out", "whole"))
    assert status == 0, err
    runs = [path.parent.relative_to(out) for path in out.rglob(EVENTS)]
    assert len(runs) == RUNS
    for run in runs:
        assert files_of(out / run) == files_of(tmp_path / "whole" / run)
    assert (out / "settings.csv").read_bytes() == (tmp_path / "whole/settings.csv").read_bytes()
