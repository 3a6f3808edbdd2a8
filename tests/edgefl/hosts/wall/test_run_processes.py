"""The processes of a run begin to load before the experiment is read, and none stays."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from edgefl.hosts.ipc import Channel
from edgefl.hosts.process_messages import Listening, StopRun
from edgefl.hosts.wall import run_processes
from edgefl.hosts.wall.run_processes import COORDINATOR, WARM, RunProcesses


class Started:
    """A process that runs until it is killed."""

    def __init__(self, module: str, channels: list[Channel], keep: list[Channel] | None = None):
        self.module, self.channels, self.keep = module, channels, keep or []
        self.returncode: int | None = None

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            raise subprocess.TimeoutExpired(self.module, timeout or 0.0)
        return self.returncode

    def kill(self) -> None:
        self.returncode = -signal.SIGKILL


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[Started]:
    made: list[Started] = []

    def spawn(*given: Any, **more: Any) -> Started:
        made.append(Started(*given, **more))
        return made[-1]

    monkeypatch.setattr(run_processes, "spawn", spawn)
    monkeypatch.setattr(Started, "wait", lambda self, timeout=None: self.kill() or 0)
    return made


def test_the_first_coordinator_loads_beside_the_warm_parent(started: list[Started]) -> None:
    processes = RunProcesses()
    assert [each.module for each in started] == [WARM, COORDINATOR]
    assert processes.coordinator()[1] is started[1] and len(started) == 2
    assert processes.coordinator()[1] is started[2] and len(started) == 3
    assert all(each.keep == each.channels[1:] and len(each.keep) == 2 for each in started[1:])
    processes.end()
    assert [each.returncode is None for each in started] == [False, True, True]


def test_what_is_not_used_ends_with_the_block(started: list[Started]) -> None:
    with pytest.raises(RuntimeError), RunProcesses() as processes:
        raise RuntimeError
    assert [each.returncode is None for each in started] == [False, False]
    processes.end()  # a second end does nothing


def test_a_descriptor_comes_with_a_message_and_stays_open(tmp_path: Path) -> None:
    ours, theirs = Channel.pair()
    fd = os.open(tmp_path, os.O_RDONLY)
    ours.send(Listening(1), fd=fd)
    ours.send(StopRun("over"))
    assert theirs.receive() == Listening(1) and theirs.receive() == StopRun("over")
    (kept,) = theirs.kept
    assert kept != fd and os.path.samestat(os.fstat(kept), os.fstat(fd))
    os.close(fd), os.close(kept)


@pytest.mark.processes
def test_a_config_that_is_refused_leaves_no_process(tmp_path: Path) -> None:
    (tmp_path / "bad.toml").write_text('name = "bad"\n[edges]\ncuont = 3\n')
    done = subprocess.run(
        [sys.executable, "-m", "edgefl.cli", "run", "bad.toml"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env=os.environ | {"EDGEFL_TEST_MARK": str(tmp_path)},
    )
    assert done.returncode == 2 and done.stderr.count("\n") == 1 and "cuont" in done.stderr
    assert not [each for each in psutil.process_iter() if _has(each, str(tmp_path))]


def _has(process: psutil.Process, mark: str) -> bool:
    try:
        return process.environ().get("EDGEFL_TEST_MARK") == mark
    except psutil.Error:
        return False
