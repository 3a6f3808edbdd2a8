"""One experiment in three places: the virtual clock, this machine's loopback, and several hosts.

The commands are those of a user: ``edgefl run`` and ``edgefl launch``. Their output is in logs.
"""

from __future__ import annotations

import os
import shlex
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson
import psutil
import tomli_w
from emulator_rows import as_child, end
from table import say

from edgefl.config.experiment import Experiment
from edgefl.errors import UserError
from edgefl.loading.file import load
from emulator import Lab
from emulator.lab.lab_state import ENVIRONMENT

ROOT = Path(__file__).resolve().parents[2]
WATCH = Path(__file__).with_name("packet_watch.py")
VIRTUAL, LOOPBACK, HOSTS = PLACES = ("virtual", "loopback", "hosts")
FASTER = 10  # the kernel's links / the emulated links of all edges on a host
SERVER, SWITCH = "coordinator", "switch"
LOG_LINES = 12  # shown after a failed command
LOOPBACK_INTERFACE = "lo"


@dataclass(frozen=True, slots=True)
class Plan:
    """Strategies of one config, with changes of its tables, on ``hosts`` hosts."""

    name: str
    base: Path
    methods: tuple[str, ...]
    changes: Mapping[str, Any] = field(default_factory=dict)
    hosts: int = 4

    def write(self, folder: Path) -> Path:
        """Write the config; it can be run by hand."""
        found = {
            entry.name: entry.model_dump(exclude_none=True) for entry in load(self.base).strategies
        }
        path = folder / f"{self.name}.toml"
        config = {
            "extends": str(self.base),
            "name": self.name,
            **self.changes,
            "strategies": [found[name] for name in self.methods],
        }
        path.write_text(tomli_w.dumps(config), encoding="utf-8")
        return path


@dataclass(frozen=True, slots=True)
class Cable:
    """Where the edges of a run connect: the coordinator's port, and the interface that has it."""

    interface: str
    port: int


@dataclass(frozen=True, slots=True)
class Study:
    """The folder of all runs, and whether hosts are namespaces of a lab (or this machine)."""

    folder: Path
    in_lab: bool

    def runs(self, plan: Plan, place: str) -> Path:
        return self.folder / plan.name / place

    def packets(self, plan: Plan, place: str) -> Path:
        return self.folder / plan.name / f"{place}.packets"

    def do(self, plan: Plan, watched: bool) -> None:
        """Run the experiment in all places; ``watched``: record the packets of both real ones.

        ``edgefl run`` chooses the speed that this machine can keep; the hosts get the same.
        """
        (self.folder / plan.name).mkdir(parents=True, exist_ok=True)
        config = plan.write(self.folder)
        experiment = load(config)
        self._edgefl(plan, VIRTUAL, ["run", config, "--clock", "virtual", "--workers", "2"])
        cable = Cable(LOOPBACK_INTERFACE, free_port())
        with self._watching(plan, LOOPBACK, cable if watched else None):
            self._edgefl(plan, LOOPBACK, ["run", config, f"network.port={cable.port}"])
        speed = summary(self.runs(plan, LOOPBACK) / plan.methods[0])["speed"]
        self._on_hosts(plan, experiment, [config, f"speed={speed}"], watched)

    def _on_hosts(
        self, plan: Plan, experiment: Experiment, words: Sequence[object], watched: bool
    ) -> None:
        with tempfile.TemporaryDirectory(prefix="bench-machines-") as scratch:
            port, inventory = free_port(), Path(scratch) / "machines.toml"
            names = experiment.edges.ids()
            if not self.in_lab:
                inventory.write_text(inventory_of(plan, names, "local", port, Path(scratch)))
                with self._watching(
                    plan, HOSTS, Cable(LOOPBACK_INTERFACE, port) if watched else None
                ):
                    self._edgefl(plan, HOSTS, ["launch", inventory, *words])
                return
            inventory.write_text(inventory_of(plan, names, "netns", port, Path(scratch)))
            with Lab(topology_of(plan, experiment), name="machines") as lab:
                cable = Cable(interface_of(lab.host(SERVER).address), port)
                with self._watching(plan, HOSTS, cable if watched else None):
                    self._edgefl(
                        plan, HOSTS, ["launch", inventory, *words], {ENVIRONMENT: lab.name}
                    )

    def _edgefl(
        self, plan: Plan, place: str, words: Sequence[object], env: Mapping[str, str] | None = None
    ) -> None:
        """Run a command to its end. UserError with its last lines if it fails."""
        line = [*map(str, words), f"name={place}", "--overwrite"]
        line += ["--out", str(self.folder / plan.name)]
        log = self.folder / plan.name / f"{place}.log"
        say(f"edgefl {shlex.join(line)}   (output: {log})")
        with log.open("w", encoding="utf-8") as file:
            child = subprocess.Popen(
                [sys.executable, "-m", "edgefl.cli", *line],
                env=os.environ | {"PYTHONPATH": str(ROOT), **(env or {})},
                stdout=file,
                stderr=subprocess.STDOUT,
                preexec_fn=as_child(),
            )
            try:
                status = child.wait()
            except KeyboardInterrupt:
                child.wait()
                raise
        if status:
            last = log.read_text(encoding="utf-8", errors="replace").splitlines()[-LOG_LINES:]
            raise UserError(f"{plan.name}, {place}: exit status {status}:\n" + "\n".join(last))

    @contextmanager
    def _watching(self, plan: Plan, place: str, cable: Cable | None) -> Iterator[None]:
        """Record the packets of ``cable`` meanwhile."""
        if cable is None:
            yield
            return
        words = [cable.interface, str(cable.port), str(self.packets(plan, place))]
        watcher = subprocess.Popen(
            [sys.executable, str(WATCH), *words],
            stdout=subprocess.PIPE,
            text=True,
            preexec_fn=as_child(),
        )
        try:
            assert watcher.stdout is not None
            if not watcher.stdout.readline():
                raise UserError(f"{WATCH.name}: cannot record the packets of {cable.interface}")
            yield
        finally:
            end(watcher)


