"""The launcher and its processes: they start early, end in any case, and Ctrl-C leaves
complete results.
"""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from builders import experiment

from edgefl.clocks import processes
from edgefl.clocks.ipc import Channel
from edgefl.clocks.process_messages import InjectFault, ProcessExited, RunEnded, StopRun
from edgefl.clocks.processes import COORDINATOR, WARM, RunProcesses
from edgefl.clocks.wall.launcher import Interrupted, LaunchOptions, ProcessDied, WallRun


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


def test_an_edge_that_had_died_and_is_started_again_is_left(tmp_path: Path) -> None:
    launcher = WallRun(experiment(), LaunchOptions(tmp_path / "out", None, fleet=True), print)
    control, theirs = Channel.pair()
    launcher.processes = SimpleNamespace(control=control)
    edges = tuple(launcher.experiment.edges.ids())
    theirs.send(ProcessExited("edges", 1, edges))
    launcher._report_exits()
    assert launcher._all_edges_died
    launcher._inject(InjectFault("restart", edges[0]), 0)
    assert not launcher._all_edges_died


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


# ------------------------------------------------------------------ launcher interrupts
SUMMARY = {
    "finished": "versions",
    "versions": 3,
    "emulated_s": 1.0,
    "wall_s": 1.0,
    "final_accuracy": None,
    "warnings": [],
    "fidelity": {"verdict": "faithful"},
}
TWO = [{"strategy": "fedavg"}, {"strategy": "fedasync"}]


class Control:
    """A channel to a coordinator that ends by itself just as Ctrl-C is pressed."""

    def __init__(self, presses: int) -> None:
        self.presses = presses
        self.sent: list[Any] = []

    def receive(self, timeout_s: float) -> Any:
        if self.presses:
            self.presses -= 1
            raise KeyboardInterrupt
        return RunEnded(SUMMARY)

    def send(self, message: Any) -> None:
        self.sent.append(message)


def wall_run(folder: Path, strategies: list[dict[str, Any]], more: bool = False) -> WallRun:
    given = experiment(strategies=strategies)
    return WallRun(given, LaunchOptions(folder, None, more=more), lambda line: None)


@pytest.mark.parametrize(
    ("strategies", "more", "presses", "begun", "interrupted"),
    [
        (TWO, False, 1, 1, True),
        (TWO[:1], True, 1, 1, True),  # another seed would follow
        (TWO[:1], False, 1, 1, False),  # the last one: nothing is missing
    ],
)
def test_nothing_follows(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    strategies: list[dict[str, Any]],
    more: bool,
    presses: int,
    begun: int,
    interrupted: bool,
) -> None:
    made, run = [], wall_run(tmp_path, strategies, more)

    def run_strategy(index: int, *_: Any) -> dict[str, Any]:
        made.append(index)
        found: dict[str, Any] = run._watch(Control(presses), None, index, lambda: None)
        return found

    monkeypatch.setattr(run, "_warm_up", lambda *_: type("Ready", (), {"data_digest": ""}))
    monkeypatch.setattr(run, "_choose_speed", lambda *_: None)
    monkeypatch.setattr(run, "_run_strategy", run_strategy)
    if interrupted:
        with pytest.raises(Interrupted) as caught:
            run.run(lambda *_: None)
        assert caught.value.summaries == [SUMMARY]
    else:
        assert run.run(lambda *_: None) == [SUMMARY] * begun
    assert len(made) == begun


def test_a_second_press_does_not_wait(tmp_path: Path) -> None:
    control = Control(presses=2)
    with pytest.raises(KeyboardInterrupt):
        wall_run(tmp_path, TWO)._watch(control, None, 0, lambda: None)
    assert control.sent == [StopRun("interrupted")]


# ------------------------------------------------------------------ run processes
class Started:
    """A process that runs until it is killed."""

    def __init__(
        self,
        module: str,
        channels: list[Channel],
        keep: list[Channel] | None = None,
        paths: Sequence[str] = (),
    ):
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

    monkeypatch.setattr(processes, "spawn", spawn)
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


# ------------------------------------------------------------------ open files
CONFIG = """
name = "many"
model = {name = "mlp", hidden = [4]}
training = {trainer = "none"}
edges = {count = 20}
stop = {versions = 1}
strategies = [{strategy = "fedavg"}]
"""
LIMITED = """
import resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (%d, %d))
%s
"""
ROOM = "from edgefl.clocks.processes import room_for_edges\n"
LEFT = ROOM + "print(room_for_edges(20), resource.getrlimit(resource.RLIMIT_NOFILE)[0])"
RUN = "from edgefl.cli import main; sys.argv[1:] = ['run', 'many.toml']; main()"


def limited(soft: int, hard: int, code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", LIMITED % (soft, hard, code)],
        cwd=folder,
        capture_output=True,
        text=True,
    )


@pytest.mark.processes
def test_the_limit_is_raised_and_what_is_left_is_told(tmp_path: Path) -> None:
    done = limited(70, 100, LEFT, tmp_path)
    assert done.stdout.split() == ["16", "100"], done.stderr


@pytest.mark.processes
def test_too_many_edges_for_the_limit_are_one_line(tmp_path: Path) -> None:
    (tmp_path / "many.toml").write_text(CONFIG)
    done = limited(70, 80, RUN, tmp_path)
    assert done.returncode == 2 and done.stderr.splitlines() == [
        "edgefl: 20 edges need 84 open files, this system allows 80 (ulimit -n)"
    ]
    assert not (tmp_path / "runs").exists()
