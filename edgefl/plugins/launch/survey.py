"""Find out about hosts, and whether they are enough for their part of an experiment.

All hosts are asked at the same time, except for what would disturb other measurements.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

import msgspec
from msgspec import Struct, to_builtins
from rich.filesize import decimal

from edgefl import __version__
from edgefl.clocks.network_addresses import any_host
from edgefl.config.experiment import Experiment
from edgefl.config.groups import parts
from edgefl.config.links import Links
from edgefl.errors import printable
from edgefl.loading.names import own_names
from edgefl.plugins.launch import host_probe
from edgefl.plugins.launch.connections.connection import (
    BLOCK_BYTES,
    HostConnection,
    HostError,
    RemoteProcess,
    last_lines,
)
from edgefl.plugins.launch.installer import BASE_BYTES, OLDEST, OWN_BYTES, Count, VersionPart
from edgefl.plugins.launch.inventory import CoordinatorPlace, Host
from edgefl.plugins.launch.wheels import MACHINES
from emulator import profiles
from emulator.units import NS_PER_S

EDGE_BYTES = 350_000_000  # of memory: an edge with Python, torch and the digits
MODELS_PER_EDGE = 4  # vectors of the model's size in training: start, weights, gradient, update
SAME_MACHINE = {"amd64": "x86_64", "arm64": "aarch64"}  # other names of architectures
MBIT = 1e6


class MachineFacts(Struct, frozen=True, forbid_unknown_fields=True):
    """What ``host_probe`` tells about a machine; "" or None: not known.

    ``free_bytes``: on the disk of the work folder. ``edgefl`` and ``torch``: versions.
    """

    system: str
    name: str
    board: str
    machine: str
    bits: int
    libc: str
    cores: Count
    memory_bytes: Count | None
    available_bytes: Count | None
    free_bytes: Count
    python: tuple[VersionPart, VersionPart, VersionPart]
    implementation: str
    executable: str
    edgefl: str
    torch: str
    has_data: bool


class Moments(Struct, frozen=True):
    """When a command came to a probe, and when its answer left (ns since 1970)."""

    came_ns: Count
    goes_ns: Count


@dataclass(frozen=True, slots=True)
class ClockOffset:
    """The host's clock compared with ours, by the fastest of several pings.

    ``offset_ns``: theirs minus ours, known to ``uncertainty_ns``; ``rtt_ns``: median round trip.
    """

    offset_ns: int
    uncertainty_ns: int
    rtt_ns: int


@dataclass(frozen=True, slots=True)
class Goodput:
    """The network between a host and this machine, measured; seen from the host.

    ``over``: "tcp": a connection as edges make it; "connection": that of the commands.
    """

    over: str
    up_bit_s: float
    down_bit_s: float


@dataclass(slots=True)
class Survey:
    """What was found out about one host. ``problems``: why it cannot do its part."""

    host: str
    reachable: bool = False
    machine: MachineFacts | None = None
    clock: ClockOffset | None = None
    goodput: Goodput | None = None
    samples_per_s: float | None = None
    problems: list[str] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        values: dict[str, Any] = to_builtins(self)
        return values | {"fits": not self.problems}


def clock_of(pings: Sequence[tuple[int, int, int, int]]) -> ClockOffset:
    """Compare clocks as NTP does.

    A ping has four moments (ns): sent by our clock, come and gone by theirs, back by ours.
    """
    trips = sorted((back - sent) - (gone - come) for sent, come, gone, back in pings)
    sent, come, gone, back = min(pings, key=lambda ping: (ping[3] - ping[0]) - (ping[2] - ping[1]))
    return ClockOffset(
        offset_ns=((come - sent) + (gone - back)) // 2,
        uncertainty_ns=-(-max(trips[0], 0) // 2),
        rtt_ns=trips[len(trips) // 2],
    )


def rate_bit_s(size: int, took_ns: int, rtt_ns: int) -> float:
    """The goodput of ``size`` bytes, without the round trip of the command and its answer."""
    return 8 * size * NS_PER_S / max(took_ns - rtt_ns, took_ns // 10, 1)


@dataclass(frozen=True, slots=True)
class Demand:
    """What an experiment needs of a host.

    ``up_bit_s`` and ``down_bit_s``: the emulated links of its edges together, in wall-clock time.
    ``code``: own files that the config names.
    """

    memory_bytes: int
    up_bit_s: float
    down_bit_s: float
    own_data: bool
    code: tuple[str, ...]


def demand(host: Host, experiment: Experiment, model_size: int) -> Demand:
    """Return what the edges of ``host`` need; ``model_size``: elements of the model's vector."""
    vectors = MODELS_PER_EDGE * 4 * model_size
    rates = {"up": 0.0, "down": 0.0}
    for part in parts(experiment):
        edges = len(set(part.ids) & set(host.edges))
        if part.links.kind == "emulated" and experiment.medium.kind in ("none", "cell"):
            for way in rates:
                rates[way] += edges * _rate_bit_s(part.links, way) * experiment.chosen_speed
    return Demand(
        len(host.edges) * (EDGE_BYTES + vectors),
        rates["up"],
        rates["down"],
        experiment.data.source == "local",
        tuple(own_names(experiment)),
    )


