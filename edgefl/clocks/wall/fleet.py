"""The warm parent: a process that loads torch, data and model once, calibrates the host, and then
forks the edges of this machine.

It has no zmq socket, no second thread and no real-time priority, so that forking is safe. A forked
process costs 15 ms and 10 MB; a cold start costs a second and 110 MB. Many edges share a process
(``edges.per_process``). The warm parent keeps running to fork replacements and to decide which
process may train.
"""

from __future__ import annotations

import gc
import heapq
import os
import selectors
import signal
import socket
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import orjson
import psutil
from safetensors.numpy import save

from edgefl.clocks.ipc import Channel
from edgefl.clocks.process_messages import (
    FROZEN,
    SHARES,
    FleetReady,
    ForkEdges,
    InjectFault,
    PrepareFleet,
    ProcessExited,
    RunRefused,
    StartWorkers,
    WorkerDied,
)
from edgefl.clocks.processes import (
    EDGE_BYTES,
    PROCESS_BYTES,
    close_all_but,
    die_with_parent,
    fork,
    group_name,
    keep_freed_memory,
    room_for_edges,
)
from edgefl.clocks.setup.learning import Learning, learning
from edgefl.clocks.setup.network import devices
from edgefl.clocks.trial import try_out
from edgefl.clocks.wall.coordinator.workers import serve_evaluations, serve_jobs
from edgefl.clocks.wall.edge.host import EdgeHost, EdgeProcess, Outcome
from edgefl.clocks.wall.edge.machine import share_memory
from edgefl.clocks.wall.edge.membership import processes_of, sides
from edgefl.clocks.wall.edge.work import TURN, WANT, SharedTurns
from edgefl.config.experiment import Experiment
from edgefl.errors import TEMPORARY, UserError, written
from edgefl.protocol.messages import Assignment, RunFinished
from edgefl.strategies.base.strategy import LocalRule
from emulator.host import cores

SILENCE_S = 1.0  # a turn that is not given back after this time (real) is withdrawn
JOB_WORKER = "job worker"  # cannot be an edge's name: edge ids have no spaces
CALIBRATION_S = 0.4
MOST_CALIBRATIONS = 10_000  # runs
# after so long no other edge is tried
LONGEST_CALIBRATION_S = 10.0
JOB_NICE, EDGE_NICE, EVALUATOR_NICE = 5, 10, 19


class Turnstile:
    """Gives out turns to train, slices of at most 50 ms, to processes. It has no I/O."""

    def __init__(self, turns: int) -> None:
        self.turns = turns
        self._waiting: list[tuple[int, int, str]] = []  # (due, order of asking, edge)
        self._holders: dict[str, float] = {}  # edge -> since
        self._asked = 0
        self._frozen: set[str] = set()

    def want(self, edge: str, due_ns: int) -> None:
        heapq.heappush(self._waiting, (due_ns, self._asked, edge))
        self._asked += 1

    def done(self, edge: str) -> None:
        self._holders.pop(edge, None)

    def gone(self, edge: str) -> None:
        """The edge's process has ended."""
        self.thaw(edge)
        self.done(edge)
        self._waiting = [entry for entry in self._waiting if entry[2] != edge]
        heapq.heapify(self._waiting)

    def freeze(self, edge: str) -> None:
        """The edge's process is stopped: it neither holds a turn nor gets one until ``thaw``."""
        self.done(edge)
        self._frozen.add(edge)

    def thaw(self, edge: str) -> None:
        self._frozen.discard(edge)

    def grants(self, now_s: float) -> list[str]:
        """Give out all free turns and return the edges that get one. ``now_s``: wall seconds."""
        silent = [edge for edge, since in self._holders.items() if now_s - since > SILENCE_S]
        for edge in silent:
            del self._holders[edge]
        granted, passed_over = [], []
        while self._waiting and len(self._holders) < self.turns:
            entry = heapq.heappop(self._waiting)
            if entry[2] in self._frozen:
                passed_over.append(entry)
                continue
            self._holders[entry[2]] = now_s
            granted.append(entry[2])
        for entry in passed_over:
            heapq.heappush(self._waiting, entry)
        return granted


