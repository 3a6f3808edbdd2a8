"""An artifact in another place: made of the quickstart, moved, installed, both scripts run."""

from __future__ import annotations

import faulthandler
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from paths import CONFIGS, ROOT

LIMIT_S = 900.0  # of one command: an index of packages may be slow
pytestmark = [pytest.mark.processes, pytest.mark.rest]


def run(*words: str | Path, cwd: Path, **env: str) -> subprocess.CompletedProcess[str]:
    """Run a command that cannot import the checkout unless ``env`` says so."""
    free = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    command = list(map(str, words))
    return subprocess.run(
        command, cwd=cwd, env=free | env, capture_output=True, text=True, timeout=LIMIT_S
    )


def test_an_artifact_of_the_quickstart_works_in_another_place_and_environment(
    tmp_path: Path,
) -> None:
    faulthandler.cancel_dump_traceback_later()  # each command has a limit of its own
    edgefl = (sys.executable, "-m", "edgefl")
    config = CONFIGS / "quickstart.toml"
    for words in (
        ("run", config, "--clock", "virtual", "seeds=[1,2]", "stop.emulated_s=10"),
        ("artifact", "runs/quickstart", "--baseline", "fedavg", "--out", "made.zip"),
    ):
        done = run(*edgefl, *words, cwd=tmp_path, PYTHONPATH=str(ROOT))
        assert done.returncode == 0, done.stdout + done.stderr
    elsewhere = tmp_path / "another place"
    shutil.unpack_archive(tmp_path / "made.zip", elsewhere)
    shutil.rmtree(tmp_path / "runs")
    folder = elsewhere / "made"
    for script in ("install.sh", "kick-the-tires.sh", "reproduce.sh"):
        (folder / script).chmod(0o755)  # unpack_archive drops it
    done = run("./install.sh", cwd=folder)
    if "No matching distribution" in done.stderr or "Could not find a version" in done.stderr:
        pytest.skip("no index of packages that has them all")
    assert done.returncode == 0, done.stdout + done.stderr
    where = run(".venv/bin/python", "-c", "import edgefl; print(edgefl.__file__)", cwd=folder)
    assert Path(where.stdout.strip()).is_relative_to(folder / ".venv")
    done = run("./kick-the-tires.sh", cwd=folder)
    assert done.returncode == 0 and "3 of 3 claims pass" in done.stdout, done.stdout + done.stderr
    done = run("./reproduce.sh", cwd=folder)
    assert done.returncode == 0 and "FAIL" not in done.stdout, done.stdout + done.stderr
    again = run("./reproduce.sh", cwd=folder)
    assert "is finished" in again.stdout and again.returncode == 0
    summary = folder / "results" / "quickstart" / "fedavg" / "seed2" / "summary.json"
    summary.write_text(summary.read_text().replace('"bytes_up": ', '"bytes_up": 9'))
    done = run(".venv/bin/python", "check.py", "--script", "reproduce.sh", cwd=folder)
    assert done.returncode == 1 and "FAIL  fedavg: sent in both directions" in done.stdout
