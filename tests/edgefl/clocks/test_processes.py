"""Forked and spawned processes: how they exit, what they inherit, when they die."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from threading import Thread

import psutil
import pytest
from processes import PATIENCE_S, wait_for

from edgefl.clocks import processes
from edgefl.clocks.ctrl_c import ended_like_ctrl_c
from edgefl.clocks.ipc import Channel
from edgefl.clocks.process_messages import Listening, StopRun
from edgefl.clocks.processes import (
    ONE_THREAD,
    close_all_but,
    edge_groups,
    end_soon,
    fork,
    group_name,
    spawn,
)
from edgefl.errors import UserError
from emulator.host import REAL_TIME, real_time_priority

pytestmark = pytest.mark.processes

linux = pytest.mark.skipif(sys.platform != "linux", reason="prctl is Linux's")
ECHO = """
import os, sys
from edgefl.clocks.ipc import Channel
from edgefl.clocks.process_messages import Listening, StopRun
channel = Channel.inherited(int(sys.argv[1]))
channel.serve(lambda order: StopRun(f"{order.port} {os.environ['OMP_NUM_THREADS']}"))
"""
PARENT = """
import time
from edgefl.clocks.processes import fork
print(fork("sleeper", lambda: time.sleep(1000)), flush=True)
time.sleep(1000)
"""


def status(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def fail() -> None:
    raise ArithmeticError("no half")


@pytest.mark.parametrize(("work", "expected"), [(lambda: None, 0), (lambda: 7, 7), (fail, 1)])
def test_a_fork_exits_with_what_its_work_returns(
    work: Callable[[], int | None], expected: int, capfd: pytest.CaptureFixture[str]
) -> None:
    assert status(fork("edge e000", work)) == expected
    err = capfd.readouterr().err
    assert ("edge e000: ArithmeticError: no half\nTraceback" in err) == (expected == 1)


@linux
def test_a_fork_has_a_name_and_ignores_ctrl_c() -> None:
    pid = fork("edge with-a-long-name", lambda: time.sleep(1000))
    wait_for(lambda: psutil.Process(pid).name() == "edge with-a-lon")
    os.kill(pid, signal.SIGINT)
    assert os.waitpid(pid, os.WNOHANG) == (0, 0)
    os.kill(pid, signal.SIGKILL)
    assert status(pid) == -signal.SIGKILL


@linux
def test_a_fork_dies_with_its_parent() -> None:
    parent = subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    child = psutil.Process(int(parent.stdout.readline()))
    wait_for(lambda: child.name() == "sleeper")
    parent.kill()
    parent.wait()
    psutil.wait_procs([child], timeout=PATIENCE_S)
    assert not child.is_running() or child.status() == psutil.STATUS_ZOMBIE


def test_only_the_descriptors_that_are_kept_stay_open() -> None:
    pipes = [fd for _ in range(3) for fd in os.pipe()]

    def is_open(fd: int) -> bool:
        try:
            os.fstat(fd)
        except OSError:
            return False
        return True

    def work() -> int:
        close_all_but(pipes[4], pipes[1])
        return sum(is_open(fd) << place for place, fd in enumerate(pipes))

    assert status(fork("closer", work)) == 0b010010
    assert all(is_open(fd) for fd in pipes), "only the child's"
    for fd in pipes:
        os.close(fd)


def test_a_spawned_module_has_the_channels_and_one_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "echo_server.py").write_text(ECHO)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), *sys.path]))
    ours, theirs = Channel.pair()
    kept = Channel.pair()[0]
    process = spawn("echo_server", [theirs, kept], keep=[kept])
    assert theirs.fileno() == -1 and kept.fileno() >= 0
    ours.send(Listening(3))
    assert ours.receive(PATIENCE_S) == StopRun(f"3 {ONE_THREAD['OMP_NUM_THREADS']}")
    assert os.getpgid(process.pid) == process.pid != os.getpgid(0)
    ours.close()
    assert process.wait(PATIENCE_S) == 0


def test_no_thread_or_process_inherits_the_priority(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    monkeypatch.setattr(os, "sched_setscheduler", lambda pid, policy, param: asked.append(policy))
    assert real_time_priority() == REAL_TIME
    assert asked == [os.SCHED_FIFO | os.SCHED_RESET_ON_FORK]
    monkeypatch.undo()

    def work() -> int:
        real_time_priority()
        found: list[int] = []
        thread = Thread(target=lambda: found.append(os.sched_getscheduler(0)))
        thread.start(), thread.join()
        asked = "import os; raise SystemExit(os.sched_getscheduler(0))"
        found.append(subprocess.run([sys.executable, "-c", asked]).returncode)
        return int(found != [os.SCHED_OTHER, os.SCHED_OTHER])

    assert status(fork("worker", work)) == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_request_to_end_does_what_ctrl_c_does(number: signal.Signals) -> None:
    """The handler is Python's default here; a run sets its own."""
    former = signal.signal(number, signal.SIG_DFL)  # under nohup it is ignored
    try:
        with ended_like_ctrl_c():
            with pytest.raises(KeyboardInterrupt):
                signal.raise_signal(number)
            assert status(fork("sleeper", lambda: signal.raise_signal(number))) == -number
        assert signal.getsignal(number) is signal.SIG_DFL
    finally:
        signal.signal(number, former)


