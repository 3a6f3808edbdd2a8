"""The machine of an edge: what it is, and what it reports about itself during a run.

psutil tells most of it. The rest comes from files of Linux below ``root`` and, on a Raspberry Pi,
from ``vcgencmd``. What a system does not tell is None or an empty text, never an error. A thread of
its own asks, not that of the socket: asking a system may take long.
"""

from __future__ import annotations

import errno
import hashlib
import os
import platform
import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
import uuid
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from threading import Event, Thread
from typing import Any

import orjson
import psutil

from edgefl.clocks.network_addresses import split_tcp
from edgefl.config.experiment import SHORTEST_REPORT_S
from edgefl.errors import UserError
from edgefl.protocol.messages import (
    FREQUENCY_CAPPED,
    THERMAL_EVENT,
    ZERO_CELSIUS_MK,
    HostFacts,
    HostReport,
)
from emulator.energy.meters import Meter, open_meter
from emulator.errors import BadValue
from emulator.host import gpus, host_facts
from emulator.units import NS_PER_S

METER = "EDGEFL_METER"  # environment variable: rapl, ina219, the address of a plug, or auto
PLUG_PATIENCE_S = 1.0
MOST_ANSWER_BYTES = 65_536
HOST_NAME = "EDGEFL_HOST"  # environment variable: the name of this host in reports
COMMAND_PATIENCE_S = 1.0
NS_PER_US = 1000
MOST_WORD, MOST_NAME = 100, 64  # characters, as in HostFacts
BOOT_ID, NAMESPACE = "proc/sys/kernel/random/boot_id", "proc/self/ns/net"
BOARD = "proc/device-tree/model"
THREADS = "proc/self/task"
FIRMWARE = "sys/devices/platform/soc*/soc*:firmware/get_throttled"
COOLING = "sys/class/thermal/cooling_device*"
COOLS_A_CPU = re.compile(r"(thermal-)?cpufreq|Processor")  # types of cooling devices
THERMAL_EVENTS = "sys/devices/system/cpu/cpu0/thermal_throttle/package_throttle_count"
PI_COMMAND = "vcgencmd"
PI_NOW = 0b1111  # the bits of THROTTLING; 16 bits higher: it has happened since the start
# parts of the names of sensors that measure the processor, the best first
CPU_SENSORS = ("cpu", "coretemp", "k10temp", "zenpower", "soc", "core", "acpitz")
FIRST_REPORT_S = 0.5  # shares of the processor need some time to be measured


def host_meter(root: Path = Path("/")) -> Meter | None:
    """The meter that EDGEFL_METER names; None without it. UserError if this host has none."""
    try:
        return open_meter(os.environ.get(METER, ""), fetch_json, root)
    except BadValue as error:
        raise UserError(f"{METER}: {error}") from error


def fetch_json(address: str) -> Any:
    """The JSON at ``address``. OSError or ValueError if there is none."""
    with urllib.request.urlopen(address, timeout=PLUG_PATIENCE_S) as answer:
        return orjson.loads(answer.read(MOST_ANSWER_BYTES))


def output_of(argv: Sequence[str]) -> str | None:
    """What the command prints; None if it fails."""
    try:
        done = subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=COMMAND_PATIENCE_S,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