@dataclass(slots=True)
class EdgeGroup:
    """The process of some edges. ``edges``: those that run in it.

    ``orders``: a channel to a process with several edges, which injects faults into one of them
    itself; a process with one edge gets signals.
    """

    name: str
    edges: set[str]
    members: tuple[str, ...]  # that it had at its start
    index: int  # of the strategy
    orders: Channel | None


class Warm:
    """Serves one run: commands over ``control``, turns over one channel per process."""

    def __init__(
        self,
        control: Channel,
        evaluations: Channel,
        jobs: Channel | None,
        learned: Learning,
        data_digest: str,
    ) -> None:
        self.control, self.evaluations, self.jobs, self.learned, self.data_digest = (
            control,
            evaluations,
            jobs,
            learned,
            data_digest,
        )
        self.turnstile = Turnstile(max(cores() - 1, 1))
        self.selector = selectors.DefaultSelector()
        self.selector.register(control, selectors.EVENT_READ, None)
        self.children: dict[int, str] = {}  # pid -> name of a group, "evaluator" or JOB_WORKER
        self.groups: dict[str, EdgeGroup] = {}  # by name
        self.group_of: dict[str, EdgeGroup] = {}  # by edge
        self.turns: dict[str, socket.socket] = {}

    def run(self) -> None:
        """Serve until the control channel closes."""
        while True:
            for key, _ in self.selector.select(0.2):
                if isinstance(key.data, EdgeGroup):
                    self._ended(key.data)
                elif key.data is not None:
                    # otherwise a fork in this same batch has replaced that edge
                    if self.turns.get(key.data) is key.fileobj:
                        self._turn(key.data)
                elif not self._command():
                    self._end_children(set(self.children.values()))
                    return
            for edge in self.turnstile.grants(time.monotonic()):
                self._grant(edge)
            self._reap()

    def fork(
        self, name: str, work: Callable[[], int | None], nice: int, keep: tuple[int, ...]
    ) -> None:
        """Fork a child that runs ``work`` and exits. It keeps only the descriptors ``keep``."""

        def child() -> int | None:
            close_all_but(*keep)
            os.nice(nice)
            sys.setswitchinterval(0.001)  # to stamp arrivals on time while another thread trains
            return work()

        self.children[fork(name, child)] = name

    # ------------------------------------------------------------------ commands
    def _command(self) -> bool:
        try:
            message = self.control.receive()
        except EOFError:
            return False
        try:
            self._obey(message)
        except OSError as error:
            self.control.send(
                RunRefused(
                    f"a process of this run cannot be started: {error.strerror}: expected fewer"
                    " processes (edges.count, edges.per_process), or higher limits (ulimit -u,"
                    " ulimit -n)"
                )
            )
        return True

    def _obey(self, message: Any) -> None:
        """OSError if the system refuses a process."""
        match message:
            case StartWorkers():
                self._at_speed(message.speed)
                self._start_workers(message.log, message.go_on)
            case ForkEdges():
                self._fork_edges(message.edges, message.address, message.index)
            case InjectFault():
                self._inject(message.fault, message.edge)

    def _inject(self, fault: str, edge: str) -> None:
        """Kill, freeze or thaw an edge, if it runs: its process, or in a process of several."""
        group = self.group_of.get(edge)
        if group is None or edge not in group.edges:
            return
        if group.orders is not None:
            if fault == "kill":
                group.edges.discard(edge)
            self._order(group, InjectFault(fault, edge))
        elif fault == "kill":
            self._end_children({group.name})
        else:
            freeze = fault == "freeze"
            (self.turnstile.freeze if freeze else self.turnstile.thaw)(group.name)
            for pid in [pid for pid, name in self.children.items() if name == group.name]:
                os.kill(pid, signal.SIGSTOP if freeze else signal.SIGCONT)

    def _order(self, group: EdgeGroup, order: InjectFault) -> None:
        assert group.orders is not None
        with suppress(OSError):  # the process has ended
            group.orders.send(order)

    def _at_speed(self, speed: float) -> None:
        """Set the speed, which the launcher may have chosen."""
        experiment = self.learned.experiment.model_copy(update={"speed": speed})
        self.learned = replace(self.learned, experiment=experiment)

    def _start_workers(self, log: str, go_on: bool) -> None:
        """Redirect stderr to the file ``log``, then fork evaluator and job worker."""
        mode = os.O_APPEND if go_on else os.O_TRUNC
        file = os.open(log, os.O_WRONLY | os.O_CREAT | mode, 0o666)
        os.dup2(file, 2)
        os.close(file)
        self.fork(
            "evaluator",
            lambda: serve_evaluations(self.evaluations, self.learned.evaluate),
            EVALUATOR_NICE,
            keep=(self.evaluations.fileno(),),
        )
        self.evaluations.close()
        if self.jobs is not None and self.learned.runs_jobs:
            self._fork_job_worker(self.jobs)

    def _fork_job_worker(self, jobs: Channel) -> None:
        """Fork the job worker. Its end of the channel stays open here, for its replacement."""
        turns = self._new_turns(JOB_WORKER)
        self.fork(
            JOB_WORKER,
            lambda: serve_jobs(jobs, self.learned, SharedTurns(turns)),
            JOB_NICE,
            keep=(jobs.fileno(), turns.fileno()),
        )
        turns.close()

    def _fork_edges(self, edges: Sequence[str], address: str, index: int) -> None:
        new = []
        for edge in edges:
            group = self.group_of.get(edge)
            if group is None or group.index != index or group.orders is None or not group.edges:
                new.append(edge)
                if group is not None:
                    # an old process that missed the end of its run must not compete with the new
                    self._end_children({group.name})
            else:
                group.edges.add(edge)
                self._order(group, InjectFault("restart", edge))
        experiment = self.learned.experiment
        for members in processes_of(experiment, new, experiment.edges.per_process):
            self._fork_group(members, address, index)

    def _fork_group(self, edges: tuple[str, ...], address: str, index: int) -> None:
        name = group_name(edges)
        learned, turns = self.learned, self._new_turns(name)
        ours, theirs = Channel.pair() if len(edges) > 1 else (None, None)

        def work() -> int:
            build, shared = sides(learned, index, self.data_digest), SharedTurns(turns)

            def host(edge: str) -> EdgeHost:
                return EdgeHost(edge, address, None, partial(build, edge), shared)

            def ended(edge: str, outcome: Outcome) -> None:
                if not isinstance(outcome, RunFinished):  # refused, or the coordinator has ended
                    print(f"{edge}: {outcome}", file=sys.stderr)
                    if theirs is not None:
                        theirs.send(ProcessExited(f"edge {edge}", 1, (edge,)))

            process = EdgeProcess(shared, ended=ended, again=host)
            if theirs is not None:
                Thread(target=theirs.serve, args=(process.inject,), daemon=True).start()
            outcomes = process.run([host(edge) for edge in edges])
            failed = [each for each in outcomes.values() if not isinstance(each, RunFinished)]
            return 1 if failed and theirs is None else 0

        keep = [turns.fileno()] + ([] if theirs is None else [theirs.fileno()])
        self.fork(name, work, EDGE_NICE, keep=tuple(sorted(keep)))
        turns.close()
        group = self.groups[name] = EdgeGroup(name, set(edges), edges, index, ours)
        self.group_of.update(dict.fromkeys(edges, group))
        if ours is not None and theirs is not None:
            theirs.close()
            self.selector.register(ours, selectors.EVENT_READ, group)

    def _ended(self, group: EdgeGroup) -> None:
        """A process of several edges tells that one of them has ended."""
        assert group.orders is not None
        try:
            while (exited := group.orders.receive(timeout_s=0)) is not None:
                group.edges.difference_update(exited.edges)
                self.control.send(exited)
        except EOFError:
            with suppress(KeyError):  # it is ended by this process
                self.selector.unregister(group.orders)

    def _end_children(self, names: set[str]) -> None:
        for pid in [pid for pid, name in self.children.items() if name in names]:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            self._forget_group(self.children.pop(pid))

    def _forget_group(self, name: str) -> tuple[str, ...]:
        """The process has ended. Returns the edges that ran in it."""
        group = self.groups.pop(name, None)
        if group is None:
            return ()
        for edge in group.members:
            if self.group_of.get(edge) is group:
                del self.group_of[edge]
        if group.orders is not None:
            self._ended(group)  # what it has told before its end, which this process saw first
            with suppress(KeyError):
                self.selector.unregister(group.orders)
            group.orders.close()
        return tuple(sorted(group.edges))

    # ------------------------------------------------------------------ turns
    def _new_turns(self, name: str) -> socket.socket:
        """Open a channel for turns, and return the end for a child that is about to be forked."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        if name in self.turns:
            self._close_turns(name)
        self.turns[name] = ours
        self.selector.register(ours, selectors.EVENT_READ, name)
        return theirs

    def _turn(self, edge: str) -> None:
        try:
            data = self.turns[edge].recv(TURN.size)
        except ConnectionResetError:
            data = b""
        if not data:
            self._close_turns(edge)
            return
        sort, due_ns = TURN.unpack(data)
        if sort == WANT:
            self.turnstile.want(edge, due_ns)
        else:
            self.turnstile.done(edge)

    def _grant(self, edge: str) -> None:
        try:
            self.turns[edge].send(b"g")
        except (OSError, KeyError):
            self.turnstile.done(edge)

    def _close_turns(self, edge: str) -> None:
        self.selector.unregister(self.turns[edge])
        self.turns.pop(edge).close()
        self.turnstile.gone(edge)

    def _reap(self) -> None:
        while self.children:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            name = self.children.pop(pid)
            edges = self._forget_group(name)
            if status:
                self.control.send(ProcessExited(name, os.waitstatus_to_exitcode(status), edges))
            if status and name == JOB_WORKER and self.jobs is not None:
                self._fork_job_worker(self.jobs)
                self.jobs.send(WorkerDied(status))  # the coordinator sends the job again


def refuse_too_many(learned: Learning) -> None:
    """UserError if the processes of all edges do not fit into the free memory, without models."""
    experiment = learned.experiment
    edges = experiment.edges.ids()
    groups = processes_of(experiment, edges, experiment.edges.per_process)
    free = psutil.virtual_memory().available
    needed = len(groups) * PROCESS_BYTES // 2 + len(edges) * EDGE_BYTES
    if needed > free:
        raise UserError(
            f"{len(edges)} edges in {len(groups)} processes need {needed >> 20} MiB or more,"
            f" {free >> 20} MiB are free: fewer edges (edges.count), more in a process"
            " (edges.per_process), or --clock virtual"
        )


def _write_scratch(scratch: Path, learned: Learning, weights: np.ndarray) -> None:
    """Write what the coordinator's process reads. UserError if there is no room."""
    with written(f"{scratch}:", TEMPORARY):
        (scratch / "initial.safetensors").write_bytes(save({"weights": weights}))
        (scratch / "layout.json").write_bytes(orjson.dumps(learned.layout.to_json()))
        # computed here once, so that no forked edge reads the whole model file again
        if learned.frozen_digest():
            (scratch / FROZEN).write_text(learned.frozen_digest(), encoding="utf-8")
        (scratch / SHARES).write_bytes(orjson.dumps(learned.samples))
        learned.keep_beside(scratch)


