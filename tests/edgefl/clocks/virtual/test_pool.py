"""Engines of the virtual clock: the same bytes with any worker, also after deaths, and nothing left
behind.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
from paths import ROOT, SUPPORT
from pools import RUNS, SPREAD, bytes_with, learned_of

from edgefl.clocks.setup.learning import Learning
from edgefl.clocks.virtual.pool.engine import InProcessEngine, open_pool
from edgefl.clocks.virtual.pool.forked import ForkedBackend, MessageStream
from edgefl.clocks.virtual.pool.scheduler import WorkerPool
from edgefl.clocks.virtual.run import run_virtual
from edgefl.clocks.virtual.run_batch import ParallelRuns
from edgefl.errors import UserError
from edgefl.results.read import read_csv
from edgefl.strategies.base.catalog import load, strategy_names


def pool_of(learned: Learning, workers: int) -> WorkerPool:
    return WorkerPool(ForkedBackend(learned, workers), workers)


def pids(pool: Any) -> list[int]:
    return sorted(process.pid for process in pool._backend._processes)


def left(pids_before: list[int]) -> list[int]:
    """Former workers that still exist, also as zombies."""
    return [child.pid for child in psutil.Process().children() if child.pid in pids_before]


# ------------------------------------------------------------------ the same bytes
@pytest.mark.processes
@pytest.mark.parametrize("name", RUNS)
def test_every_number_of_workers_leaves_the_same_bytes(tmp_path: Path, name: str) -> None:
    learned = learned_of(**RUNS[name])
    here = bytes_with(tmp_path / "here", learned, None)
    for workers in (1, 2, 3):
        pool = pool_of(learned, workers)
        try:
            there = pids(pool)
            assert (
                bytes_with(tmp_path / str(workers), learned, pool) == here and len(there) == workers
            )
            assert not pool._items and not pool._needed and not pool._backend._inputs, (
                "nothing is held for tasks that are over"
            )
        finally:
            pool.close()
        assert left(there) == []


@pytest.mark.processes
@pytest.mark.parametrize("name", ["plain", "rich"])
def test_workers_may_be_killed_at_any_time(tmp_path: Path, name: str) -> None:
    learned, steps, killed = learned_of(**RUNS[name]), [0], set()
    pool = pool_of(learned, 2)

    def strike(now: int, run: Any) -> None:
        steps[0] += 1
        if steps[0] in (20, 45):
            for pid in pids(pool):
                os.kill(pid, signal.SIGKILL)
                killed.add(pid)

    try:
        assert bytes_with(tmp_path / "killed", learned, pool, strike) == bytes_with(
            tmp_path / "here", learned, None
        )
        assert len(killed) >= 3 and len(pids(pool)) == 2, "others took their places"
    finally:
        pool.close()


@pytest.mark.processes
def test_without_room_for_vectors_they_travel_in_messages(tmp_path: Path) -> None:
    learned = learned_of(**RUNS["rich"])
    pool = pool_of(learned, 2)
    pool._backend._arena._free.clear()
    try:
        assert bytes_with(tmp_path / "messages", learned, pool) == bytes_with(
            tmp_path / "here", learned, None
        )
    finally:
        pool.close()


# ------------------------------------------------------------------ what is not done


# ------------------------------------------------------------------ other jobs


# ------------------------------------------------------------------ what goes wrong
def one_strategy(name: str) -> dict[str, Any]:
    return SPREAD | {"strategies": [{"strategy": f"../support/pool_strategies.py:{name}"}]}


@pytest.mark.processes
def test_a_task_that_kills_its_workers_ends_the_run(tmp_path: Path) -> None:
    learned = learned_of(**one_strategy("Killing"))
    with (
        open_pool(learned, 2) as pool,
        pytest.raises(UserError, match="workers were lost at task 3"),
    ):
        run_virtual(learned, 0, tmp_path, None, pool)


@pytest.mark.processes
@pytest.mark.parametrize(
    ("strategy", "end"),
    [
        ("Failing", "versions"),
        (
            "Refusing",
            "training fails on most edges: edge {}, before its first step: this model has no layers"
            " to speak of (pool_strategies.py, line {})",
        ),
    ],
)
def test_training_that_raises_in_a_worker_is_a_failed_task(
    tmp_path: Path, strategy: str, end: str
) -> None:
    """With the same bytes as in this process."""
    learned = learned_of(**one_strategy(strategy))
    with open_pool(learned, 2) as pool:
        summary = run_virtual(learned, 0, tmp_path / "there", None, pool)
    told = re.escape(end).replace(r"\{\}", r"\w+")
    assert re.fullmatch(told, summary["finished"]), summary["finished"]
    run_virtual(learned, 0, tmp_path / "here")
    here, there = ((tmp_path / name / "events.jsonl").read_text() for name in ("here", "there"))
    closed = [row for row in here.splitlines() if '"task_closed"' in row]
    assert closed == [row for row in there.splitlines() if '"task_closed"' in row] != []


@pytest.mark.processes
def test_ctrl_c_keeps_the_results_and_leaves_no_process(tmp_path: Path) -> None:
    def interrupt(now: int, run: Any) -> None:
        if run.coordinator.version == 5:
            os.kill(os.getpid(), signal.SIGINT)

    learned = learned_of(**RUNS["rich"])
    with open_pool(learned, 2) as pool:
        summary = run_virtual(learned, 0, tmp_path, interrupt, pool)
        there = pids(pool)
    assert (summary["finished"], summary["versions"]) == ("interrupted", 5) and summary[
        "final_accuracy"
    ] is not None
    assert (
        [row["version"] for row in read_csv(tmp_path / "metrics.csv")]
        == [str(version) for version in range(6)]
        and len(there) == 2
        and left(there) == []
    )


@pytest.mark.processes
def test_workers_end_with_a_parent_that_is_killed() -> None:
    code = (
        "import time, test_pool\nwith test_pool.open_pool(test_pool.learned_of(), 2) as pool:\n   "
        " print(*test_pool.pids(pool), flush=True)\n    time.sleep(60)\n"
    )
    path = os.pathsep.join([str(Path(__file__).parent), str(SUPPORT), str(ROOT)])
    parent = subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": path},
    )
    assert parent.stdout is not None
    workers = [psutil.Process(int(pid)) for pid in parent.stdout.readline().split()]
    parent.kill()
    parent.wait()
    _, alive = psutil.wait_procs(workers, timeout=10)
    assert len(workers) == 2 and not [
        worker for worker in alive if worker.status() != psutil.STATUS_ZOMBIE
    ]


# ------------------------------------------------------------------ what is asked for


@pytest.mark.parametrize("what", ["mapping", "memory"])
def test_too_little_shared_memory_falls_back_and_says_so(
    monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    def refuse(*given: Any) -> None:
        raise OSError("Cannot allocate memory")

    if what == "mapping":
        monkeypatch.setattr("edgefl.clocks.virtual.pool.forked.mmap.mmap", refuse)
    else:
        memory = psutil.virtual_memory()
        monkeypatch.setattr("psutil.virtual_memory", lambda: memory._replace(available=1000))
    with open_pool(learned_of(), 2) as pool:
        assert (
            isinstance(pool, InProcessEngine)
            and pool.note is not None
            and pool.note.endswith("training in this process")
            and "shared memory" in pool.note
        )


def test_without_ray_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with (
        pytest.raises(UserError, match=r"pip install 'edgefl\[ray\]'"),
        open_pool(learned_of(), 2, "ray"),
    ):
        pass


@pytest.mark.processes
@pytest.mark.parametrize("name", strategy_names())
def test_every_strategy_of_the_catalog_may_be_trained_elsewhere(tmp_path: Path, name: str) -> None:
    """Its local rule keeps its state in the run and in the edge's memory, not in itself."""
    sections = SPREAD | {
        "task": None,
        "data": {"name": "digits"},
        "model": {"name": "mlp"},
        "edges": {"count": 6},
        "stop": {"versions": 5},
    }
    sections |= {"unlabelled": {"size": 50}}
    if load(name).schedules_slots:
        sections |= {
            "medium": {"kind": "tdma", "slot_ms": 100.0, "guard_ms": 10.0, "rate_mbit_s": 1.0}
        }
    learned = learned_of(**sections, strategies=[{"strategy": name}])
    with open_pool(learned, 2) as pool:
        assert bytes_with(tmp_path / "pool", learned, pool) == bytes_with(
            tmp_path / "here", learned, None
        )


