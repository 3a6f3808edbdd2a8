"""Flower apps on the wall clock: real processes and sockets."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from pathlib import Path

import pytest
from builders import EXAMPLES
from flower_apps import APPS, NEEDS_FLOWER
from paths import ROOT, STUDIES
from script_runs import ran

pytestmark = [pytest.mark.processes, NEEDS_FLOWER]
RUN = "import sys; from edgefl.cli import main; main()"


@pytest.mark.parametrize("app", APPS)
def test_an_app_over_sockets(tmp_path: Path, app: str) -> None:
    """All three strategies; the second app in real time (native devices)."""
    kind = "emulated" if app == "flower_torch" else "native"
    words = (
        "run",
        str(EXAMPLES / "flower.toml"),
        f"task=flower:{EXAMPLES / app}",
        f"devices.kind={kind}",
        "edges.count=3",
        "flower.samples=700",
        "stop.versions=2",
        "stop.emulated_s=300",
    )
    done = subprocess.run(
        [sys.executable, "-c", RUN, *words],
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for strategy in ("fedavg", "fedasync", "fedbuff"):
        directory = tmp_path / "runs" / "flower" / strategy
        summary = json.loads((directory / "summary.json").read_text())
        assert summary["versions"] == 2 and summary["final_accuracy"] > 0.2
        events = (directory / "events.jsonl").read_text()
        assert "training_failed" not in events and (directory / "clients.csv").is_file()


@pytest.mark.rest
def test_the_same_app_as_flowers_own_system_behind_the_proxy(tmp_path: Path) -> None:
    """Both systems end with the same model; no transfer is faster than its link."""
    words = ["--clients", "2", "--rounds", "1", "--mb", "0.1", "--mbit", "4", "--out", "found"]
    done = ran(STUDIES / "beside_flower.py", words, tmp_path)
    assert done.returncode == 0, done.stderr
    assert "behind the proxy:" in done.stdout
    found = json.loads((tmp_path / "found" / "rounds.json").read_text())["found"]
    assert found["largest_difference_of_models"] < 1e-6
    assert found["models_sent"] == 4  # down and up, of 2 clients
    assert found["mean_error_percent"] > -0.01
    with (tmp_path / "found" / "rounds.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [(row["system"], row["round"]) for row in rows] == [("flower", "1"), ("here", "1")]
    for row in rows:
        assert int(row["up_bytes"]) >= 2 * 99_900 <= int(row["down_bytes"])
        assert 0.39 < float(row["links_s"]) < float(row["seconds"])  # 0.1 MB down, 0.1 MB up
