"""What a launch does when one of its hosts breaks: 8 hosts with 4 edges each, and real ssh servers.

    python scripts/benchmarks/broken_hosts.py [--hosts 8] [--edges 4] [--fault NAME] [--json FILE]

Each host is a network namespace. For each fault one `edgefl launch` runs, and one host breaks.
Judged are what the command says, whether edges of other hosts are lost or stop sending updates,
whether versions go on, its exit status, and what is left of processes and files. This needs root,
`ip` and Debian's openssh-server.
"""

from __future__ import annotations

import os
import re
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import orjson
from table import Row, arguments, host_line, report, run, say

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "support"))
from broken_launch import BrokenLaunch, agent, eventually, foreign_program, traces_of_rig
from ssh_hosts import Rig, SSHHost, refusal, ssh_hosts

from edgefl.errors import UserError

BROKEN = 1  # index of the host that breaks
TOO_SMALL_BYTES = 2 << 12  # a disk for two small files
INTERRUPTED, KILLED = 130, -signal.SIGKILL
PARTIAL = ("--partial", "network.join_timeout_s=10")


@dataclass(slots=True)
class Trial:
    """One launch and its host that breaks. ``since``, ``version``: rows and version until then.

    ``left``, ``traces``: what is left of the run, and of the namespaces.
    """

    launch: BrokenLaunch
    host: SSHHost
    since: int = 0
    version: int = 0
    status: int = 0
    ends_s: float = 0.0
    clean_s: float = 0.0
    left: Sequence[str] = ()
    traces: Sequence[str] = ()

    @property
    def own(self) -> set[str]:
        return self.launch.ids(self.host)

    @property
    def others(self) -> set[str]:
        return self.launch.others(self.host)

    def go_on(self, edges: set[str]) -> None:
        """Wait until each of these edges has sent an update from now on."""
        self.launch.runs(edges, len(self.launch.rows()))

    def loses(self) -> None:
        """Wait until all edges of the host that broke are lost."""
        eventually(lambda: set(self.launch.lost(self.own)) == self.own, "its edges are not lost")

    def says(self, text: str) -> None:
        eventually(lambda: re.search(text, self.launch.out), f"it does not say {text!r}")

    @property
    def fidelity(self) -> dict[str, Any]:
        directory = self.launch.folder / "runs" / "broken" / self.launch.strategy
        path = directory / "summary.json"
        return orjson.loads(path.read_bytes())["fidelity"] if path.exists() else {}


def cut(seconds: float, trial: Trial) -> None:
    """Pull the cable out, and put it back in."""
    began_s = time.monotonic()
    trial.host.cut()
    trial.go_on(trial.others)
    time.sleep(max(began_s + seconds - time.monotonic(), 0.0))
    trial.host.restore()
    trial.go_on(trial.own)


def cut_for_good(trial: Trial) -> None:
    trial.host.cut()
    trial.loses()
    trial.go_on(trial.others)


def stop_server(connections: bool, trial: Trial) -> None:
    """Kill the ssh server; its edges go on. Then start it again."""
    trial.host.stop(connections=connections)
    if connections:
        trial.says("lost the connection")
    trial.go_on(trial.own | trial.others)
    trial.host.start()
    if connections:
        trial.says("reached again;")


def kill_agent(trial: Trial) -> None:
    os.kill(agent(trial.host), signal.SIGKILL)
    trial.says("its agent died")
    trial.loses()
    trial.go_on(trial.others)


def others_run(trial: Trial) -> None:
    """The host takes no part from the start."""
    trial.go_on(trial.others)


def nothing(rig: Rig, host: SSHHost) -> Mapping[str, object]:
    return {}


def refuse_key(rig: Rig, host: SSHHost) -> Mapping[str, object]:
    (host.folder / "authorized_keys").write_text("")
    return {}


def other_processor(rig: Rig, host: SSHHost) -> Mapping[str, object]:
    return {"python": str(foreign_program(rig.folder / "foreign"))}


@dataclass(frozen=True, slots=True)
class Fault:
    """``before`` and ``during`` break the host, before the launch or in the run.

    ``before`` returns keys of its entry in the inventory. ``says``: what the command must say.
    ``signal``, ``presses`` and ``status``: how the run is ended, and its exit status.
    """

    says: str
    during: Callable[[Trial], None]
    before: Callable[[Rig, SSHHost], Mapping[str, object]] = nothing
    words: tuple[str, ...] = ()
    strategy: str = "fedasync"
    disk_bytes: int | None = None
    signal: int = signal.SIGINT
    presses: int = 1
    status: int = INTERRUPTED


