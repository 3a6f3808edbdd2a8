"""The comparison: rows in the order of the config, and columns for each count of updates."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from builders import experiment, small_run
from rich.console import Console

from edgefl.config.file import dump
from edgefl.results import compare
from edgefl.results.summary import one_line
from edgefl.results.tables import table

STRATEGIES = [{"strategy": "fedbuff"}, {"strategy": "fedavg", "label": "zz"}, {"strategy": "fedac"}]
FACTS = {
    "strategy": "fedavg",
    "clock": "wall",
    "finished": "versions",
    "versions": 5,
    "emulated_s": 10.0,
    "wall_s": 1.0,
    "updates_received": 23,
    "updates_applied": 20,
    "updates_discarded": {},
    "final_accuracy": 0.5,
    "warnings": [],
    "fidelity": {"verdict": "faithful", "reasons": []},
}


def run(directory: Path, name: str | None = None, **changes: Any) -> Path:
    directory.mkdir(parents=True)
    (directory / "summary.json").write_text(json.dumps(FACTS | changes))
    if name is not None:
        whole = dump(experiment(strategies=STRATEGIES), {"run": {"strategy": name}})
        (directory / "config.toml").write_text(whole)
    return directory


def shown(rows: list[compare.Row], width: int = 100) -> list[str]:
    console = Console(width=width, color_system=None)
    with console.capture() as capture:
        console.print(table(rows, width))
    return capture.get().splitlines()


def test_the_order_is_that_of_the_config(tmp_path: Path) -> None:
    run(tmp_path / "a_run_without_config")
    for name in ("fedac", "zz", "fedbuff"):
        run(tmp_path / name / "seed1", name)
    run(tmp_path / "b_of_another_config", "fedprox")
    order = ["fedbuff", "zz", "fedac", "a_run_without_config", "b_of_another_config"]
    assert [row.name for row in compare.load(tmp_path)] == order
    (tmp_path / "fedac" / "seed1" / "config.toml").write_text("half a line =")
    assert [row.name for row in compare.load(tmp_path)] == [
        "fedbuff",
        "zz",
        "a_run_without_config",
        "b_of_another_config",
        "fedac",
    ]


def test_a_buffer_that_was_not_full_is_not_applied(tmp_path: Path) -> None:
    summary, _ = small_run(
        tmp_path,
        stop={"updates": 11},
        edges={"count": 2},
        strategies=[{"strategy": "fedbuff", "buffer_size": 4, "concurrency": 2}],
    )
    counts = summary["versions"], summary["updates_received"], summary["updates_applied"]
    assert counts == (2, 11, 8)
    assert sum(summary["staleness"].values()) == 11


@pytest.mark.parametrize("end", ["launcher gone", "no edge left"])
def test_a_run_that_was_broken_off_is_not_called_faithful(tmp_path: Path, end: str) -> None:
    rows = compare.load(run(tmp_path / "fedavg", finished=end))
    lines = shown(rows)
    assert lines[3].split()[-1] == "interrupted"
    assert lines[-1].strip() == f"fedavg: interrupted after 10.0 emulated s: {end}"
    assert f"interrupted: {end} (faithful so far)" in one_line(FACTS | {"finished": end}, "x")
    assert "faithful (versions)" in one_line(FACTS, "x")