# ------------------------------------------------------------------ messages between a process and
def test_messages_come_whole_however_large_and_sending_never_waits() -> None:
    one, other = (MessageStream(end) for end in socket.socketpair())
    large = bytes(range(256)) * 20_000
    for data in (b"a", large, b"", b"z"):
        one.send(data)
    assert one.pending
    came: list[bytes] = []
    while one.pending or len(came) < 4:
        came += other.receive()
        one.push()
    assert came == [b"a", large, b"", b"z"] and other.receive() == []


def test_the_end_is_heard_after_the_last_message() -> None:
    one, other = (MessageStream(end) for end in socket.socketpair())
    one.send(b"last")
    one.close()
    assert other.receive() == [b"last"]
    with pytest.raises(EOFError):
        other.receive()
    other.send(b"into the void")
    assert not other.pending


# ------------------------------------------------------------------ whole runs in forked processes
LATE_S = 0.2


def runs(work: Any) -> ParallelRuns:
    return ParallelRuns(2, work, lambda job, line, lasting: None, lambda job, summary: None)


@pytest.mark.processes
def test_of_several_refusals_the_first_in_the_list_is_told() -> None:
    def work(job: int, report: Any, begun: Any) -> dict[str, Any]:
        time.sleep(LATE_S * (job == 0))
        raise UserError(f"job {job} is wrong")

    for _ in range(3):
        with pytest.raises(UserError, match="job 0 is wrong"):
            runs(work).run(4)


@pytest.mark.processes
def test_a_refusal_ends_what_has_begun() -> None:
    read, write = os.pipe()

    def work(job: int, report: Any, begun: Any) -> dict[str, Any]:
        if job == 1:
            os.read(read, 1)  # not before the other has begun
            raise UserError("job 1 is wrong")
        try:
            begun()
            os.write(write, b"x")
            time.sleep(1000)
        except KeyboardInterrupt:
            os.write(write, b"ended in order")
        return {}

    try:
        with pytest.raises(UserError, match="job 1 is wrong"):
            runs(work).run(3)
        assert os.read(read, 100) == b"ended in order"
    finally:
        os.close(read), os.close(write)
