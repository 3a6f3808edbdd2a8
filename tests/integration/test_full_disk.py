"""A full disk, for files or for printed text: the run ends with one line and readable results."""

from __future__ import annotations

import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import orjson
import psutil
import pytest
import small_disk as disks
from processes import PATIENCE_S, happened, start, wait_for
from terminals import end

from edgefl.clocks.setup.rundir import replay_run
from edgefl.results.read import is_torn, read_csv, read_events

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
    first = "events.jsonl" if clock == "virtual" else "journal/journal-000000."
    said = err.splitlines()[-1]
    assert status == 2 and first in said and "Traceback" not in err, err
    assert "cannot be written (File too large): the run ends; its files hold all" in said
    assert not (directory / "summary.json").exists()
    for name in ("events.jsonl", "links.csv", "metrics.csv"):
        assert not is_torn(directory / name)
    assert read_events(directory / "events.jsonl") and read_csv(directory / "links.csv")


@pytest.fixture
def small_disk(folder: Path) -> Iterator[Path]:
    """``runs`` on a file system of 4 MiB."""
    if disks.refusal():
        pytest.skip(disks.refusal())
    with disks.small_disk(folder / "runs", 4 << 20) as runs:
        yield runs


def lines_of(process: subprocess.Popen[str]) -> list[str]:
    """The lines that the process prints, which come one after another."""
    lines: list[str] = []
    assert process.stdout is not None
    Thread(target=lambda out: lines.extend(out), args=(process.stdout,), daemon=True).start()
    return lines


def test_a_run_waits_until_there_is_room_and_says_so(
    folder: Path, started: list[subprocess.Popen[str]], small_disk: Path
) -> None:
    words = ("stop.versions=60", "speed=5", "--force", "record.payloads=true")
    process = start(started, "run", "small.toml", *words)
    lines, directory = lines_of(process), small_disk / "small" / "fedasync"
    wait_for(lambda: happened(directory, event="update_arrived"))
    filler = disks.fill(small_disk)
    wait_for(lambda: any("the run waits until there is room" in line for line in lines))
    time.sleep(1)
    assert process.poll() is None and not (directory / "summary.json").exists()
    filler.unlink()
    assert process.wait(PATIENCE_S) == 0
    assert any(": there is room again after " in line for line in lines)
    found = orjson.loads((directory / "summary.json").read_bytes())
    assert (found["versions"], found["fidelity"]["verdict"]) == (60, "strained")
    assert any("s for room on its disk" in reason for reason in found["fidelity"]["reasons"])
    assert happened(directory, fact="disk_full")[0]["waited_s"] >= 1
    assert replay_run(directory).version == 60, "nothing is missing or twice"


def test_a_run_under_the_virtual_clock_waits_too_and_writes_the_same_bytes(
    folder: Path, started: list[subprocess.Popen[str]], small_disk: Path
) -> None:
    words = ("small.toml", "--clock", "virtual", "stop.versions=1000")
    process = start(started, "run", *words)
    lines, directory = lines_of(process), small_disk / "small" / "fedasync"
    wait_for(lambda: happened(directory, event="update_arrived"))
    filler = disks.fill(small_disk)
    wait_for(lambda: any("the run waits until there is room" in line for line in lines))
    filler.unlink()
    assert process.wait(PATIENCE_S) == 0
    assert any(": there is room again after " in line for line in lines)
    assert end(start(started, "run", *words, "--out", "unbroken"))[0] == 0
    for name in ("events.jsonl", "links.csv", "model.safetensors"):
        whole = folder / "unbroken" / "small" / "fedasync" / name
        assert (directory / name).read_bytes() == whole.read_bytes()


def test_ctrl_c_ends_a_run_that_waits_for_room(
    folder: Path, started: list[subprocess.Popen[str]], small_disk: Path
) -> None:
    process = start(started, "run", "small.toml", *LONG, "speed=5", "--force")
    lines, directory = lines_of(process), small_disk / "small" / "fedasync"
    wait_for(lambda: happened(directory, event="update_arrived"))
    disks.fill(small_disk)
    wait_for(lambda: any("the run waits until there is room" in line for line in lines))
    process.send_signal(signal.SIGINT)
    assert process.wait(PATIENCE_S) == 2
    assert process.stderr is not None
    assert "(No space left on device): the run ends" in process.stderr.read().splitlines()[-1]
    for name in ("events.jsonl", "links.csv", "metrics.csv"):
        assert not is_torn(directory / name)


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