def _rate_bit_s(links: Links, way: str) -> float:
    """The rate of a link; 0 if a trace says it."""
    if getattr(links, f"trace_{way}") is not None:
        return 0.0
    own = getattr(links, f"{way}_mbit_s")
    if own is not None or links.profile is None:
        return float(own or 0.0) * MBIT
    return float(getattr(profiles.link_profile(links.profile), f"{way}_bit_s"))


def problems(host: Host, found: Survey, wanted: Demand | None, candidate: int = 0) -> list[str]:
    """Return why the host cannot do its part, each in a few words; none if it can.

    ``candidate``: which of the Pythons of ``pythons`` answered. Without ``wanted`` only what every
    experiment needs is checked.
    """
    machine = found.machine
    if machine is None:
        return []
    reasons = [*_software(host, machine, candidate)]
    room = OWN_BYTES if machine.torch else BASE_BYTES
    if machine.free_bytes < room:
        reasons.append(f"{decimal(machine.free_bytes)} free on its disk, expected {decimal(room)}")
    if host.data is not None and not machine.has_data:
        reasons.append(f"no directory {host.data}")
    if wanted is not None:
        reasons += _for_experiment(host, found, machine, wanted)
    return reasons


def pythons(host: Host) -> list[str]:
    """The Pythons of a host in the order in which they are tried."""
    return list(
        dict.fromkeys([f"{host.environment}/bin/python", host.python or "python3", "python3"])
    )


def _software(host: Host, machine: MachineFacts, candidate: int) -> list[str]:
    if host.python is not None and pythons(host)[candidate] == "python3" != host.python:
        return [f"no Python {host.python}"]
    if machine.implementation != "cpython" or machine.python[:2] < OLDEST:
        version = ".".join(map(str, machine.python))
        return [
            f"{machine.executable} is {machine.implementation} {version}, expected CPython"
            f" {OLDEST[0]}.{OLDEST[1]} or newer: name one with `python`"
        ]
    architecture = SAME_MACHINE.get(machine.machine.lower(), machine.machine)
    if not machine.torch and (architecture not in MACHINES or machine.bits < 64):
        return [f"there is no torch for {machine.machine} with a {machine.bits}-bit Python"]
    if not machine.torch and machine.system == "Linux" and machine.libc != "glibc":
        return [f"there is no torch for {machine.libc or 'this C library'}, only for glibc"]
    if not machine.edgefl:
        return ["no edgefl: `edgefl hosts install`"]
    if machine.edgefl != __version__:
        return [f"edgefl {machine.edgefl}, here {__version__}: `edgefl hosts install`"]
    return [] if machine.torch else ["no torch: `edgefl hosts install`"]


