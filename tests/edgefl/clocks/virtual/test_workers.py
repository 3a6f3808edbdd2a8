"""Workers: which one does what, over a backend that only records its calls; and forked ones, which
leave the same bytes also after deaths, and nothing behind.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
import psutil
import pytest
from builders import vector
from paths import ROOT, SUPPORT
from pools import RUNS, SPREAD, bytes_with, learned_of

from edgefl.clocks.virtual.pool.engine import DeferredRun, Merge
from edgefl.clocks.virtual.pool.workers import (
    ARRAY,
    DEPTH,
    LENGTH,
    LOOK_AHEAD,
    MOST_DEATHS,
    ForkedBackend,
    WorkerPool,
    WorkerReport,
    receive,
    send,
)
from edgefl.clocks.virtual.run import run_virtual
from edgefl.clocks.virtual.run_batch import ParallelRuns, open_pool
from edgefl.edges.training import TrainingPlan
from edgefl.errors import UserError
from edgefl.jobs import Train
from edgefl.protocol.messages import Assignment, Fresh
from edgefl.results.read import read_csv
from edgefl.strategies.base.catalog import load, strategy_names

STEPS = 4
RESULT = [{"weights": vector(1, 2, 3)}, {"samples": 1.0}, {}, None]


class Noted:
    """``orders``: unfinished orders by worker ("A", "B", ...). ``told``: all calls."""

    def __init__(self) -> None:
        self.orders: dict[str, list[list[Any]]] = {}
        self.told: list[str] = []
        self.reports: list[WorkerReport] = []
        self.by_hand = True  # otherwise ``wait`` ends each worker's first order

    def add_worker(self) -> None:
        name = "ABCDEF"[len(self.orders)]
        self.orders[name] = []
        self.reports.append(WorkerReport(name, ready=True))

    def send(self, worker: str, order: list[Any]) -> None:
        self.orders[worker].append(order)
        _, _, _, edge, task, _, _, until = order
        self.told.append(f"{worker} {edge} to {until}{' on' if task is None else ''}")

    def forget(self, worker: str, number: int) -> None:
        self.told.append(f"{worker} forget")

    def wait(self, timeout_s: float | None) -> list[WorkerReport]:
        if not self.reports and timeout_s is None:
            assert not self.by_hand, "no worker will ever report"
            for worker in self.orders:
                if self.orders[worker]:
                    self.end(worker)
        reports, self.reports = self.reports, []
        for report in reports:
            if report.lost:
                self.orders[report.worker].clear()
        return reports

    def close(self) -> None:
        return None

    def end(self, worker: str) -> None:
        """End the worker's first order."""
        order = self.orders[worker].pop(0)
        at_checkpoint = order[-1] < STEPS
        self.reports.append(
            WorkerReport(worker, order[1], result=False if at_checkpoint else RESULT)
        )

    def lose(self, worker: str) -> None:
        self.reports.append(WorkerReport(worker, lost="killed by signal 9"))


def deferred(number: int) -> DeferredRun:
    """A run of the edge whose name is the task's number."""
    task = Assignment(number, 0, {"weights": vector(0, 0, 0)})
    edge = str(number)
    return DeferredRun(
        task=task,
        plan=TrainingPlan(1, 10, 0.1),
        local_samples=40,
        steps=STEPS,
        index=0,
        edge=edge,
        kept={},
    )


def whole(number: int) -> Train:
    return Train(deferred(number), STEPS)


@pytest.fixture
def backend() -> Noted:
    return Noted()


def told(backend: Noted) -> list[str]:
    found, backend.told = backend.told, []
    return found


def test_work_goes_to_the_idlest_by_emulated_end(backend: Noted) -> None:
    pool = WorkerPool(backend, 2)
    for number, due_ns in enumerate((50, 60, 70, 80, 20, 10)):
        pool.start(whole(number), due_ns)
    assert (
        told(backend) == ["A 0 to 4", "B 1 to 4", "A 2 to 4", "B 3 to 4"]
        and DEPTH == 2
        and pool.busy == 2
    )
    backend.end("B")
    pool.start(whole(6), 30)
    assert told(backend) == ["B 5 to 4"]