class Machine:
    """One machine, as an edge's process sees it.

    ``address``: of the coordinator, tcp://HOST:PORT. The other arguments are what this class asks:
    the root of the file system, the module psutil, and a function that runs a command. Call it
    from one thread: psutil counts by thread.
    """

    def __init__(
        self,
        address: str,
        root: Path = Path("/"),
        system: Any = psutil,
        run: Callable[[Sequence[str]], str | None] = output_of,
    ) -> None:
        self.root, self.system, self.run = root, system, run
        self.interface = ""
        self._address = address
        self._process = system.Process()
        self._throttling = ThrottleReader(root, run)
        self._threads: dict[str, tuple[int, int]] = {}  # thread -> ns that it ran and waited
        self._ran_ns = self._waited_ns = 0
        self._meter: Meter | None = None
        self._meter_known = False  # it is opened by the edge that speaks for its host

    def facts(self) -> HostFacts:
        """What the machine is. This may take long: a name may have to be looked up."""
        self.interface = interface_to(self._address, self.system)
        known = host_facts()
        words = (
            _text(self.root / BOARD).rstrip("\0"),
            known["cpu_model"],
            known["kernel"],
            platform.machine(),
            known["python"],
            version("torch"),
            ", ".join(gpus(self.root)),
        )
        model, cpu, system, architecture, python, of_torch, of_gpus = (
            str(word).strip()[:MOST_WORD] for word in words
        )
        return HostFacts(
            host=(os.environ.get(HOST_NAME) or platform.node())[:MOST_NAME],
            machine=machine_id(self.root),
            model=model,
            cpu=cpu,
            cores=int(str(known["cores"])),
            memory_bytes=int(str(known["memory_bytes"])),
            system=system,
            architecture=architecture,
            python=python,
            torch=of_torch,
            interface=self.interface[:MOST_NAME],
            gpus=of_gpus,
        )

    def report(self, for_host: bool = True) -> HostReport:
        """The state now. ``for_host``: of the host too, not only of this process."""
        sent = self._asked(self._traffic) if for_host else None
        self._count_threads()
        counted = bool(self._threads)
        return HostReport(
            cpu_permille=self._asked(self._cpu_permille) if for_host else None,
            temperature_mk=self._asked(self._temperature_mk) if for_host else None,
            throttled=self._throttling.bits() if for_host else None,
            sent_bytes=None if sent is None else sent[0],
            received_bytes=None if sent is None else sent[1],
            edge_cpu_permille=self._asked(lambda: round(10 * self._process.cpu_percent(None))) or 0,
            rss_bytes=self._asked(lambda: self._process.memory_info().rss) or 0,
            ran_us=self._ran_ns // NS_PER_US if counted else None,
            waited_us=self._waited_ns // NS_PER_US if counted else None,
            energy_uj=self._energy_uj() if for_host else None,
        )

    def _energy_uj(self) -> int | None:
        if not self._meter_known:
            self._meter_known = True
            with suppress(UserError):  # the command that started this edge has checked it
                self._meter = host_meter(self.root)
        return None if self._meter is None else self._meter.read_uj(time.monotonic_ns())

    def _asked(self, question: Callable[[], Any]) -> Any:
        """The answer; None if the system does not tell."""
        try:
            return question()
        except (OSError, AttributeError, NotImplementedError, self.system.Error):
            return None

    def _cpu_permille(self) -> int:
        return min(round(10 * self.system.cpu_percent(None)), 1000)

    def _temperature_mk(self) -> int | None:
        found = self.system.sensors_temperatures()
        for part in CPU_SENSORS:
            values = [
                each.current for name in found if part in name.lower() for each in found[name]
            ]
            if values:
                return round(1000 * max(values)) + ZERO_CELSIUS_MK
        return None

    def _traffic(self) -> tuple[int, int] | None:
        counted = self.system.net_io_counters(pernic=True).get(self.interface)
        return None if counted is None else (counted.bytes_sent, counted.bytes_recv)

    def _count_threads(self) -> None:
        """Add what each thread ran and waited since the last call. The first call only begins."""
        before, self._threads = self._threads, _times(self.root / THREADS)
        for thread, (ran_ns, waited_ns) in self._threads.items() if before else ():
            ran_before_ns, waited_before_ns = before.get(thread, (0, 0))
            self._ran_ns += max(ran_ns - ran_before_ns, 0)
            self._waited_ns += max(waited_ns - waited_before_ns, 0)


def share_memory() -> None:
    """Load what facts and reports need, so that processes forked from this one share it."""
    machine = Machine("tcp://127.0.0.1:0")
    machine.facts()
    machine.report()


class ThrottleReader:
    """Whether the processor is slowed down, from the first source that this machine has.

    A Raspberry Pi's firmware (a file, or vcgencmd), the kernel's cooling devices, or the counter
    of thermal events of a PC.
    """

    def __init__(self, root: Path, run: Callable[[Sequence[str]], str | None]) -> None:
        self.run = run
        self._files = sorted(root.glob(FIRMWARE))[:1]
        self._command = None if self._files else shutil.which(PI_COMMAND)
        self._cooling = [
            device / "cur_state"
            for device in sorted(root.glob(COOLING))
            if COOLS_A_CPU.match(_text(device / "type"))
        ]
        self._events = root / THERMAL_EVENTS
        self._seen = self._firmware() or 0  # what has happened before the run is not news
        self._counted = _number(_text(self._events))

    def bits(self) -> int | None:
        """Bits of THROTTLING, now or since the last call; None if nothing tells."""
        firmware = self._firmware()
        if firmware is not None:
            news = (firmware & ~self._seen) >> 16
            self._seen |= firmware
            return (firmware | news) & PI_NOW
        states = [_number(_text(file)) for file in self._cooling]
        counted = _number(_text(self._events))
        if counted is None and set(states) <= {None}:
            return None
        hot = counted is not None and counted > (self._counted or 0)
        self._counted = counted
        return FREQUENCY_CAPPED * any(state or 0 for state in states) + THERMAL_EVENT * hot

    def _firmware(self) -> int | None:
        """What a Raspberry Pi's firmware says, for example 0x50005."""
        if self._files:
            return _number(_text(self._files[0]), 16)
        if self._command is None:
            return None
        found = _number((self.run([self._command, "get_throttled"]) or "").rpartition("=")[2], 16)
        if found is None:
            self._command = None  # not on a Pi, or this user may not ask: do not try again
        return found


