"""Seconds until a run goes on after kill -9 of its coordinator: 100 edges, 11 M parameters.

    python scripts/benchmarks/recovery.py [--edges 100] [--working 10] [--versions 1000]
                                          [--hidden 3300] [--json FILE]

`edgefl coordinator` runs on real sockets. Its edges are processes that return each model without
training: their sessions, transfers and acknowledgements are those of `edgefl edge`. At the last
version the coordinator is killed, and `edgefl coordinator --resume` is started. Next to it stand
the time in which a new run begins to listen, and in which the files that a resumption reads are
read from the disk.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
from table import TIMES, Row, arguments, host_line, report, run, say

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "support"))
from chaos_run import ChaosRun
from exactly_once import check_run
from processes import EchoTrainer

from edgefl.edges.edge import Edge
from edgefl.errors import UserError
from edgefl.hosts.setup.learning import learning
from edgefl.hosts.wall.edge.host import EdgeHost
from edgefl.hosts.wall.edge.work import EdgeSide, OwnMachine
from edgefl.loading.file import load, shared_digest
from edgefl.protocol.transfers import most_body
from edgefl.strategies.base.local_rule import LocalRule
from emulator.compute import Rate

GOAL = "<= 10"  # seconds
PATIENCE_S = 3600.0
LOOK_S = 0.01
MB = 1e6
READ_BYTES = 1 << 22
CONFIG = """
name = "recovery"
model = {{name = "mlp", hidden = [{hidden}, {hidden}]}}
edges = {{count = {edges}}}
training = {{trainer = "none"}}
devices = {{samples_per_s = 1000.0}}
links = {{kind = "native"}}
evaluation = {{every_versions = 0}}
stop = {{versions = 100000000}}
strategies = [{{strategy = "fedasync", concurrency = {working}}}]
"""


@dataclass(slots=True)
class Recovery:
    """What was measured, in seconds from the start of a command."""

    begin_s: float = 0.0  # a new run listens
    listen_s: float = 0.0  # the resumed run listens
    goes_on_s: float = 0.0  # it has the first new update
    whole_s: float = 0.0  # it has as many new updates as edges work
    versions: int = 0  # at the kill
    read_bytes: int = 0  # of checkpoint and journal
    read_s: float = 0.0
    faults: int = 0  # in the record


class EchoRun(ChaosRun):
    """A run whose edges are forks of this process that train nothing."""

    def __init__(self, folder: Path) -> None:
        config = load(folder / "chaos.toml")
        super().__init__(folder, config.edges.ids())
        learned = learning(config, folder)
        self.samples, self.most_bytes = learned.samples, most_body(4 * learned.layout.size)
        self.parameters = learned.layout.size
        entry = config.strategies[0]
        self.digests = (
            shared_digest(config, entry),
            learned.layout.digest(),
            learned.data_digest(),
        )
        self.forks: list[int] = []

    def start_edge(self, edge: str) -> None:
        pid = os.fork()
        if pid:
            self.forks.append(pid)
            return
        status = 1
        try:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            log = os.open(self.folder / "edges.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
            os.dup2(log, 2)
            actor = Edge(edge, EchoTrainer(), LocalRule(None), Rate(1000.0))
            side = EdgeSide(actor, *self.digests, self.samples[edge], 1.0, self.most_bytes)
            address = f"tcp://{self.host}:{self.port}"
            EdgeHost(edge, address, None, lambda setup: side, OwnMachine()).run(PATIENCE_S)
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)

    def close(self) -> None:
        for pid in self.forks:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
        super().close()

    def listens(self) -> bool:
        """Whether a process of this machine listens on the run's port."""
        found = psutil.net_connections(kind="tcp4")
        return any(
            each.status == psutil.CONN_LISTEN and each.laddr.port == self.port for each in found
        )

    def new_updates(self) -> int:
        """How many updates have arrived since the last resumption; 0 before it."""
        rows = self.rows()
        resumed = [at for at, row in enumerate(rows) if row.get("fact") == "resumed"]
        since = rows[resumed[-1] :] if resumed else []
        return sum(row.get("event") == "update_arrived" for row in since)


