"""Flower's own system on this machine: SuperLink, SuperNodes, and the emulated links between them.

Only what a SuperNode says to the SuperLink (the Fleet API) crosses a link. The app's processes talk
to the SuperLink or to their SuperNode directly, as they do on one machine.
"""

from __future__ import annotations

import ctypes
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from edgefl.errors import UserError

LOCAL = "127.0.0.1"
BIN = Path(sys.executable).parent
SUPERLINK = BIN / "flower-superlink"
PATIENCE_S = 120.0  # for each step of the start
PAUSE_S = 0.1
GRACE_S = 5.0
LARGEST_STEP = 3.0  # x hidden units
SUBREAPER = 36  # of Linux's prctl: processes whose parent has ended become our children
# Flower waits 30 s for the first sign of an app's process. Then it takes back the token and starts
# another process; the first one is refused with this line (status 401) and ends.
REFUSED = "[/v1/runtime/pull-task-input][ApiError:1008]"


@dataclass(frozen=True, slots=True)
class Setting:
    """What both systems run: FedAvg on links of ``rate_mbit_s`` in each direction."""

    clients: int
    rounds: int
    hidden: int
    rate_mbit_s: float
    latency_ms: float
    seed: int

    def run_config(self) -> dict[str, float]:
        """Values for the app's keys. A wider network needs smaller steps."""
        return {
            "learning-rate": min(0.1, LARGEST_STEP / self.hidden),
            "num-server-rounds": self.rounds,
            "num-clients": self.clients,
            "hidden": self.hidden,
            "seed": self.seed,
        }


def run_flower(app: Path, setting: Setting, folder: Path, wait_s: float) -> None:
    """Run the app; leave report.json, report.npz, proxy.json, busy.csv and logs in ``folder``.

    UserError if a program of Flower ends, or if the run takes longer than ``wait_s``.
    """
    home = folder / "home"
    home.mkdir(parents=True)
    env = os.environ | {
        "PATH": f"{BIN}:{os.environ['PATH']}",
        "FLWR_HOME": str(home),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        # a process per client, so one thread each
        "OMP_NUM_THREADS": "1",
    }
    ctypes.CDLL(None).prctl(SUBREAPER, 1, 0, 0, 0)
    with ExitStack() as stack:
        programs = Programs(folder, env)
        stack.callback(programs.end)
        port, *ports = free_ports(1 + setting.clients)
        _superlink(programs, port)
        links = _links(programs, setting, port)
        _supernodes(programs, setting, links, ports)
        _submit(programs, app, setting, port, home)
        report = folder / "report.json"
        programs.until(report.exists, "the run", wait_s)


class Programs:
    """The programs that have been started; each has a log in ``folder``."""

    def __init__(self, folder: Path, env: dict[str, str]) -> None:
        self.folder, self._env = folder, env
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str, words: list[str]) -> subprocess.Popen[bytes]:
        with (self.folder / f"{name}.log").open("wb") as log:
            self._running[name] = subprocess.Popen(
                words, stdout=log, stderr=subprocess.STDOUT, env=self._env, cwd=self.folder
            )
        return self._running[name]

    def said(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def until(self, done: Callable[[], bool], what: str, wait_s: float = PATIENCE_S) -> None:
        """Wait; UserError if it takes too long, or if a program has ended."""
        limit_s = time.monotonic() + wait_s
        while not done():
            for name, process in self._running.items():
                if process.poll() is not None:
                    raise UserError(f"{name} has ended: see {self.folder / name}.log")
            if time.monotonic() > limit_s:
                slow = slow_starts(self.folder)
                raise UserError(
                    f"{what} takes more than {wait_s:g} s ({slow} slow starts): see"
                    f" {self.folder}/*.log; an idle machine or fewer --clients may help"
                )
            time.sleep(PAUSE_S)

    def once(self, name: str, words: list[str]) -> None:
        """Run a program to its end; UserError if it fails."""
        process = self.start(name, words)
        if process.wait(PATIENCE_S):
            raise UserError(f"{name} failed: see {self.folder / name}.log")
        del self._running[name]

    def end(self) -> None:
        """End all, and what they have left: their own processes are in other sessions."""
        for process in self._running.values():
            process.send_signal(signal.SIGINT)
        limit_s = time.monotonic() + GRACE_S
        for process in self._running.values():
            with suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, limit_s - time.monotonic()))
        while family := psutil.Process().children(recursive=True):
            for child in family:
                with suppress(psutil.NoSuchProcess):
                    child.kill()
            psutil.wait_procs(family, GRACE_S)


def slow_starts(folder: Path) -> int:
    """How many processes of the app took more than 30 s to start, so that others took over."""
    return sum(path.read_text(errors="replace").count(REFUSED) for path in folder.glob("*.log"))


def free_ports(count: int) -> list[int]:
    """Ports that nothing listens on now."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind((LOCAL, 0))
        return [each.getsockname()[1] for each in sockets]


def _superlink(programs: Programs, port: int) -> None:
    words = ["--insecure", "--disable-runtime-dependency-installation", "--host", LOCAL]
    programs.start("superlink", [str(SUPERLINK), *words, "--port", str(port)])
    programs.until(lambda: _listens(port), "the start of flower-superlink")


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((LOCAL, port)) == 0


def _links(programs: Programs, setting: Setting, port: int) -> list[str]:
    """Start the proxy; return the address of each client's link."""
    rate = ["--up", f"{setting.rate_mbit_s:g}mbit", "--down", f"{setting.rate_mbit_s:g}mbit"]
    late = ["--latency", f"{setting.latency_ms:g}ms"]
    maps = [word for _ in range(setting.clients) for word in ("--map", f"{LOCAL}:0={LOCAL}:{port}")]
    command = [sys.executable, "-c", "from emulator.cli import main; main()", "proxy"]
    files = ["--log", "proxy.json", "--busy", "busy.csv"]
    programs.start("proxy", [*command, *maps, *rate, *late, *files])

    def addresses() -> list[str]:
        return re.findall(r"^listening on ([^ ,]+), to", programs.said("proxy"), re.MULTILINE)

    programs.until(lambda: len(addresses()) == setting.clients, "the start of the proxy")
    return addresses()


def _supernodes(programs: Programs, setting: Setting, links: list[str], ports: list[int]) -> None:
    """Start the SuperNodes one after the other: together, their start takes the whole machine."""
    for number, (link, port) in enumerate(zip(links, ports)):
        node = f"partition-id={number} num-partitions={setting.clients}"
        words = ["--insecure", "--superlink", link, "--port", str(port), "--node-config", node]
        programs.start(f"supernode{number}", [str(BIN / "flower-supernode"), *words])
        _connected(programs, number + 1)


def _connected(programs: Programs, count: int) -> None:
    programs.until(
        lambda: programs.said("superlink").count("Activated node_id=") >= count,
        f"the start of SuperNode {count - 1}",
    )


def _submit(programs: Programs, app: Path, setting: Setting, port: int, home: Path) -> None:
    (home / "config.toml").write_text(
        '[superlink]\ndefault = "here"\n\n[superlink.here]\n'
        f'address = "{LOCAL}:{port}"\ninsecure = true\n'
    )
    said = setting.run_config() | {"report": f'"{programs.folder / "report.json"}"'}
    words = " ".join(f"{key}={value}" for key, value in said.items())
    programs.once("run", [str(BIN / "flwr"), "run", str(app), "here", "--run-config", words])
