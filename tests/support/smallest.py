"""The benchmarks in their smallest form, started like a user does."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import orjson
from paths import BENCHMARKS, ROOT

PATIENCE_S = 300.0  # far more than needed, because a busy machine may be slow
ROW = {"name", "value", "unit", "goal", "pass"}
SMALLEST_BENCHMARKS = {
    "agreement.py": ["--quick"],
    "arm64.py": ["--check"],
    "broken_hosts.py": ["--hosts", "2", "--edges", "1", "--fault", "sshd killed"],
    "chaos.py": ["--case", "an edge killed every 2 s", "--edges", "3", "--versions", "12"],
    "checkpoints.py": ["--quick"],
    "data.py": ["--quick"],
    "edge.py": ["--versions", "2", "--turns", "1"],
    "emulator_accuracy.py": ["--tiny"],
    "emulator_lab.py": ["--tiny"],
    "evil_edges.py": ["--seconds", "0.5", "--attack", "offers"],
    "fleet.py": ["--edges", "2"],
    "gpu.py": ["--quick"],
    "growth.py": ["--case", "small", "--rounds", "20"],
    "intervals.py": ["--samples", "100", "--seeds", "3", "--seeds", "6"],
    "live.py": [*("--edges", "3", "--turns", "1"), *("--seconds", "2", "--hour", "20")],
    "machines.py": ["--quick"],
    "over_machines.py": ["--tiny", "--page", "page.md"],
    "pacing.py": [
        *("--case", "2x2", "--case", "2x2", "--rounds", "1", "--turns", "1"),
        *("--against", str(ROOT)),
    ],
    "profile_circle.py": ["--quick"],
    "profile_virtual.py": ["--updates", "2"],
    "protocol.py": ["--case", "2x0.25", "--rounds", "3"],
    "reading.py": ["--events", "300", "--turns", "1"],
    "recovery.py": [*("--edges", "4", "--working", "2"), *("--versions", "5", "--hidden", "16")],
    "scale.py": ["--quick", "--page", "page.md"],
    "startup.py": ["--turns", "1"],
    "strategies.py": ["--size", "1000", "--repeats", "2"],
    "tdma_shapes.py": ["--quick"],
    "text_links.py": ["--quick", "--kind", "lora"],
    "text_memory.py": ["--quick"],
    "training.py": ["--quick"],
    "virtual.py": ["--quick", "--turns", "1"],
}
SOCKETS = {
    *("agreement.py", "broken_hosts.py", "chaos.py", "edge.py", "emulator_accuracy.py"),
    *(
        "emulator_lab.py",
        "evil_edges.py",
        "fleet.py",
        "growth.py",
        "live.py",
        "machines.py",
        "over_machines.py",
        "pacing.py",
        "profile_circle.py",
    ),
    *("protocol.py", "reading.py", "recovery.py", "scale.py", "startup.py", "tdma_shapes.py"),
    "text_links.py",
}


def ran(script: Path, words: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(script), *words],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )


def assert_rows(benchmark: str, folder: Path) -> None:
    """Check that the benchmark runs and writes complete rows."""
    done = ran(
        BENCHMARKS / benchmark, [*SMALLEST_BENCHMARKS[benchmark], "--json", "rows.json"], folder
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr and "rows: rows.json" in done.stderr
    rows = orjson.loads((folder / "rows.json").read_bytes())
    assert rows and all(row.keys() == ROW for row in rows)
    assert all(is_whole(row) for row in rows)
    assert any(isinstance(row["value"], int | float) for row in rows)


def is_whole(row: dict[str, Any]) -> bool:
    """Return whether a row is valid: a row with a goal must have a finite number."""
    value = row["value"]
    if isinstance(value, str) or (value is None and row["goal"] is None):
        return row["goal"] is None
    return value is not None and math.isfinite(value)
