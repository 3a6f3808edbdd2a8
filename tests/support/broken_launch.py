"""A launch on the hosts of a rig (``ssh_hosts``), some of which break: what it says and leaves."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import psutil
from paths import ROOT
from ssh_hosts import Rig, SSHHost

from edgefl.results.tail import read_events

CONFIG = """
name = "broken"
seed = 3
model = {{name = "mlp", hidden = [16]}}
training = {{epochs = 1, batch_size = 16}}
devices = {{samples_per_s = {samples_per_s}, slowest_ratio = 2.0}}
links = {{up_mbit_s = 0.5, down_mbit_s = 1.0, latency_ms = 5.0}}
stop = {{versions = 1000000, emulated_s = 100000}}
strategies = [{{strategy = "{strategy}", {at_once} = {edges}}}]
"""
AT_ONCE = {"fedasync": "concurrency", "fedavg": "clients_per_round"}
LONG_S = 120.0  # far more than needed, because a busy machine may be slow
LOOK_S = 0.05
KEPT = "shards"  # a host keeps its shares of the data for the next run
Found = TypeVar("Found")


def eventually(found: Callable[[], Found], what: str) -> Found:
    """Wait until ``found`` returns a true value, and return it."""
    until_s = time.monotonic() + LONG_S
    while not (value := found()):
        if time.monotonic() > until_s:
            raise AssertionError(f"waited {LONG_S:g} s: {what}")
        time.sleep(LOOK_S)
    return value


@dataclass(eq=False)
class BrokenLaunch:
    """One launch. All files of this machine are in ``folder``; ``edges``: how many on each host.

    ``by_host``: further keys of the inventory by the index of a host. ``coordinator``: its section.
    """

    rig: Rig
    folder: Path
    edges: int
    strategy: str = "fedasync"
    by_host: Mapping[int, Mapping[str, object]] = field(default_factory=dict)
    coordinator: Mapping[str, object] | None = None
    process: subprocess.Popen[str] = field(init=False)
    tree: list[psutil.Process] = field(default_factory=list)  # what the launch has started here

    def __post_init__(self) -> None:
        for name in ("here", "there"):
            (self.folder / name).mkdir(parents=True)
        everyone = self.edges * len(self.rig.hosts)
        config = CONFIG.format(
            samples_per_s=1440 / everyone,  # a task takes one to two seconds
            strategy=self.strategy,
            at_once=AT_ONCE[self.strategy],
            edges=everyone,
        )
        (self.folder / "broken.toml").write_text(config)
        env = {"PYTHONPATH": str(ROOT), "TMPDIR": str(self.folder / "there")}
        own = {index: {"python": sys.executable} for index in range(len(self.rig.hosts))}
        own = {index: keys | dict(self.by_host.get(index, {})) for index, keys in own.items()}
        text = self.rig.inventory(self.coordinator, edges=self.edges, env=env, by_host=own)
        (self.folder / "lab.toml").write_text(text)

    def start(self, *words: str) -> None:
        """Start `edgefl launch`, as in a terminal of its own."""
        self.process = subprocess.Popen(
            [sys.executable, "-m", "edgefl.cli", "launch", "lab.toml", "broken.toml", *words],
            cwd=self.folder,
            env=os.environ
            | {
                "PYTHONPATH": str(ROOT),
                "COLUMNS": "200",
                "TMPDIR": str(self.folder / "here"),
            },
            stdin=subprocess.DEVNULL,
            stdout=(self.folder / "out.txt").open("wb"),
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    @property
    def out(self) -> str:
        """What it has printed so far, its lines joined."""
        text = (self.folder / "out.txt").read_text(errors="replace")
        return " ".join(text.split())

    # ------------------------------------------------------------------ the record
    def ids(self, host: SSHHost) -> set[str]:
        """The edges of a host."""
        name = host.address.replace(".", "-")
        return {name} if self.edges == 1 else {f"{name}-{at + 1}" for at in range(self.edges)}

    def others(self, *broken: SSHHost) -> set[str]:
        """The edges of the other hosts."""
        return {edge for host in self.rig.hosts if host not in broken for edge in self.ids(host)}

    def rows(self, since: int = 0, **fields: Any) -> list[dict[str, Any]]:
        """The rows of events.jsonl from number ``since`` on that have these fields."""
        path = self.folder / "runs" / "broken" / self.strategy / "events.jsonl"
        found = read_events(path)[since:]
        return [row for row in found if all(row.get(key) == value for key, value in fields.items())]

    def quiet(self, edges: set[str], since: int = 0) -> set[str]:
        """Those of ``edges`` that have sent no update since row ``since``."""
        return edges - {row["edge"] for row in self.rows(since, event="update_arrived")}

    def lost(self, edges: set[str]) -> list[str]:
        """Those of ``edges`` that were lost, once for each time."""
        return [row["edge"] for row in self.rows(event="edge_lost") if row["edge"] in edges]

    def version(self) -> int:
        return max((row["version"] for row in self.rows() if "version" in row), default=0)

    def runs(self, edges: set[str], since: int = 0) -> None:
        """Wait until each of these edges has sent an update since row ``since``."""
        eventually(lambda: not self.quiet(edges, since), f"no update of {self.quiet(edges, since)}")
        if not self.tree:
            self.tree = psutil.Process(self.process.pid).children(recursive=True)

    # ------------------------------------------------------------------ the end
    def end(self, *, presses: int = 1, number: int) -> int:
        """Send it a signal, once or more often, and return its exit status."""
        for _ in range(presses):
            self.process.send_signal(number)
            time.sleep(0.1)
        return self.process.wait(LONG_S)

    def left(self) -> list[str]:
        """What is left: processes and files of the run, here and on the hosts."""
        found = [f"process {each.pid} here" for each in self.tree if each.is_running()]
        for host in self.rig.hosts:
            found += [f"process {pid} on {host.name}" for pid in host.processes("edgefl")]
            work = home_of(host) / ".edgefl"
            found += [str(path) for path in work.rglob("*") if is_left(path.relative_to(work))]
        for name in ("here", "there"):
            found += [str(path) for path in (self.folder / name).iterdir()]
        return found

    def left_in_the_end(self) -> list[str]:
        """Wait until nothing is left; return what is still left after a long wait."""
        until_s = time.monotonic() + LONG_S
        while (found := self.left()) and time.monotonic() < until_s:
            time.sleep(LOOK_S)
        return found


def home_of(host: SSHHost) -> Path:
    """Its home, also if that is a disk of its own, which only its processes see."""
    assert host.server is not None
    mounted = Path(f"/proc/{host.server.pid}/root{host.home}")
    return host.home if host.disk_bytes is None else mounted


def is_left(path: Path) -> bool:
    """Whether a path below a host's work folder should not be there after a run."""
    return path.parts[0] != KEPT and path.parts != ("launched",)


def agent(host: SSHHost) -> int:
    """The process id of the agent of a host; edges are its children."""
    every = host.processes("edgefl.launch.agent")
    (found,) = [pid for pid in every if psutil.Process(pid).ppid() not in every]
    return found


def foreign_program(path: Path) -> Path:
    """Write a program for a processor that this machine is not: its header says IBM S/390."""
    head = bytearray(Path(sys.executable).resolve().read_bytes()[:4096])
    head[18:20] = (22).to_bytes(2, sys.byteorder)
    path.write_bytes(head)
    path.chmod(0o755)
    return path


def traces_of_rig(rig: Rig) -> Sequence[str]:
    """Namespaces, interfaces, files and locks of a rig that was removed."""
    places = {
        "/run/netns": f"{rig.bridge}-*",
        "/sys/class/net": f"{rig.bridge}*",
        str(rig.folder.parent): rig.bridge,
        "/run": f"{rig.bridge}.lock",
    }
    return [str(path) for place, name in places.items() for path in Path(place).glob(name)]