def interface_to(address: str, system: Any = psutil) -> str:
    """The network interface towards ``tcp://HOST:PORT``; "" if it is not known."""
    where = split_tcp(address)
    if where is None:
        return ""
    try:
        for family, kind, _, _, there in socket.getaddrinfo(*where, type=socket.SOCK_DGRAM):
            with socket.socket(family, kind) as probe:
                probe.connect(there)  # of a datagram socket: chooses the way, sends nothing
                own = probe.getsockname()[0]
            for name, addresses in system.net_if_addrs().items():
                if any(each.address.partition("%")[0] == own for each in addresses):
                    return str(name)
    except (OSError, ValueError):
        return ""
    return ""


def machine_id(root: Path = Path("/")) -> str:
    """16 hex digits, equal for all processes of this machine, network namespace and HOST_NAME."""
    parts = [os.environ.get(HOST_NAME, "")]
    parts += [_text(root / BOOT_ID).strip() or f"{platform.node()} {uuid.getnode()}"]
    try:
        parts.append(os.readlink(root / NAMESPACE))
    except OSError:
        parts.append("")
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def _times(threads: Path) -> dict[str, tuple[int, int]]:
    """Of each thread of this process: ns that it ran, and ns that it waited for a core."""
    found = {}
    try:
        for name in os.listdir(threads):
            fields = _text(threads / name / "schedstat").split()
            if len(fields) == 3:
                found[name] = (int(fields[0]), int(fields[1]))
    except OSError:
        return {}
    return found


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _number(text: str, base: int = 10) -> int | None:
    try:
        return int(text.strip(), base)
    except ValueError:
        return None


class HostClaim:
    """One process of a host speaks for it: the first one that claims ``key``.

    When this process ends, the system frees the claim and another process takes over. Only Linux
    has such names, which leave no file; on other systems each process speaks for its host.
    """

    def __init__(self, key: str) -> None:
        self.name = f"\0edgefl-{hashlib.sha256(key.encode()).hexdigest()[:16]}"
        self._socket: socket.socket | None = None

    def take(self) -> bool:
        """Whether this process speaks for the host now."""
        if self._socket is not None or sys.platform != "linux":
            return True
        claim = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            claim.bind(self.name)
        except OSError as error:
            claim.close()
            return error.errno != errno.EADDRINUSE
        self._socket = claim
        return True

    def release(self) -> None:
        if self._socket is not None:
            self._socket.close()
        self._socket = None


class Reporter(Thread):
    """Watches the host on which the edges of a process run, once it has begun.

    ``address``: of the coordinator. ``machine`` makes what it asks.
    """

    def __init__(self, address: str, machine: Callable[[str], Machine] = Machine) -> None:
        super().__init__(name="reporter", daemon=True)
        self.address, self.machine = address, machine
        self.period_s = SHORTEST_REPORT_S
        self.facts: HostFacts | None = None  # once they are known
        self._latest: deque[HostReport] = deque(maxlen=1)
        self._run = ""  # its id
        self._ended = Event()

    def begin(self, run: str, period_ns: int) -> None:
        """Begin to report to the run with this id every ``period_ns``; 0: do not report."""
        if period_ns and not self._run:
            self.period_s = max(period_ns / NS_PER_S, SHORTEST_REPORT_S)
            self._run = run
            self.start()

    def run(self) -> None:
        machine = self.machine(self.address)
        facts = machine.facts()
        claim = HostClaim(f"{self.address} {self._run} {facts.machine}")
        machine.report()  # begins to count
        self.facts = facts
        pause_s = FIRST_REPORT_S
        while not self._ended.wait(pause_s):
            pause_s = self.period_s
            self._latest.append(machine.report(claim.take()))
        claim.release()

    def take(self) -> HostReport | None:
        """The latest report, once: one edge of the process sends it."""
        return self._latest.popleft() if self._latest else None

    def end(self) -> None:
        self._ended.set()
