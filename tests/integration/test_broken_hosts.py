"""Launches some of whose hosts break: what is said, the edges of the others, and what is left.

Each host is a network namespace with a real ssh server.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import psutil
import pytest
import ssh_hosts
from paths import ROOT
from ssh_hosts import Rig, SSHHost

from edgefl import __version__
from edgefl.results.read import read_events

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
    every = host.processes("edgefl.plugins.launch.agent")
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


pytestmark = [
    pytest.mark.rest,
    pytest.mark.alone,
    pytest.mark.usefixtures("warm_python"),
    pytest.mark.skipif(bool(ssh_hosts.refusal()), reason=ssh_hosts.refusal() or "it can be done"),
]
CUT_S = 5.0
INTERRUPTED = 130


@pytest.fixture(scope="module")
def rig() -> Iterator[Rig]:
    with ssh_hosts.ssh_hosts(4) as made:
        yield made
    assert traces_of_rig(made) == []


@pytest.fixture
def launches(rig: Rig) -> Iterator[list[BrokenLaunch]]:
    """Collects the launches of a test; after it, nothing is left of them."""
    made: list[BrokenLaunch] = []
    try:
        yield made
        for each in made:
            assert each.left_in_the_end() == []
    finally:
        for each in made:
            each.process.kill()
            each.process.wait()
        for host in rig.hosts:
            host.restore()


def says(launch: BrokenLaunch, text: str) -> None:
    eventually(lambda: text in launch.out, f"it does not say {text!r} but {launch.out}")


@pytest.mark.rest
def test_hosts_that_break_one_after_the_other_harm_no_other(
    rig: Rig, tmp_path: Path, launches: list[BrokenLaunch]
) -> None:
    _, cut, served, dead = rig.hosts
    launch = BrokenLaunch(rig, tmp_path, 2)
    launches.append(launch)
    launch.start()
    launch.runs(launch.others())
    began_s = time.monotonic()
    cut.cut()
    eventually(lambda: set(launch.lost(launch.ids(cut))) == launch.ids(cut), "no edge is lost")
    launch.runs(launch.others(cut), len(launch.rows()))
    time.sleep(max(began_s + CUT_S - time.monotonic(), 0.0))
    cut.restore()
    served.stop(connections=True)
    says(launch, f"{served.address}: lost the connection")
    says(launch, f"{served.address}: not reached again: cannot be reached at port 22")
    launch.runs(launch.others(), len(launch.rows()))  # those of both hosts too
    os.kill(agent(dead), signal.SIGKILL)
    says(launch, f"{dead.address}: its agent died with exit status 137, and its edges with it")
    launch.runs(launch.others(dead), len(launch.rows()))
    version = launch.version()
    eventually(lambda: launch.version() > version + 2, "no more versions")
    assert launch.end(number=signal.SIGINT) == INTERRUPTED
    assert f"{served.address}: not reached at the end: its edges end by themselves" in launch.out
    assert re.search(
        r"strained: .*no message from edge \S+ for [\d.]+ s, then it came back", launch.out
    )
    assert launch.lost(launch.others(cut, dead)) == []
    served.start()


@pytest.mark.rest
def test_a_synchronous_strategy_goes_on_without_a_host(
    rig: Rig, tmp_path: Path, launches: list[BrokenLaunch]
) -> None:
    gone = rig.hosts[1]
    launch = BrokenLaunch(rig, tmp_path, 1, "fedavg")
    launches.append(launch)
    launch.start("network.grace_s=2")
    launch.runs(launch.others())
    gone.cut()
    eventually(lambda: launch.lost(launch.ids(gone)), "no edge is lost")
    version = launch.version()
    eventually(lambda: launch.version() >= version + 3, "no more rounds")
    gone.restore()
    launch.runs(launch.ids(gone), len(launch.rows()))
    assert launch.end(number=signal.SIGINT, presses=2) == INTERRUPTED
    assert launch.lost(launch.others(gone)) == []


def test_a_host_that_is_lost_before_the_run_ends_the_launch(
    rig: Rig, tmp_path: Path, launches: list[BrokenLaunch]
) -> None:
    lost = rig.hosts[2]
    launch = BrokenLaunch(rig, tmp_path, 1)
    launches.append(launch)
    launch.start()
    eventually(lambda: lost.processes("edgefl.plugins.launch.agent"), "no agent")
    lost.stop(connections=True)
    assert launch.process.wait(LONG_S) == 2
    assert f"edgefl: {lost.address}: lost the connection" in launch.out
    assert "1 of 4 hosts cannot take part, so nothing was started" in launch.out
    assert not (tmp_path / "runs").exists()
    lost.start()


def test_a_coordinator_whose_host_is_lost_does_not_hold_the_launch(
    rig: Rig, tmp_path: Path, launches: list[BrokenLaunch]
) -> None:
    _, *others, host = rig.hosts
    login = {"user": "root", "identity": str(rig.identity), "known_hosts": str(rig.known_hosts)}
    place = {"via": "ssh", "host": host.address, "python": sys.executable, **login}
    few = Rig(rig.number, rig.folder, others)
    launch = BrokenLaunch(few, tmp_path, 1, coordinator=place)
    launches.append(launch)
    launch.start("stop.emulated_s=15")
    says(launch, "s emulated")  # what the coordinator prints
    host.stop(connections=True)
    says(launch, f"{host.address}: lost the connection")
    assert launch.end(number=signal.SIGINT) == 1
    assert f"{host.address}: not reached, so the coordinator there goes on" in launch.out
    # it ends by itself, and keeps its results
    eventually(lambda: not host.processes("edgefl"), "the coordinator goes on")
    assert list(host.home.glob(".edgefl/results/*/broken/fedasync/summary.json"))
    assert not list(host.home.glob(".edgefl/launched/*"))
    shutil.rmtree(host.home / ".edgefl" / "results")  # the next test looks for what is left
    host.start()


def another_version(folder: Path) -> Path:
    """Copy the packages, as version 0.0.9."""
    for package in ("edgefl", "emulator"):
        shutil.copytree(ROOT / package, folder / package, ignore=shutil.ignore_patterns("*.pyc"))
    code = (ROOT / "edgefl_testbed.py").read_text()
    (folder / "edgefl_testbed.py").write_text(code.replace(__version__, "0.0.9"))
    return folder


def test_each_host_whose_edges_cannot_start_is_one_line(
    rig: Rig, tmp_path: Path, launches: list[BrokenLaunch]
) -> None:
    foreign, other = foreign_program(tmp_path / "foreign"), another_version(tmp_path / "other")
    by_host = {
        0: {"python": "/no/such/python"},
        1: {"python": str(foreign)},
        2: {"python": "/usr/bin/false"},
        3: {"env": {"PYTHONPATH": str(other)}},
    }
    launch = BrokenLaunch(rig, tmp_path / "launch", 1, by_host=by_host)
    launches.append(launch)
    launch.start()
    assert launch.process.wait(LONG_S) == 2
    inventory = "name one with `python` or `venv` in the inventory"
    for host, reason in zip(
        rig.hosts,
        [
            rf"no Python \(.*/no/such/python: not found\): {inventory}",
            rf"no Python \(.*{foreign}: Exec format error\): {inventory}",
            "its agent did not start: edgefl hosts install puts edgefl there",
            f"it has edgefl 0.0.9, expected {__version__}: edgefl hosts install",
        ],
    ):
        assert re.search(f"edgefl: {host.address}: {reason}", launch.out), launch.out
    assert launch.out.endswith("no host can take part; nothing was started")
