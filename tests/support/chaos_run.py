"""A run of real processes that a test breaks: `edgefl coordinator`, and edges of `edgefl edge`.

Each process can be killed, frozen and started again; the coordinator is resumed. The edges write
down what they know as acknowledged, and ``proof`` compares that with the run's record.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import orjson
import psutil
from exactly_once import ExactlyOnce, check_run
from warm_python import WATCHED
from watched_edgefl import NONE

from edgefl.results.read import read_events

PATIENCE_S = 90.0  # far more than needed, because a busy machine may be slow
LOOK_S = 0.05
CONFIG = """
name = "chaos"
seed = 5
model = {{name = "mlp", hidden = [16]}}
edges = {{count = {edges}}}
training = {{epochs = 1, batch_size = 32}}
devices = {{samples_per_s = 300.0, slowest_ratio = 2.0}}
links = {{up_mbit_s = 1.0, down_mbit_s = 2.0, latency_ms = 5.0}}
network = {{heartbeat_s = 0.2, liveness_s = 1.0, grace_s = 0.5, join_timeout_s = 60.0}}
evaluation = {{every_versions = 0}}
stop = {{versions = {versions}}}
strategies = [{{strategy = "fedasync", concurrency = {edges}}}]
"""


class ChaosRun:
    """A coordinator and its edges. ``folder``: their working directory; it holds chaos.toml.

    ``host``: where the coordinator listens. ``places``: the network namespaces of the coordinator
    and of the edges. ``keys``: a folder of CURVE keys for all. ``state``: edges keep their updates
    on disk. ``to``: where edges connect, if not to the coordinator itself: HOST:PORT by edge.
    """

    def __init__(
        self,
        folder: Path,
        edges: Sequence[str],
        *,
        host: str = "127.0.0.1",
        places: tuple[str, str] = (NONE, NONE),
        keys: Path | None = None,
        words: Sequence[str] = (),
    ) -> None:
        self.folder, self.names, self.host, self.places = folder, list(edges), host, places
        self.secure = () if keys is None else ("--keys", str(keys))
        self.words, self.state = tuple(words), False
        self.port = free_port()
        self.to: dict[str, str] = {}
        self.processes: list[subprocess.Popen[Any]] = []
        self.edges: dict[str, subprocess.Popen[Any]] = {}
        self.coordinator: subprocess.Popen[Any]
        self.log = folder / "coordinator.log"

    @property
    def directory(self) -> Path:
        """The directory of the run's only strategy."""
        (found,) = (self.folder / "runs").glob("*/*/config.toml")
        return found.parent

    # ------------------------------------------------------------------ processes
    def start(self) -> None:
        """Start the coordinator and all edges, and wait for the first update."""
        self.begin()
        self.wait_until(lambda: [*(self.folder / "runs").glob("*/*/config.toml")], "it listens")
        for edge in self.names:
            self.start_edge(edge)
        self.wait_for_version(1)

    def begin(self) -> None:
        """Start the coordinator."""
        address = (f"network.host={self.host}", f"network.port={self.port}")
        self._coordinate("coordinator", "chaos.toml", *address, *self.words)

    def resume(self) -> None:
        """Resume the run after its coordinator has ended."""
        self._coordinate("coordinator", "--resume", str(self.directory))

    def start_edge(self, edge: str) -> None:
        """Start this edge, in a new process."""
        to = self.to.get(edge, f"{self.host}:{self.port}")
        words = ("edge", "--connect", f"tcp://{to}", "--id", edge, *self.secure)
        if self.state:
            words = (*words, "--state", str(self.folder / "state" / edge))
        place, witness = self.places[1], str(self.folder / f"{edge}.witness")
        self.edges[edge] = self._start(self.folder / "edges.log", place, witness, *words)

    def _coordinate(self, *words: str) -> None:
        words = (*words, "--no-table", *self.secure)
        self.coordinator = self._start(self.log, self.places[0], NONE, *words)

    def _start(self, log: Path, *words: str) -> subprocess.Popen[Any]:
        with log.open("ab") as output:
            process = subprocess.Popen(
                [sys.executable, str(WATCHED), *words],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=self.folder,
                start_new_session=True,
            )
        self.processes.append(process)
        return process

    def signal_edge(self, edge: str, number: int) -> None:
        self.edges[edge].send_signal(number)

    def kill_edge(self, edge: str) -> None:
        """Kill this edge's process, and start it again."""
        self.edges[edge].kill()
        self.edges[edge].wait()
        self.start_edge(edge)

    def restart_edges(self) -> None:
        """Wait until all edges have ended by themselves, and start them again."""
        for edge in self.names:
            self.ended(self.edges[edge])
            self.start_edge(edge)

    def kill_coordinator(self) -> None:
        """Kill the process that writes the record; the launcher then ends by itself."""
        os.kill(self.writer(), signal.SIGKILL)
        self.ended(self.coordinator)

    def kill_launcher(self) -> None:
        """Kill the command itself; the processes that it started end then."""
        family = psutil.Process(self.coordinator.pid).children(recursive=True)
        self.coordinator.kill()
        self.coordinator.wait()
        psutil.wait_procs(family, timeout=PATIENCE_S)

    def writer(self) -> int:
        """The pid of the process that has events.jsonl open."""
        path = str(self.directory / "events.jsonl")
        for process in psutil.Process(self.coordinator.pid).children(recursive=True):
            with suppress(psutil.Error):
                if path in (each.path for each in process.open_files()):
                    return process.pid
        raise AssertionError(f"no process writes {path}: {self.said}")

    def ended(self, process: subprocess.Popen[Any]) -> int:
        """Wait until this process has ended; its exit status."""
        try:
            return process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"it has not ended in {PATIENCE_S:g} s: {self.said}") from None

    def close(self) -> None:
        """Kill all processes of this run."""
        for process in self.processes:
            with suppress(psutil.Error):
                for child in psutil.Process(process.pid).children(recursive=True):
                    child.kill()
            process.kill()
            process.wait()

    # ------------------------------------------------------------------ what happens
    @property
    def said(self) -> str:
        """What the commands have printed so far."""
        logs = (self.log, self.folder / "edges.log")
        return "\n".join(each.read_text(errors="replace") for each in logs if each.exists())

    def rows(self, **fields: Any) -> list[dict[str, Any]]:
        """The rows of events.jsonl that have these fields."""
        return [
            row
            for row in read_events(self.directory / "events.jsonl")
            if all(row.get(key) == value for key, value in fields.items())
        ]

    def version(self) -> int:
        """The latest version in the record; 0 before there is a record."""
        if not any((self.folder / "runs").glob("*/*/config.toml")):
            return 0
        text = (self.directory / "events.jsonl").read_bytes()
        found = re.findall(rb'"do":"publish"[^}]*"version":(\d+)', text)
        return int(found[-1]) if found else 0

    def wait_for_version(self, version: int) -> None:
        self.wait_until(lambda: self.version() >= version, f"version {version}")

    def wait_for_row(self, **fields: Any) -> None:
        self.wait_until(lambda: self.rows(**fields), f"a row with {fields}")

    def wait_until(self, found: Any, what: str) -> Any:
        """Wait until ``found`` returns a true value, and return it."""
        until_s = time.monotonic() + PATIENCE_S
        while not (value := found()):
            assert time.monotonic() < until_s, f"waited {PATIENCE_S:g} s for {what}: {self.said}"
            time.sleep(LOOK_S)
        return value

    def to_the_end(self) -> dict[str, Any]:
        """Wait until the run has ended by itself, and all edges with it; its summary."""
        assert self.ended(self.coordinator) == 0, self.said
        return orjson.loads((self.directory / "summary.json").read_bytes())

    # ------------------------------------------------------------------ proof
    def witnessed(self, key: str) -> list[tuple[str, dict[str, Any]]]:
        """The lines with this key that edges wrote: (edge, line), in order for each edge."""
        found = []
        for edge in self.names:
            path = self.folder / f"{edge}.witness"
            for line in path.read_bytes().splitlines() if path.exists() else ():
                row = orjson.loads(line)
                if key in row:
                    found.append((edge, row))
        return found

    def proof(self) -> ExactlyOnce:
        """Compare the record with what the edges know as acknowledged."""
        known = [(edge, row["acknowledged"]) for edge, row in self.witnessed("acknowledged")]
        return check_run(self.directory, known)