def _for_experiment(host: Host, found: Survey, machine: MachineFacts, wanted: Demand) -> list[str]:
    reasons = []
    free = machine.available_bytes or machine.memory_bytes
    if free is not None and free < wanted.memory_bytes:
        reasons.append(
            f"{decimal(free)} of memory free, {len(host.edges)} edges need about"
            f" {decimal(wanted.memory_bytes)}"
        )
    if wanted.own_data and host.data is None:
        reasons.append('data.source = "local" needs a data set there: name it with `data`')
    if wanted.code and not host.allow_code:
        reasons.append(f"the config needs {wanted.code[0]}, and allow_code is not set")
    if found.goodput is not None:
        for way, has, needs in (
            ("up", found.goodput.up_bit_s, wanted.up_bit_s),
            ("down", found.goodput.down_bit_s, wanted.down_bit_s),
        ):
            if has < needs:
                reasons.append(
                    f"{has / MBIT:.3g} Mbit/s {way}, its emulated links need {needs / MBIT:.3g}"
                )
    return reasons


# ---------------------------------------------------------------------- measuring
Answer = TypeVar("Answer")
PINGS = 15
FIRST_BYTES, MOST_BYTES = 1 << 16, 1 << 26
LONG_ENOUGH_NS = 400_000_000  # of a transfer whose rate is taken
ANSWER_S, TRANSFER_S, SPEED_S = 20.0, 60.0, 120.0
MOST_ANSWER_BYTES = 1 << 16
# Runs the first Python of the words that exists; its number is the first line.
FIRST_PYTHON = """
code=$1; shift
number=0
for python in "$@"; do
    if command -v "$python" >/dev/null 2>&1; then
        echo "$number"
        exec "$python" -u -c "$code"
    fi
    number=$((number + 1))
done
echo "no Python: none of $*" >&2
exit 127
"""
READ_PROGRAM = (
    "import sys; file = sys.stdin.buffer; size = int(file.readline());"
    "exec(compile(file.read(size), 'host_probe', 'exec'))"
)
SPEED = """
from emulator.calibrate import time_step
timing = time_step(60)
print(timing.samples_per_s(timing.median_ns))
"""


def program() -> bytes:
    """The source of ``host_probe``, also for a Python that does not know the first import."""
    source = inspect.getsource(host_probe)
    return source.replace("from __future__ import annotations\n", "").encode()


