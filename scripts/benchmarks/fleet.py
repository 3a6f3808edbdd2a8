"""Start time of a fleet of real edge processes, against bare forks, and its memory.

A warm parent forks N edges on this machine. They register at a real coordinator process and answer
its pings. The coordinator expects one more edge, so that no training begins. Then the last edge
joins, all train for a round, and memory is measured again.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from statistics import mean
from threading import Thread
from typing import Any, TypeVar

import psutil
from reference import forked_s
from table import TIMES, Row, arguments, host_line, load, report, run, say

from edgefl.config.experiment import Experiment
from edgefl.errors import UserError
from edgefl.hosts.ipc import Channel, message
from edgefl.hosts.process_messages import (
    FleetReady,
    ForkEdges,
    Listening,
    PrepareFleet,
    RunEnded,
    StartRun,
    StopRun,
)
from edgefl.hosts.processes import ONE_THREAD, spawn
from edgefl.hosts.wall.coordinator import process as coordinator_process
from edgefl.hosts.wall.coordinator.process import CoordinatorProcess
from edgefl.hosts.wall.coordinator.sessions import UNKNOWN_RTT

JOINED_GOAL = (
    "<= 5"  # multiple of bare forks: measured 3.1 to 3.5 with 100 edges, 4.6 on a busy machine
)
PSS_GOAL, LEFT_GOAL = "<= 30", "<= 0"  # MB, processes
PATIENCE_S, LEAVE_S = 120.0, 10.0
LOOK_S = 0.002
MANY = 50  # edges: with fewer, each edge's share of the parent's pages is too large
AS_COORDINATOR = "as-coordinator"  # first argument of this file when it starts itself
MB = 1e6
Heard = TypeVar("Heard")


@message
class MomentReached:
    """A moment of the benchmark was reached, at ``at_s`` on CLOCK_MONOTONIC."""

    moment: str
    at_s: float


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument(
        "--edges", type=int, default=100, metavar="N", help="edge processes (default: 100)"
    )
    options, host = parser.parse_args(), host_line()
    if options.edges < 1:
        raise UserError(f"--edges {options.edges}: expected 1 or more")
    with tempfile.TemporaryDirectory(prefix="bench-fleet-") as scratch:
        fleet = Fleet(experiment_of(options.edges + 1), Path(scratch))
        try:
            rows = [
                *measured(fleet, options.edges),
                Row("processes left", fleet.end(), "", LEFT_GOAL),
                Row("load after", float(load())),
            ]
        finally:
            fleet.kill()
    report(f"A fleet of {options.edges} edge processes", host, rows, options.json)


def experiment_of(edges: int) -> Experiment:
    """Return the experiment: digits, an MLP, fast links, every edge in every round."""
    return Experiment.model_validate(
        {
            "name": "fleet",
            "edges": {"count": edges},
            "links": {"up_mbit_s": 100.0, "down_mbit_s": 100.0},
            "network": {"join_timeout_s": 2 * PATIENCE_S},
            "stop": {"emulated_s": 3600.0},
            "strategies": [{"strategy": "fedavg", "clients_per_round": edges}],
        }
    )


# ------------------------------------------------------------------ measurements
def measured(fleet: Fleet, edges: int) -> list[Row]:
    ids = fleet.experiment.edges.ids()
    say(f"forking {edges} bare processes")
    bare_s = forked_s(edges)
    say("starting the warm parent and the coordinator")
    launched_s = time.monotonic()
    fleet.start_coordinator(fleet.start_warm())
    say(f"forking {edges} edges")
    forked_at_s = time.monotonic()
    fleet.fork(ids[:edges])
    joined_s, answered_s = fleet.told("joined"), fleet.told("answered")
    took_s = answered_s - forked_at_s
    rows = [
        Row("from the fork command until all have joined", joined_s - forked_at_s, "s"),
        Row("from the fork command until all have joined and then answered a ping", took_s, "s"),
        Row("bare processes: from the first fork until all have answered", bare_s, "s"),
        Row("joined and answered / bare processes", took_s / bare_s, TIMES, JOINED_GOAL),
        Row("from the launch of the warm parent until then", answered_s - launched_s, "s"),
        *memory_rows(fleet, "joined"),
    ]
    say("the last edge joins; one round")
    fleet.fork(ids[edges:])
    fleet.told("trained")
    return rows + memory_rows(fleet, "after a round of training")


def memory_rows(fleet: Fleet, when: str) -> list[Row]:
    """Return rows on memory.

    PSS (proportional set size) is an edge's private memory plus its share of shared pages. All
    children share the parent's pages.
    """
    goal = PSS_GOAL if len(fleet.experiment.edges.ids()) > MANY else None
    pss = [process.memory_full_info().pss / MB for process in fleet.edges()]
    parent, server = (process.memory_info().rss / MB for process in (fleet.warm, fleet.server))
    return [
        Row(
            f"proportional set size of an edge, mean of {len(pss)}, {when}",
            mean(pss),
            "MB",
            goal,
        ),
        Row(f"proportional set size of an edge, largest, {when}", max(pss), "MB", goal),
        Row(f"resident size of the warm parent, {when}", parent, "MB"),
        Row(f"resident size of the coordinator, {when}", server, "MB"),
    ]


class Fleet:
    """The processes of one run, started as by ``edgefl run``, but without an evaluator."""

    def __init__(self, experiment: Experiment, scratch: Path) -> None:
        self.experiment, self.scratch = experiment, scratch
        self.seen: set[psutil.Process] = set()
        self.address = ""

    def start_warm(self) -> str:
        """Start the warm parent, wait until it can fork, and return the digest of its data."""
        self.control, theirs = Channel.pair()
        workers = [Channel.pair()[1] for _ in range(2)]  # for an evaluator and a job worker
        self.warm = self._saw(spawn("edgefl.hosts.wall.fleet", [theirs, *workers]))
        self.control.send(
            PrepareFleet(
                experiment=self.experiment.model_dump_json(),
                base=None,
                scratch=str(self.scratch),
                fleet=True,
                calibrate=True,
            )
        )
        return heard(self.control, FleetReady).data_digest

    def start_coordinator(self, data_digest: str) -> None:
        """Start the coordinator and wait until it listens."""
        self.moments, theirs = Channel.pair()
        command = [sys.executable, __file__, AS_COORDINATOR, str(theirs.fileno())]
        self.server = self._saw(
            subprocess.Popen(command, pass_fds=[theirs.fileno()], env=os.environ | ONE_THREAD)
        )
        theirs.close()
        self.moments.send(
            StartRun(
                experiment=self.experiment.model_dump_json(),
                index=0,
                directory=str(self.scratch / "run"),
                base=None,
                scratch=str(self.scratch),
                data_digest=data_digest,
                keys=None,
                more=False,
            )
        )
        port = heard(self.moments, Listening).port
        self.address = f"tcp://{self.experiment.network.host}:{port}"

    def fork(self, ids: list[str]) -> None:
        self.control.send(ForkEdges(tuple(ids), self.address, 0))

    def told(self, moment: str) -> float:
        """Wait for the coordinator's report of ``moment``; return its monotonic time in seconds."""
        reached = heard(self.moments, MomentReached)
        assert reached.moment == moment
        return reached.at_s

    def edges(self) -> list[psutil.Process]:
        edges = self.warm.children()
        self.seen.update(edges)
        return edges

    def end(self) -> int:
        """End the run normally; return how many of its processes still run after LEAVE_S."""
        self.edges()
        self.moments.send(StopRun("measured"))
        heard(self.moments, RunEnded)
        self.control.close()
        _, there = psutil.wait_procs(self.seen, timeout=LEAVE_S)
        return sum(
            process.is_running() and process.status() != psutil.STATUS_ZOMBIE for process in there
        )

    def kill(self) -> None:
        """Kill all processes that still run."""
        for process in self.seen:
            with suppress(psutil.NoSuchProcess):
                process.kill()

    def _saw(self, started: subprocess.Popen[bytes]) -> psutil.Process:
        process = psutil.Process(started.pid)
        self.seen.add(process)
        return process