def calibrate(learned: Learning) -> tuple[float | None, str]:
    """Measure how many samples per second one core of this host trains.

    This runs real steps of the first edge on which training does not fail; the first run of steps
    does not count. Without a rate, the text says why: training failed on every edge that was
    tried, with the first reason. It is empty if a GPU trains: CUDA must not begin in a process
    that forks.
    """
    if not learned.on_cpu():
        return None, ""
    reasons: list[str] = []
    until_s = time.perf_counter() + LONGEST_CALIBRATION_S
    for edge in learned.shards:
        rate, reason = _rate(learned, edge)
        if rate is not None:
            return rate, ""
        reasons.append(f"{edge}: {reason}")
        if _is_past(until_s):
            break
    count = len(reasons)
    tried = f"{count} edge{'s' if count > 1 else ''}"
    return None, f"a trial training failed on {tried} of {len(learned.shards)}, on {reasons[0]}"


def _rate(learned: Learning, edge: str) -> tuple[float | None, str]:
    """Samples per second of one core on ``edge``; None with the reason if its training fails."""
    trainer, rule, weights = learned.trainer(edge), LocalRule(None), learned.initial_weights()
    done, spent, number = 0, 0.0, 0
    while spent < CALIBRATION_S and number <= MOST_CALIBRATIONS:
        run = trainer.begin(Assignment(number, 0, {"weights": weights}), rule, {})
        started = time.perf_counter()
        past = partial(_is_past, started + CALIBRATION_S - spent)
        trainer.advance(run, rule, 2 if number == 0 else None, past)
        if number:  # the first steps include one-time set-up
            spent += time.perf_counter() - started
            done += run.samples
        if run.failure is not None:  # its samples do not count: another edge may have no failure
            return None, run.failure.reason
        number += 1
    return done / max(spent, 1e-9), ""