class ProbeChannel:
    """Commands to ``host_probe``, and its answers, over any pair of streams."""

    def __init__(
        self,
        name: str,
        read: Callable[[int], Awaitable[bytes]],
        write: Callable[[bytes], Awaitable[None]],
    ) -> None:
        self._name, self._read, self._write = name, read, write
        self._rest = b""

    async def send(self, data: bytes) -> None:
        try:
            await self._write(data)
        except OSError as error:
            raise HostError(self._name, "lost the connection of the probe") from error

    async def line(self) -> bytes:
        """The next line. HostError if the other side is gone."""
        while b"\n" not in self._rest:
            self._rest += await self._more()
            if len(self._rest) > MOST_ANSWER_BYTES:
                raise HostError(self._name, "the probe does not answer in lines")
        line, _, self._rest = self._rest.partition(b"\n")
        return line

    async def ask(self, command: str, kind: type[Answer]) -> Answer:
        """Send a command, and return its answer. HostError if it is of another kind."""
        await self.send(f"{command}\n".encode())
        return await self.answer(kind)

    async def answer(self, kind: type[Answer]) -> Answer:
        line = await self.line()
        try:
            return msgspec.json.decode(line, type=kind)
        except (msgspec.DecodeError, ValueError, RecursionError) as error:  # also no UTF-8
            text = line.decode(errors="replace")[:80]
            reason = f"expected an answer of the probe, found {text!r}"
            raise HostError(self._name, reason) from error

    async def drop(self, size: int) -> None:
        """Read so many bytes."""
        while len(self._rest) < size:
            size -= len(self._rest)
            self._rest = await self._more()
        self._rest = self._rest[size:]

    async def _more(self) -> bytes:
        try:
            found = await self._read(BLOCK_BYTES)
        except OSError as error:
            raise HostError(self._name, f"lost the connection of the probe ({error})") from error
        if not found:
            raise HostError(self._name, "the probe has ended")
        return found

    async def clock(self) -> ClockOffset:
        """Compare the clocks."""
        pings = []
        for _ in range(PINGS):
            sent = time.time_ns()
            moments = await self.ask("clock", Moments)
            pings.append((sent, moments.came_ns, moments.goes_ns, time.time_ns()))
        return clock_of(pings)

    async def goodput(self, over: str, rtt_ns: int) -> Goodput:
        """Measure the goodput in both directions."""
        return Goodput(
            over,
            up_bit_s=await _rate(self._receive, rtt_ns),
            down_bit_s=await _rate(self._transmit, rtt_ns),
        )

    async def _receive(self, size: int) -> None:
        await self.send(f"give {size}\n".encode())
        await self.drop(size)

    async def _transmit(self, size: int) -> None:
        await self.send(f"take {size}\n".encode())
        for start in range(0, size, BLOCK_BYTES):
            await self.send(bytes(min(BLOCK_BYTES, size - start)))
        await self.answer(dict)