def heard(channel: Channel, kind: type[Heard]) -> Heard:
    """Return the next message; UserError if it is of another kind or does not arrive."""
    found = channel.receive(PATIENCE_S)
    if not isinstance(found, kind):
        raise UserError(f"no answer within {PATIENCE_S:g} s" if found is None else str(found))
    return found


# ------------------------------------------------------------------ the coordinator's process
class Watched(CoordinatorProcess):
    """The real coordinator process, with a thread that reports the moments of this benchmark."""

    def main(self) -> dict[str, Any]:
        Thread(target=self.tell_moments, daemon=True).start()
        return super().main()

    def tell_moments(self) -> None:
        """Report when all edges but the last joined, each answered a ping, and a round ended."""
        wanted, sessions = len(self.job.experiment.edges.ids()) - 1, self.sessions.by_edge
        moments: dict[str, Callable[[], bool]] = {
            "joined": lambda: len(sessions) >= wanted,
            "answered": lambda: (
                sum(session.rtt_ns < UNKNOWN_RTT for session in list(sessions.values())) >= wanted
            ),
            "trained": lambda: self.run.coordinator.version > 0,
        }
        for moment, reached in moments.items():
            while not reached():
                time.sleep(LOOK_S)
            self.control.send(MomentReached(moment, time.monotonic()))


if __name__ == "__main__":
    if sys.argv[1:2] == [AS_COORDINATOR]:
        coordinator_process.CoordinatorProcess = Watched
        sys.exit(coordinator_process.main(int(sys.argv[2])))
    run(main)