def test_the_system_ends_what_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "ORPHAN_S", 1)

    def work() -> None:
        end_soon()
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
        Thread(target=time.sleep, args=(1000,)).start()
        time.sleep(1000)

    assert status(fork("hangs", work)) == -signal.SIGALRM


def test_a_child_never_returns_to_the_code_of_its_parent(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(sys.stdout, "flush", lambda: None)
    pid = fork("worker", lambda: monkeypatch.setattr(sys.stdout, "flush", interrupted))
    assert status(pid) == 1


# ------------------------------------------------------------------ edges of one process
GB = 1 << 30


def sizes(
    count: int, wanted: int | str, *alone: str, cores: int = 2, free: int = 16 * GB
) -> list[int]:
    edges = [f"e{number}" for number in range(count)]
    groups = edge_groups(edges, wanted, alone, cores, free)
    assert sorted(edge for group in groups for edge in group) == sorted(edges)
    return [len(group) for group in groups]


def test_edges_share_processes_from_101_on_and_never_native_ones() -> None:
    assert sizes(100, "auto") == [1] * 100
    assert sizes(1000, "auto") == [125] * 8, "four processes for each core"
    assert sizes(1000, "auto", cores=64) == [4] * 250
    assert sizes(1000, "auto", free=48 << 20) == [500, 500], "half of the memory is for the edges"
    assert sizes(5, 2) == [2, 2, 1]
    assert sizes(6, 3, "e1", "e4") == [3, 1, 1, 1]
    assert sizes(3, "auto", "e0", "e1", "e2") == [1, 1, 1]


def test_too_many_edges_for_the_open_files_of_a_process_are_one_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(processes, "most_files", lambda: 4096)
    assert max(sizes(10_000, "auto")) <= (4096 - 264) // 2
    with pytest.raises(
        UserError,
        match=r"^edges.per_process: 5000 edges in a process need 10264 open files, this system"
        r" allows 4096 \(ulimit -n\): expected 1916 or fewer$",
    ):
        sizes(10_000, 5000)
    with pytest.raises(UserError, match=r"per_process: 3000 edges in a process need 6264 open"):
        sizes(3_000, 100_000)
    assert sizes(20, 5000) == [20]


def test_a_process_has_the_name_of_its_edge_or_of_its_first_and_last() -> None:
    assert group_name(["e0"]) == "edge e0"
    assert group_name(["e0", "e1", "e2"]) == "the process of 3 edges (e0 to e2)"
