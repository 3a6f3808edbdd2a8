"""The end of the launcher: in order on request, and with all its processes if it is killed."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import orjson
import pytest
from processes import happened, start, wait_for
from terminals import end, family, gone

pytestmark = pytest.mark.alone

LONG = ("stop.versions=1000000", "stop.emulated_s=100000")
# Its thread hangs in the third update; the coordinator then has one second to end.
HANGS = """
import time
from edgefl.clocks import processes
from edgefl.strategies.fedasync import FedAsync
class Hangs(FedAsync):
    def update_arrived(self, event, now):
        processes.ORPHAN_S = 1
        time.sleep(0.0 if self.version < 3 else 1000.0)
        return super().update_arrived(event, now)
"""


def loading(folder: Path, started: list[subprocess.Popen[str]]) -> subprocess.Popen[str]:
    """A run whose warm parent loads data for ever."""
    slow = "import time, pathlib\npathlib.Path('begun').touch()\ntime.sleep(1000)\n"
    (folder / "slow.py").write_text(slow)
    process = start(started, "run", "small.toml", "task=slow.py:build")
    wait_for((folder / "begun").exists)
    return process


def test_kill_9_ends_a_coordinator_that_hangs(
    folder: Path, started: list[subprocess.Popen[str]]
) -> None:
    (folder / "hangs.py").write_text(HANGS)
    own = ("strategies.0.strategy=hangs.py:Hangs", "strategies.0.label=hangs")
    process = start(started, "run", "small.toml", *LONG, *own)
    wait_for(lambda: happened(folder / "runs" / "small" / "hangs", event="update_arrived"))
    others = family(process)
    process.kill()
    process.wait()
    assert gone(others)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_an_end_before_the_run_begins_has_a_line(
    folder: Path, started: list[subprocess.Popen[str]], number: signal.Signals
) -> None:
    process = loading(folder, started)
    process.send_signal(number)
    assert end(process) == (130, "", "edgefl: interrupted\n")


def test_a_request_to_end_between_two_strategies(
    folder: Path, started: list[subprocess.Popen[str]]
) -> None:
    """The next coordinator is loading then. It ends without a word, and nothing of it is left."""
    one = "concurrency = 3}"
    text = (folder / "small.toml").read_text().replace(one, f'{one}, {{strategy = "fedavg"}}')
    (folder / "two.toml").write_text(text)
    # a program under nohup ignores SIGHUP, rightly
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    try:
        process = start(started, "run", "two.toml", "stop.versions=1", cold=True)
    finally:
        signal.signal(signal.SIGHUP, before)
    wait_for((folder / "runs" / "small" / "fedasync" / "summary.json").exists)
    others = family(process)
    process.send_signal(signal.SIGHUP)
    status, out, err = end(process)
    assert status in (130, -signal.SIGINT), (out, err)
    assert "Traceback" not in err and "Error" not in err, err
    assert gone(others)
    assert orjson.loads((folder / "runs/small/fedasync/summary.json").read_bytes())["versions"] == 1
