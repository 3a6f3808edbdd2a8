"""A resumed run: its outages in the comparison, in the line at its end and on the screen."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest
from rich.console import Console

from edgefl.config.experiment import Stop
from edgefl.results import compare
from edgefl.results.progress import LiveView
from edgefl.results.tables import table

OUTAGES = [{"at_s": 12.5, "outage_s": 30.0}, {"at_s": 20.0, "outage_s": 5.0625}]
EVENTS = [
    {"t": 0.0, "event": "run_started", "version": 0, "decisions": []},
    {"t": 12.5, "fact": "resumed", "outage_s": 30.0},
    {"t": 20.0, "fact": "resumed", "outage_s": 5.0625},
    {"t": 20.5, "event": "alarm_rang", "version": 7, "decisions": []},
]
SUMMARY: dict[str, Any] = {
    "strategy": "fedavg",
    "versions": 7,
    "emulated_s": 20.5,
    "wall_s": 20.5,
    "final_accuracy": None,
    "finished": "versions",
    "warnings": [],
    "fidelity": {"verdict": "faithful", "reasons": []},
}


def written(run: Path, summary: dict[str, Any] | None, events: list[Any] = EVENTS) -> Path:
    run.mkdir(parents=True)
    (run / "events.jsonl").write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in events))
    if summary is not None:
        (run / "summary.json").write_bytes(orjson.dumps(summary))
    return run


def shown(rows: list[compare.Row]) -> str:
    console = Console(width=100, record=True, force_terminal=False)
    console.print(table(rows, 100))
    return " ".join(console.export_text().split())


@pytest.mark.parametrize("summary", [SUMMARY | {"resumed": OUTAGES}, None])
def test_outages_are_counted_and_told_below_the_table(
    tmp_path: Path, summary: dict[str, Any] | None
) -> None:
    """Of a finished run from its summary, of an unfinished one from its events."""
    rows = compare.load(written(tmp_path / "fedavg", summary))
    assert [(row.resumptions, row.outage_s) for row in rows] == [(2, 35.0625)]
    expected = "fedavg: resumed 2 times, after 35.1 s in all, which are no emulated time"
    assert expected in shown(rows)
    compare.write_csv(rows, tmp_path / "comparison.csv")
    heading, line = (tmp_path / "comparison.csv").read_text().splitlines()
    found = dict(zip(heading.split(","), line.split(",")))
    assert (found["resumptions"], found["outage_s"]) == ("2", "35.062500000")


def test_the_screen_of_a_resumed_run(tmp_path: Path) -> None:
    """It names the outage, and the time left is of the pace since then."""
    run = written(tmp_path / "fedavg", None)
    view = LiveView(run, stop=Stop(versions=17))
    assert "resumed after 5.1 s" in view.plain(100.0)
    with (run / "events.jsonl").open("ab") as file:
        row = {"t": 21.5, "event": "alarm_rang", "version": 9, "decisions": []}
        file.write(orjson.dumps(row) + b"\n")
    assert "0:00:20 left" in view.plain(105.0)  # 2 versions in 5 s, 8 to go
    assert not view.finished


def test_a_run_that_ctrl_c_ended_has_not_finished_once_it_goes_on(tmp_path: Path) -> None:
    ended = [*EVENTS[:1], {"t": 12.5, "fact": "finished", "reason": "interrupted"}]
    view = LiveView(written(tmp_path / "fedavg", None, ended))
    view.read()
    assert view.finished
    with (tmp_path / "fedavg" / "events.jsonl").open("ab") as file:
        file.write(orjson.dumps(EVENTS[1]) + b"\n")
    view.read()
    assert not view.finished
