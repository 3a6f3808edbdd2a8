"""Flower apps on the wall clock: real processes and sockets."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from builders import EXAMPLES
from flower_apps import APPS, NEEDS_FLOWER
from paths import ROOT

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
