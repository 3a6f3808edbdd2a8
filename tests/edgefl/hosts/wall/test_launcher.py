"""The launcher without processes: what it does when its output cannot be written."""

from __future__ import annotations

import errno
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from builders import experiment

from edgefl.hosts.ipc import Channel
from edgefl.hosts.process_messages import InjectFault, RunEnded, StopRun
from edgefl.hosts.wall.answers import ProcessDied
from edgefl.hosts.wall.launcher import LaunchOptions, WallRun


def test_a_run_ends_in_order_when_its_display_cannot_be_written(tmp_path: Path) -> None:
    ours, theirs = Channel.pair()
    launcher = WallRun(experiment(), LaunchOptions(tmp_path / "out", None), print)
    launcher._report_exits = lambda: None
    shown = []

    def watch() -> None:
        shown.append(1)
        if len(shown) == 2:
            raise OSError(errno.ENOSPC, "No space left on device")
        if len(shown) > 2:
            raise AssertionError("asked again")

    asked: list[Any] = []

    def receive(timeout_s: float) -> Any:
        order = theirs.receive(timeout_s=0)
        asked.append(order)
        return RunEnded({"versions": 3}) if isinstance(order, StopRun) else None

    ours.receive = receive
    with pytest.raises(OSError, match="No space left"):
        launcher._watch(ours, None, 0, watch)
    assert asked == [None, None, StopRun("interrupted")] and len(shown) == 2


def test_a_warm_parent_that_died_is_a_line(tmp_path: Path) -> None:
    launcher = WallRun(experiment(), LaunchOptions(tmp_path / "out", None), print)
    control, theirs = Channel.pair()
    launcher.processes = SimpleNamespace(control=control)
    theirs.close()
    with pytest.raises(ProcessDied, match=r"^the warm parent died \(see .*edges.log\)$"):
        launcher._inject(InjectFault("kill", "a"), 0)


@pytest.mark.parametrize(
    ("host", "keys", "fleet", "command"),
    [
        ("127.0.0.1", None, False, "edgefl edge --connect tcp://127.0.0.1:7700"),
        ("0.0.0.0", "keys", False, "edgefl edge --connect tcp://HOST:7700 --keys DIR"),
        ("[::]", None, False, "edgefl edge --connect tcp://HOST:7700 --insecure"),
        ("127.0.0.1", None, True, ""),
    ],
)
def test_the_command_that_starts_an_edge(
    host: str, keys: str | None, fleet: bool, command: str, tmp_path: Path
) -> None:
    given = experiment(network={"host": host, "port": 7700})
    folder = None if keys is None else tmp_path / keys
    options = LaunchOptions(tmp_path / "out", None, keys=folder, fleet=fleet)
    assert WallRun(given, options, print).join == command