def test_look_ahead_is_bounded_except_for_what_is_wanted_now(backend: Noted) -> None:
    pool = WorkerPool(backend, 1)
    jobs = [whole(number) for number in range(6)]
    for number, job in enumerate(jobs):
        pool.start(job, 100 + number)
        if backend.orders["A"]:
            backend.end("A")
    pool.start(whole(9), 200)
    assert len(told(backend)) == LOOK_AHEAD, "all done, none collected"
    early = whole(7)
    pool.start(early, 50)
    assert told(backend) == []
    backend.by_hand = False
    pool.finish(early)
    assert (
        told(backend) == ["A 7 to 4"]
        and early.run.step == 4
        and early.run.outcome.numbers == {"samples": 1.0}
    )
    for job in jobs:
        pool.finish(job)
    assert [job.run.step for job in jobs] == [4] * 6 and backend.told[-1] == "A 9 to 4"


def test_a_run_goes_on_where_it_stands(backend: Noted) -> None:
    pool = WorkerPool(backend, 2)
    run = deferred(0)
    pool.start(first := Train(run, 2), 10)
    backend.end("A")
    pool.finish(first)
    assert first.run.step == 2 and run.outcome is None
    for number in (1, 2):
        pool.start(whole(number), 15)
    assert told(backend)[1:] == ["A 1 to 4", "B 2 to 4"]
    run.merges.append(Merge(2, Fresh(0, 7, {"weights": vector(5, 5, 5)})))
    pool.start(Train(run, 4), 20)
    assert told(backend) == ["A 0 to 4 on"], "not to B, though that is as idle"


def test_what_a_lost_worker_had_is_trained_again_with_its_whole_story(backend: Noted) -> None:
    pool = WorkerPool(backend, 2)
    run = deferred(0)
    pool.start(first := Train(run, 2), 10)
    backend.end("A")
    pool.finish(first)
    run.merges.append(Merge(2, Fresh(0, 7, {"weights": vector(5, 5, 5)})))
    pool.start(last := Train(run, 4), 20)
    done = whole(1)
    pool.start(done, 30)
    backend.end("B")
    pool.ready(done)
    backend.lose("A")
    backend.by_hand = False
    pool.finish(last)
    assert (
        told(backend) == ["A 0 to 2", "A 0 to 4 on", "B 1 to 4", "B 0 to 4"]
        and last.run.outcome is not None
    )
    pool.finish(done)
    assert told(backend) == [] and sorted(backend.orders) == [
        "A",
        "B",
        "C",
    ], "what was done is done, and C came for A"


def test_a_task_that_loses_every_worker_ends_the_run(backend: Noted) -> None:
    pool = WorkerPool(backend, 1)
    job, innocent = whole(0), whole(1)
    pool.start(job, 10)
    pool.start(innocent, 20)
    for name in "ABC"[:MOST_DEATHS]:
        backend.lose(name)
        pool.ready(job), pool.ready(job)  # the loss is reported, then that another worker is ready
    with pytest.raises(
        UserError, match="3 workers were lost at task 0 of edge 0 .killed by signal 9."
    ):
        pool.finish(job)
    backend.by_hand = False
    pool.finish(innocent)


def test_what_is_called_off_is_forgotten_and_its_report_means_nothing(backend: Noted) -> None:
    pool = WorkerPool(backend, 1)
    first, second, third = whole(0), whole(1), whole(2)
    for due_ns, job in enumerate((first, second, third)):
        pool.start(job, due_ns)
    pool.drop(first.run)
    pool.drop(third.run)
    pool.drop(first.run)
    assert told(backend) == ["A 0 to 4", "A 1 to 4", "A forget"]
    backend.end("A")
    backend.end("A")
    pool.finish(second)
    assert first.run.outcome is None and third.run.outcome is None and pool.busy == 0


