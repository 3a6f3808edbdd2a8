"""Runs on the wall clock that are broken off, and go on: nothing is lost, nothing happens twice."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import orjson
import psutil
import pytest
from exactly_once import check_run
from processes import happened, start, wait_for
from terminals import end, family, gone

pytestmark = pytest.mark.alone

QUICK = ("speed=2", "--force", "network.realtime=off")


def coordinator(process: subprocess.Popen[str]) -> psutil.Process:
    """The process of a command that writes the events."""
    return next(
        child
        for child in psutil.Process(process.pid).children()
        if any(each.path.endswith("events.jsonl") for each in child.open_files())
    )


def broken(process: subprocess.Popen[str], how: str) -> None:
    """Break the command off, and wait until all its processes have ended."""
    processes = family(process)
    if how == "coordinator":
        coordinator(process).kill()
    else:
        process.send_signal(signal.SIGINT if how == "ctrl-c" else signal.SIGKILL)
    process.communicate(timeout=60)
    assert gone(processes)


@pytest.mark.parametrize("how", ["coordinator", "command", "ctrl-c"])
@pytest.mark.parametrize("durability", ["process", "power"])
def test_a_run_that_was_broken_off_goes_on(
    folder: Path, started: list[subprocess.Popen[str]], how: str, durability: str
) -> None:
    if (how == "ctrl-c") != (durability == "power"):
        pytest.skip("each way to break a run off is tried once; power loses no more than process")
    words = (*QUICK, f"record.durability={durability}", "stop.versions=10")
    process = start(started, "run", "small.toml", *words)
    directory = folder / "runs" / "small" / "fedasync"
    wait_for(lambda: len(happened(directory, event="update_arrived")) >= 4)
    broken(process, how)
    before = [row for row in happened(directory) if row.get("event") == "update_arrived"]
    status, out, err = end(start(started, "run", "--resume", "runs/small"))
    assert status == 0, (out, err)
    found = check_run(directory)
    assert found.faults == [] and found.version == 10
    assert happened(directory, event="update_arrived")[: len(before)] == before
    summary = orjson.loads((directory / "summary.json").read_bytes())
    (outage,) = summary["resumed"]
    assert summary["finished"] == "versions" and outage["outage_s"] > 0
    assert [row["t"] for row in happened(directory, fact="resumed")] == [outage["at_s"]]
    metrics = (directory / "metrics.csv").read_text().splitlines()
    assert [line.split(",")[0] for line in metrics[1:]] == [*map(str, range(11))]
    assert not list((directory / "journal").glob("*")), "the run has ended"
