"""The same command again: while a run goes on, and after it was killed."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from processes import happened, start, wait_for
from terminals import end, family, gone

pytestmark = pytest.mark.processes

LONG = ("stop.versions=1000000", "stop.emulated_s=100000")


@pytest.mark.parametrize("clock", ["wall", "virtual"])
def test_a_killed_run_is_kept_and_a_live_one_left_alone(
    folder: Path, started: list[subprocess.Popen[str]], clock: str
) -> None:
    words = ("run", "small.toml", "--clock", clock)
    directory = folder / "runs" / "small" / "fedasync"
    first = start(started, *words, *LONG)
    wait_for(lambda: happened(directory, event="update_arrived"))
    beside = end(start(started, *words))
    expected = "edgefl: runs/small: another run writes to it; wait for its end, or choose --out DIR"
    assert beside == (2, "", f"{expected}\n")
    others = family(first)
    for process in others:  # the coordinator, too: no process ends in order
        process.kill()
    assert gone(others)
    first.communicate()
    left = (directory / "events.jsonl").read_bytes()
    again = start(started, *words, "stop.versions=1")
    status, out, err = end(again)
    moved = "runs/small held an unfinished run: moved to runs/small.1"
    line = f"{moved}; to go on with it: edgefl run --resume runs/small.1\n"
    assert status == 0 and line in out[: 200 + len(line)], (out, err)
    assert (folder / "runs" / "small.1" / "fedasync" / "events.jsonl").read_bytes() == left
    assert (directory / "summary.json").exists()