# ------------------------------------------------------------------ forked workers
def left(pids: list[int]) -> list[int]:
    """Former workers that still exist, also as zombies."""
    return [child.pid for child in psutil.Process().children() if child.pid in pids]


@pytest.mark.processes
@pytest.mark.parametrize("name", RUNS)
def test_workers_leave_the_bytes_of_one_process_and_nothing_behind(
    tmp_path: Path, name: str
) -> None:
    learned = learned_of(**RUNS[name])
    backend = ForkedBackend(learned)
    pool, pids = WorkerPool(backend, 2), backend.pids
    try:
        there = bytes_with(tmp_path / "there", learned, pool)
        assert there == bytes_with(tmp_path / "here", learned, None) and len(pids) == 2
    finally:
        pool.close()
    assert left(pids) == []


@pytest.mark.processes
def test_workers_may_be_killed_at_any_time(tmp_path: Path) -> None:
    learned, steps, killed = learned_of(**RUNS["rich"]), [0], set()
    backend = ForkedBackend(learned)
    pool = WorkerPool(backend, 2)

    def strike(now: int, run: Any) -> None:
        steps[0] += 1
        if steps[0] in (20, 45):
            for pid in backend.pids:
                os.kill(pid, signal.SIGKILL)
                killed.add(pid)

    try:
        assert bytes_with(tmp_path / "killed", learned, pool, strike) == bytes_with(
            tmp_path / "here", learned, None
        )
        assert len(killed) >= 3 and len(backend.pids) == 2, "others took their places"
    finally:
        pool.close()


OWN_RULE = {load(name).rule: name for name in reversed(strategy_names())}


@pytest.mark.processes
@pytest.mark.parametrize("name", sorted(OWN_RULE.values()))
def test_the_rule_of_every_strategy_may_train_elsewhere(tmp_path: Path, name: str) -> None:
    """Its local rule keeps its state in the run and in the edge's memory, not in itself."""
    sections = SPREAD | {
        "task": None,
        "data": {"name": "digits"},
        "model": {"name": "mlp"},
        "edges": {"count": 6},
        "stop": {"versions": 3},
        "unlabelled": {"size": 50},
    }
    if load(name).schedules_slots:
        sections |= {
            "medium": {"kind": "tdma", "slot_ms": 100.0, "guard_ms": 10.0, "rate_mbit_s": 1.0}
        }
    learned = learned_of(**sections, strategies=[{"strategy": name}])
    with open_pool(learned, 2) as pool:
        assert bytes_with(tmp_path / "pool", learned, pool) == bytes_with(
            tmp_path / "here", learned, None
        )


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
def test_training_that_raises_in_a_worker_is_a_failed_task(tmp_path: Path) -> None:
    """With the same bytes as in this process."""
    learned = learned_of(**one_strategy("Refusing"))
    with open_pool(learned, 2) as pool:
        summary = run_virtual(learned, 0, tmp_path / "there", None, pool)
    assert re.fullmatch(
        r"training fails on most edges: edge \w+, before its first step: this model has no layers"
        r" to speak of \(pool_strategies.py, line \d+\)",
        summary["finished"],
    )
    run_virtual(learned, 0, tmp_path / "here")
    here, there = ((tmp_path / name / "events.jsonl").read_text() for name in ("here", "there"))
    closed = [row for row in here.splitlines() if '"task_closed"' in row]
    assert closed == [row for row in there.splitlines() if '"task_closed"' in row] != []