def until(reached: Callable[[], bool], run: EchoRun) -> float:
    """Wait for it; return the moment on the monotonic clock, in seconds."""
    while not reached():
        if run.coordinator.poll() is not None:
            raise UserError(f"the coordinator has ended: {run.said[-2000:]}")
        time.sleep(LOOK_S)
    return time.monotonic()


def recovery(edges: int, working: int, versions: int, hidden: int, folder: Path) -> Recovery:
    """Run up to ``versions``, kill the coordinator, resume it, and measure."""
    sizes = {"edges": edges, "working": working, "hidden": hidden}
    (folder / "chaos.toml").write_text(CONFIG.format(**sizes))
    run, found = EchoRun(folder), Recovery()
    try:
        say(f"{edges} edges, {working} at work, {run.parameters} parameters, {versions} versions")
        began_s = time.monotonic()
        run.begin()
        found.begin_s = until(run.listens, run) - began_s
        for edge in run.names:
            run.start_edge(edge)
        until(lambda: run.version() >= versions, run)
        run.kill_coordinator()
        found.versions = run.version()
        found.read_bytes, found.read_s = read(run.directory)
        say("killed; resuming")
        began_s = time.monotonic()
        run.resume()
        found.listen_s = until(run.listens, run) - began_s
        found.goes_on_s = until(lambda: run.new_updates() >= 1, run) - began_s
        found.whole_s = until(lambda: run.new_updates() >= working, run) - began_s
        run.coordinator.send_signal(signal.SIGINT)
        run.ended(run.coordinator)
        found.faults = len(check_run(run.directory).faults)
        return found
    finally:
        run.close()


def read(directory: Path) -> tuple[int, float]:
    """Read checkpoints and journal from the disk; return bytes and seconds."""
    names = [path for path in directory.rglob("*") if path.is_file() and path.parent != directory]
    for path in names:
        with path.open("rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)  # not from memory
    began_s, size = time.monotonic(), 0
    for path in names:
        with path.open("rb", buffering=0) as file:
            while piece := file.read(READ_BYTES):
                size += len(piece)
    return size, time.monotonic() - began_s


def rows(found: Recovery) -> list[Row]:
    return [
        Row("a new run: from its start until it listens", found.begin_s, "s"),
        Row("versions before the kill", found.versions),
        Row("from the resumption's start until it listens", found.listen_s, "s"),
        Row("until the first new update has arrived", found.goes_on_s, "s", GOAL),
        Row("until as many have arrived as edges work", found.whole_s, "s"),
        Row("files of checkpoint and journal", found.read_bytes / MB, "MB"),
        Row("reading them from the disk", found.read_s, "s"),
        Row(
            "first new update / (start of a new run + reading)",
            found.goes_on_s / (found.begin_s + found.read_s),
            TIMES,
        ),
        Row("updates lost, applied twice or without a fate", found.faults, "", "<= 0"),
    ]


def main() -> None:
    parser = arguments(__doc__)
    numbers = {"edges": 100, "working": 10, "versions": 1000, "hidden": 3300}
    meant = {
        "edges": "edges in the run",
        "working": "edges that have a task at one moment",
        "versions": "versions before the kill",
        "hidden": "units in each of two hidden layers: 3300 make 11.1 M parameters",
    }
    for name, number in numbers.items():
        text = f"{meant[name]} (default: {number})"
        parser.add_argument(f"--{name}", type=int, default=number, metavar="N", help=text)
    chosen, host = parser.parse_args(), host_line()
    if not 1 <= chosen.working <= chosen.edges or min(chosen.versions, chosen.hidden) < 1:
        raise UserError("expected --working from 1 to --edges, --versions and --hidden above 0")
    with tempfile.TemporaryDirectory(prefix="edgefl-bench-") as folder:
        sizes = (chosen.edges, chosen.working, chosen.versions, chosen.hidden)
        table = rows(recovery(*sizes, Path(folder)))
    report("Time to recover from kill -9 of the coordinator", host, table, chosen.json)


if __name__ == "__main__":
    run(main)