def link_mbit_s(plan: Plan, experiment: Experiment) -> float:
    """The rate of a host's link: FASTER than the emulated links of its edges together."""
    links, medium = experiment.links, experiment.medium
    rates = (links.up_mbit_s, links.down_mbit_s, medium.rate_mbit_s)
    per_host = -(-len(experiment.edges.ids()) // plan.hosts)
    return FASTER * per_host * max(rate for rate in rates if rate is not None)


def topology_of(plan: Plan, experiment: Experiment) -> dict[str, Any]:
    """Hosts on one switch, with this machine as the coordinator."""
    hosts = f"host-[1-{plan.hosts}]"
    rate = f"{round(link_mbit_s(plan, experiment) * 1e6)}bit"
    return {
        "hosts": [{"name": SERVER, "here": True}, {"name": hosts}],
        "bridges": [{"name": SWITCH}],
        "links": [
            {"from": hosts, "to": SWITCH, "rate": rate},
            {"from": SERVER, "to": SWITCH},
        ],
    }


def inventory_of(plan: Plan, edges: Sequence[str], via: str, port: int, folder: Path) -> str:
    """An inventory that distributes ``edges`` over the hosts, in their order and with their ids."""
    per_host = -(-len(edges) // plan.hosts)
    groups = [edges[first : first + per_host] for first in range(0, len(edges), per_host)]
    return tomli_w.dumps(
        {
            "coordinator": {"listen_port": port},
            "defaults": {
                "via": via,
                "python": sys.executable,
                "folder": str(folder / "work"),
                "env": {"PYTHONPATH": str(ROOT)},
            },
            "hosts": [
                {"host": f"host-{number}", "names": list(names)}
                for number, names in enumerate(groups, 1)
            ],
        }
    )


def interface_of(address: str) -> str:
    """The interface of this machine that has an address."""
    for name, found in psutil.net_if_addrs().items():
        if any(each.address == address for each in found):
            return name
    raise UserError(f"no interface has the address {address}")


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def summary(run: Path) -> dict[str, Any]:
    """summary.json of a run. UserError if it is not there."""
    try:
        found: dict[str, Any] = orjson.loads((run / "summary.json").read_bytes())
    except OSError as error:
        raise UserError(f"{run}: no finished run ({error.strerror})") from error
    return found