def test_a_signal_in_the_middle_of_a_message_loses_none_of_it() -> None:
    """Such as SIGCONT after Ctrl-Z: a read returns early with what has arrived by then."""
    ours, theirs = socket.socketpair()
    former = signal.signal(signal.SIGUSR1, lambda number, frame: None)

    def deliver() -> None:
        whole, other = socket.socketpair()
        send(whole, ["done", np.arange(1000)])
        data = other.recv(1 << 20)
        for part in (data[:4000], data[4000:]):
            theirs.sendall(part)
            time.sleep(0.1)
            os.kill(os.getpid(), signal.SIGUSR1)

    thread = threading.Thread(target=deliver)
    try:
        thread.start()
        text, array = receive(ours)
        thread.join()
    finally:
        signal.signal(signal.SIGUSR1, former)
        ours.close(), theirs.close()
    assert text == "done" and array.tolist() == list(range(1000))


@pytest.mark.processes
@pytest.mark.parametrize("what", ["a lack of memory", "half an order"])
def test_a_worker_that_cannot_receive_an_order_is_replaced(what: str) -> None:
    """A lack of memory is tried with an array of 8 EB, half an order with the parent's end."""
    backend = ForkedBackend(learned_of())
    try:
        backend.add_worker()
        worker: Any = backend.wait(0)[0].worker
        head = msgpack.packb([">f8", [1 << 60]])
        data = msgpack.packb(["do", 0, msgpack.ExtType(ARRAY, head)])
        worker.sendall(LENGTH.pack(len(data)) + data[: None if "memory" in what else 3])
        if "memory" not in what:
            worker.shutdown(socket.SHUT_WR)
        (report,) = backend.wait(20)
        assert report.lost == f"ended with status {int('memory' in what)}"
    finally:
        backend.close()


@pytest.mark.processes
def test_ctrl_c_keeps_the_results_and_leaves_no_process(tmp_path: Path) -> None:
    def interrupt(now: int, run: Any) -> None:
        if run.coordinator.version == 5:
            os.kill(os.getpid(), signal.SIGINT)

    learned = learned_of(**RUNS["rich"])
    backend = ForkedBackend(learned)
    pool = WorkerPool(backend, 2)
    summary, pids = run_virtual(learned, 0, tmp_path, interrupt, pool), backend.pids
    pool.close()
    assert (summary["finished"], summary["versions"]) == ("interrupted", 5)
    versions = [row["version"] for row in read_csv(tmp_path / "metrics.csv")]
    assert versions == [str(version) for version in range(6)]
    assert len(pids) == 2 and left(pids) == []


@pytest.mark.processes
def test_workers_end_with_a_parent_that_is_killed() -> None:
    code = (
        "import time\nfrom pools import learned_of\n"
        "from edgefl.clocks.virtual.pool.workers import ForkedBackend\n"
        "backend = ForkedBackend(learned_of())\nbackend.add_worker(), backend.add_worker()\n"
        "print(*backend.pids, flush=True)\ntime.sleep(60)\n"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(SUPPORT), str(ROOT)])},
    )
    assert parent.stdout is not None
    workers = [psutil.Process(int(pid)) for pid in parent.stdout.readline().split()]
    parent.kill()
    parent.wait()
    _, alive = psutil.wait_procs(workers, timeout=10)
    assert len(workers) == 2 and not [
        worker for worker in alive if worker.status() != psutil.STATUS_ZOMBIE
    ]


def test_without_ray_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with (
        pytest.raises(UserError, match=r"pip install -e .*\[ray\]'"),
        open_pool(learned_of(), 2, "ray"),
    ):
        pass


# ------------------------------------------------------------------ whole runs in forked processes
def runs(work: Any) -> ParallelRuns:
    return ParallelRuns(2, work, lambda job, line, lasting: None, lambda job, summary: None)


@pytest.mark.processes
def test_of_several_refusals_the_first_in_the_list_is_told() -> None:
    def work(job: int, report: Any, begun: Any) -> dict[str, Any]:
        time.sleep(0.2 * (job == 0))
        raise UserError(f"job {job} is wrong")

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
            os.write(write, b"ended cleanly")
        return {}

    try:
        with pytest.raises(UserError, match="job 1 is wrong"):
            runs(work).run(3)
        assert os.read(read, 100) == b"ended cleanly"
    finally:
        os.close(read), os.close(write)