def _is_past(moment_s: float) -> bool:
    return time.perf_counter() > moment_s


def main(control_fd: int, evaluations_fd: int, jobs_fd: int = -1) -> None:
    """Load data and model, calibrate, write w_0 and its layout, then serve."""
    control, evaluations = Channel.inherited(control_fd), Channel.inherited(evaluations_fd)
    jobs = Channel.inherited(jobs_fd) if jobs_fd >= 0 else None
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    die_with_parent()  # also while it loads data, which may take minutes
    keep_freed_memory()
    try:
        task: PrepareFleet = control.receive()
    except EOFError:
        return  # the launcher has ended
    try:
        experiment = Experiment.model_validate_json(task.experiment)
        if task.fleet:
            room_for_edges(len(experiment.edges.ids()))  # each has a socket here, for its turns
        learned = learning(experiment, task.base, edges=None if task.fleet else ())
        try_out(learned)
        data_digest, weights = learned.data_digest(), learned.initial_weights()
        # also makes the compiled step, once for all edges
        engines = tuple(learned.engine(index) for index in range(len(experiment.strategies)))
        learned.load_before_fork()
        if task.fleet:
            refuse_too_many(learned)
    except UserError as error:
        control.send(RunRefused(str(error)))
        return
    try:
        _write_scratch(task.scratch, learned, weights)
    except UserError as error:
        control.send(RunRefused(str(error)))
        return
    rate, not_measured = calibrate(learned) if task.calibrate else (None, "")
    if task.fleet:
        learned.speeds = devices(learned.experiment, learned.samples)  # once, for all edges
    if task.fleet and experiment.network.report_s:
        share_memory()  # forked edges report about this host
    with suppress(ConnectionError):  # the launcher has ended: this process and its children end
        host = (rate, cores(), learned.samples, not_measured)
        control.send(FleetReady(data_digest, *host, engines))
        gc.collect()  # while the coordinator opens its run
        # these objects stay; if the collector touched their pages, every child would copy them
        gc.freeze()
        Warm(control, evaluations, jobs, learned, data_digest).run()


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