AGAIN = r"lost the connection .* trying to reach it again.* reached again; \d+ edges run"
FAULTS = {
    "cut for 5 s": Fault(r"no message from edge \S+ for [\d.]+ s, then it", partial(cut, 5.0)),
    "cut for 30 s": Fault(AGAIN, partial(cut, 30.0)),
    "cut for 30 s, fedavg": Fault(AGAIN, partial(cut, 30.0), strategy="fedavg"),
    "cut for good": Fault("not reached at the end: its edges end by themselves", cut_for_good),
    "sshd killed": Fault("", partial(stop_server, False)),
    "sshd killed with connections": Fault(AGAIN, partial(stop_server, True)),
    "agent killed": Fault("its agent died with exit status 137, and its edges", kill_agent),
    "key refused": Fault("the host refused the key", others_run, refuse_key, PARTIAL),
    "disk full": Fault(
        "No space left on device", others_run, words=PARTIAL, disk_bytes=TOO_SMALL_BYTES
    ),
    "other processor": Fault("no Python .*Exec format error", others_run, other_processor, PARTIAL),
    "launch killed": Fault("", others_run, signal=signal.SIGKILL, status=KILLED),
    "Ctrl-C twice": Fault("", others_run, presses=2),
}


def tried(fault: Fault, hosts: int, edges: int, folder: Path) -> Trial:
    """Launch, break a host, and end the run."""
    disks = {} if fault.disk_bytes is None else {BROKEN: fault.disk_bytes}
    with ssh_hosts(hosts, disk_bytes=disks) as rig:
        host = rig.hosts[BROKEN]
        by_host = {BROKEN: fault.before(rig, host)}
        trial = Trial(BrokenLaunch(rig, folder, edges, fault.strategy, by_host), host)
        launch = trial.launch
        launch.start(*fault.words)
        try:
            launch.runs(trial.others if fault.words else trial.others | trial.own)
            trial.since, trial.version = len(launch.rows()), launch.version()
            fault.during(trial)
            began_s = time.monotonic()
            trial.status = launch.end(presses=fault.presses, number=fault.signal)
            trial.ends_s = time.monotonic() - began_s
            host.restore()
            trial.left = launch.left_in_the_end()
            trial.clean_s = time.monotonic() - began_s
        finally:
            launch.process.kill()
    trial.traces = traces_of_rig(rig)
    return trial


def rows(name: str, fault: Fault, trial: Trial) -> list[Row]:
    launch, fidelity = trial.launch, trial.fidelity
    said = re.search(fault.says, launch.out)
    found = [
        Row(f"{name}: edges of other hosts lost", len(launch.lost(trial.others)), "", "<= 0"),
        Row(
            f"{name}: other edges without an update since",
            len(launch.quiet(trial.others, trial.since)),
            "",
            "<= 0",
        ),
        Row(f"{name}: versions since", launch.version() - trial.version, "", ">= 1"),
        Row(f"{name}: exit status {fault.status}", int(trial.status == fault.status), "", ">= 1"),
        Row(f"{name}: time to its end", trial.ends_s, "s"),
        Row(f"{name}: time until nothing is left", trial.clean_s, "s"),
        Row(f"{name}: processes and files left", len(trial.left), "", "<= 0"),
        Row(f"{name}: namespaces, interfaces and locks left", len(trial.traces), "", "<= 0"),
        Row(
            f"{name}: verdict",
            ", ".join([fidelity.get("verdict", "-"), *fidelity.get("reasons", ())]),
        ),
    ]
    if fault.says:
        found.insert(0, Row(f"{name}: the command says it", int(said is not None), "", ">= 1"))
        found.insert(1, Row(f"{name}: words", said.group() if said else "-"))
    return found


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--hosts", type=int, default=8, metavar="N", help="at least 2 (default: 8)")
    parser.add_argument("--edges", type=int, default=4, metavar="N", help="per host (default: 4)")
    parser.add_argument(
        "--fault", choices=FAULTS, action="append", help="only this; may be repeated (default: all)"
    )
    chosen, host = parser.parse_args(), host_line()
    if chosen.hosts < 2 or chosen.edges < 1:
        raise UserError("expected --hosts of 2 or more, and --edges of 1 or more")
    if refusal():
        raise UserError(refusal())
    table: list[Row] = []
    for name in chosen.fault or FAULTS:
        say(f"{name}: {chosen.hosts} hosts with {chosen.edges} edges each")
        with tempfile.TemporaryDirectory(prefix="edgefl-bench-") as folder:
            trial = tried(FAULTS[name], chosen.hosts, chosen.edges, Path(folder) / "run")
            table += rows(name, FAULTS[name], trial)
    report("Hosts that break in a launch", host, table, chosen.json)


if __name__ == "__main__":
    run(main)