class Cable:
    """A TCP proxy between some edges and the coordinator, which can be broken."""

    def __init__(self, run: ChaosRun, edges: Sequence[str]) -> None:
        self.run = run
        self.port = free_port()
        run.to |= dict.fromkeys(edges, f"127.0.0.1:{self.port}")
        self.restore()

    def restore(self) -> None:
        """Connect the two sides again after ``cut``."""
        listen, to = f"127.0.0.1:{self.port}", f"127.0.0.1:{self.run.port}"
        self.proxy = subprocess.Popen(
            [sys.executable, "-m", "emulator.cli", "proxy", "--listen", listen, "--to", to],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )
        self.run.processes.append(self.proxy)

    def cut(self) -> None:
        """Break all connections; new ones are refused."""
        self.proxy.kill()
        self.proxy.wait()

    def silence(self) -> None:
        """Carry nothing from now on; all connections stay open."""
        self.proxy.send_signal(signal.SIGSTOP)

    def end_silence(self) -> None:
        self.proxy.send_signal(signal.SIGCONT)


def free_port() -> int:
    """A port that no process of this machine listens on now."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        return free.getsockname()[1]


def write_config(folder: Path, edges: int, versions: int, text: str = CONFIG) -> None:
    """Write chaos.toml."""
    (folder / "chaos.toml").write_text(text.format(edges=edges, versions=versions))