async def _rate(move: Callable[[int], Awaitable[None]], rtt_ns: int) -> float:
    """Double the size until a transfer takes long enough."""
    size = FIRST_BYTES
    while True:
        began_ns = time.perf_counter_ns()
        await move(size)
        took_ns = time.perf_counter_ns() - began_ns
        if took_ns >= LONG_ENOUGH_NS or size >= MOST_BYTES:
            return rate_bit_s(size, took_ns, rtt_ns)
        size = min(MOST_BYTES, size * max(2, min(8, LONG_ENOUGH_NS // max(took_ns, 1))))


@dataclass(slots=True)
class Surveyor:
    """Finds out about hosts.

    One host at a time is measured, so that none takes the network from another. Hosts that share
    this machine's processor time their training one after the other.
    """

    coordinator: CoordinatorPlace
    demands: Mapping[str, Demand]
    _network: asyncio.Lock = field(default_factory=asyncio.Lock)
    _processor: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def run(self, found: Mapping[str, HostConnection | HostError]) -> dict[str, Survey]:
        """Survey all hosts, by their names; one that cannot be reached has only the reason."""
        surveys = await asyncio.gather(
            *(self._one(name, connection) for name, connection in found.items())
        )
        return dict(zip(found, surveys))

    async def _one(self, name: str, connection: HostConnection | HostError) -> Survey:
        survey = Survey(name)
        if isinstance(connection, HostError):
            survey.problems.append(connection.reason)
            return survey
        host, candidate, survey.reachable = connection.host, 0, True
        try:
            async with _probe(connection) as (channel, candidate):
                about = json.dumps([host.folder, host.data or ""])
                async with asyncio.timeout(ANSWER_S):
                    survey.machine = await channel.ask(f"facts {about}", MachineFacts)
                async with self._network, asyncio.timeout(TRANSFER_S):
                    await self._measure(connection, channel, survey)
            survey.samples_per_s = await self._speed(connection, pythons(host)[candidate], survey)
        except HostError as error:
            survey.problems.append(error.reason)
        except TimeoutError:
            survey.problems.append("no answer in time")
        survey.problems += problems(host, survey, self.demands.get(name), candidate)
        return survey

    async def _measure(
        self, connection: HostConnection, channel: ProbeChannel, survey: Survey
    ) -> None:
        survey.clock = await channel.clock()
        address = self.coordinator.address or connection.own_address
        if self.coordinator.host.via == "local" and address is not None:
            why_not = await self._over_tcp(channel, address, survey)
            if why_not is None:
                return
            survey.problems.append(why_not)
        survey.goodput = await channel.goodput("connection", survey.clock.rtt_ns)

    async def _over_tcp(self, channel: ProbeChannel, address: str, survey: Survey) -> str | None:
        """Let the host connect as its edges will; return why it cannot, or None."""
        token, arrived = secrets.token_hex(16), asyncio.Queue[ProbeChannel]()

        async def on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            async def write(data: bytes) -> None:
                writer.write(data)
                await writer.drain()

            with suppress(OSError, ValueError):
                if (await reader.readline()).strip() == token.encode():
                    arrived.put_nowait(ProbeChannel(survey.host, reader.read, write))
                    await done.wait()
            writer.close()

        done = asyncio.Event()
        async with _listening(on, self.coordinator, address) as port:
            told: dict[str, Any] = await channel.ask(f"connect {address} {port} {token}", dict)
            if "error" in told:
                reason = printable(str(told["error"]), 80)
                return f"cannot reach this machine at {address}:{port} ({reason})"
            measured = await arrived.get()
            try:
                survey.clock = await measured.clock()
                survey.goodput = await measured.goodput("tcp", survey.clock.rtt_ns)
            finally:
                done.set()
        return None

    async def _speed(self, connection: HostConnection, python: str, survey: Survey) -> float | None:
        """The speed of a training step; None without torch or edgefl."""
        if survey.machine is None or not (survey.machine.edgefl and survey.machine.torch):
            return None
        words = [python, "-c", SPEED]
        if connection.host.via == "ssh":
            done = await connection.run(words, timeout_s=SPEED_S)
        else:
            async with self._processor:
                done = await connection.run(words, timeout_s=SPEED_S)
        try:
            return float(done.out)
        except ValueError:
            survey.problems.append(f"cannot train: {done.said()}")
            return None


@asynccontextmanager
async def _listening(
    on: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]],
    place: CoordinatorPlace,
    address: str,
) -> AsyncIterator[int]:
    """Listen where the coordinator will; on a free port if its own is in use."""
    where = any_host([address]) if place.address is not None else address
    try:
        server = await asyncio.start_server(on, where, place.listen_port)
    except OSError:
        server = await asyncio.start_server(on, where, 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


@asynccontextmanager
async def _probe(connection: HostConnection) -> AsyncIterator[tuple[ProbeChannel, int]]:
    """Start the probe with the first Python that the host has; yield it, and which one it is."""
    host = connection.host
    process = await connection.start(
        ["sh", "-c", FIRST_PYTHON, "sh", READ_PROGRAM, *pythons(host)], env=host.env
    )
    try:
        channel = ProbeChannel(host.name, process.read, process.stdin.write)
        try:
            async with asyncio.timeout(ANSWER_S):
                candidate = int(await channel.line())
        except (HostError, ValueError) as error:
            raise HostError(host.name, await _said(process) or str(error)) from error
        source = program()
        try:
            await channel.send(f"{len(source)}\n".encode() + source)
            async with asyncio.timeout(ANSWER_S):
                await channel.ask("clock", Moments)
        except HostError as error:
            python = pythons(host)[candidate]
            said = await _said(process) or error.reason
            raise HostError(host.name, f"{python} does not work as a Python 3 ({said})") from error
        yield channel, candidate
    except BaseException:
        process.kill()
        raise
    process.stdin.close()
    async with asyncio.timeout(ANSWER_S):
        await process.wait()


async def _said(process: RemoteProcess) -> str:
    """The last line of stderr of a process that does not do what it should."""
    process.kill()
    with suppress(TimeoutError):
        async with asyncio.timeout(ANSWER_S):
            *_, last = (await last_lines(process)).splitlines() or [b""]
            return printable(last.decode(errors="replace"), 200)
    return ""
