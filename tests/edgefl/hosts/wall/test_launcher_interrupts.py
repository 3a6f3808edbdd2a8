"""Ctrl-C while a strategy ends by itself: no other run follows, and its results stay complete."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
from builders import experiment

from edgefl.hosts.process_messages import RunEnded, StopRun
from edgefl.hosts.wall import run_processes
from edgefl.hosts.wall.launcher import Interrupted, LaunchOptions, WallRun
from edgefl.hosts.wall.run_processes import RunProcesses

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
        (TWO, False, 0, 2, False),
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


class Warm:
    """A warm parent that does not end before it is killed."""

    returncode: int | None = None

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            raise KeyboardInterrupt
        return self.returncode

    def kill(self) -> None:
        self.returncode = -signal.SIGKILL


def test_a_press_while_the_warm_parent_ends_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, started = wall_run(tmp_path, TWO), []

    def spawn(*_: Any, **__: Any) -> Warm:
        started.append(Warm())
        return started[-1]

    monkeypatch.setattr(run_processes, "spawn", spawn)
    run.processes = RunProcesses()
    run.processes.warmed_up = True
    with pytest.raises(KeyboardInterrupt):
        run._end()
    assert [each.returncode for each in started] == [-signal.SIGKILL] * 2
    assert not Path(run.scratch.name).exists()


def test_a_press_while_files_are_deleted_waits_until_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, steps = wall_run(tmp_path, TWO), []
    delete = run.scratch.cleanup

    def pressed() -> None:
        signal.raise_signal(signal.SIGINT)
        delete()
        steps.append("deleted")

    monkeypatch.setattr(run.scratch, "cleanup", pressed)
    monkeypatch.setattr(run.folder, "undo", lambda: steps.append("undone"))
    with pytest.raises(KeyboardInterrupt):
        run._end()
    assert steps == ["deleted", "undone"]
    assert not Path(run.scratch.name).exists()


class Coordinator:
    """A process that needs the scratch folder until it is killed."""

    def __init__(self, scratch: Path) -> None:
        self.scratch, self.returncode = scratch, None
        self.killed_in_time = False

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            raise subprocess.TimeoutExpired("coordinator", timeout or 0.0)
        return self.returncode

    def kill(self) -> None:
        self.killed_in_time = self.scratch.exists()
        self.returncode = -signal.SIGKILL


class Loading:
    """A channel to a coordinator that is still loading when Ctrl-C is pressed."""

    closed = False

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def receive(self, timeout_s: float | None = None) -> Any:
        self.directory.mkdir(parents=True)
        (self.directory / "events.jsonl").touch()
        raise KeyboardInterrupt

    def send(self, message: Any, fd: int | None = None) -> None: ...

    def close(self) -> None:
        self.closed = True


@pytest.mark.parametrize("index", [0, 1], ids=["before the first", "between two"])
def test_a_press_while_a_coordinator_starts_ends_it_before_its_files_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, index: int
) -> None:
    """Before the first run, all is as it was; between two, the runs so far stay."""
    folder = tmp_path / "out"
    (folder / "earlier").mkdir(parents=True)
    (folder / "earlier" / "summary.json").write_text("{}")
    run = wall_run(folder, TWO)
    run.worked = index > 0
    process, control = Coordinator(Path(run.scratch.name)), Loading(run.directory(index))
    ended: list[str] = []
    processes = {"coordinator": lambda *_: (control, process), "end": lambda *_: ended.append("")}
    run.processes = type("Processes", (), processes)()
    with pytest.raises(KeyboardInterrupt):
        run._run_strategy(index, "", lambda *_: None)
    assert control.closed and process.killed_in_time and not run.directory(index).exists()
    run._end()
    assert not Path(run.scratch.name).exists() and ended
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    assert (folder / "earlier" / "summary.json").exists()
