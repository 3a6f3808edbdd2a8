"""A full disk, for files or for printed text: the run ends with one line and readable results."""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path

import orjson
import psutil
import pytest
from processes import happened, start, wait_for
from terminals import end

from edgefl.results.tail import is_torn, read_csv, read_events

pytestmark = pytest.mark.processes

LONG = ("stop.versions=1000000", "stop.emulated_s=100000")


@pytest.mark.parametrize("clock", ["wall", "virtual"])
def test_a_run_that_may_write_no_more_ends_with_a_line(
    folder: Path, started: list[subprocess.Popen[str]], clock: str
) -> None:
    """A limit of file size replaces a full disk: the system refuses to write in the same way."""
    process = start(started, "run", "small.toml", "--clock", clock, *LONG, "speed=20", "--force")
    directory = folder / "runs" / "small" / "fedasync"
    for one in [process.pid] if clock == "virtual" else [coordinator(process, directory)]:
        resource.prlimit(one, resource.RLIMIT_FSIZE, (20_000, 20_000))
    status, _, err = end(process)
    line = "events.jsonl: cannot be written (File too large): the run ends; its files hold all"
    assert status == 2 and line in err.splitlines()[-1] and "Traceback" not in err, err
    assert not (directory / "summary.json").exists()
    for name in ("events.jsonl", "links.csv", "metrics.csv"):
        assert not is_torn(directory / name)
    assert read_events(directory / "events.jsonl") and read_csv(directory / "links.csv")


def coordinator(process: subprocess.Popen[str], directory: Path) -> int:
    """The pid of the process that writes the events."""
    wait_for(lambda: happened(directory, event="update_arrived"))
    fds = {
        child.pid: [each.path for each in child.open_files()]
        for child in psutil.Process(process.pid).children()
    }
    return next(pid for pid, paths in fds.items() if str(directory / "events.jsonl") in paths)


@pytest.mark.parametrize("words", [(), ("--clock", "virtual")])
def test_an_output_that_takes_nothing_is_a_line(folder: Path, words: tuple[str, ...]) -> None:
    with open("/dev/full", "w") as full:
        found = subprocess.run(
            [sys.executable, "-m", "edgefl.cli", "run", "small.toml", "stop.versions=1", *words],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
        )
    line = "edgefl: a result, or what is printed, cannot be written (No space left on device)\n"
    assert (found.returncode, found.stderr) == (2, line)
    if words:  # only the table is missing
        directory = folder / "runs" / "small" / "fedasync"
        assert orjson.loads((directory / "summary.json").read_bytes())["versions"] == 1
