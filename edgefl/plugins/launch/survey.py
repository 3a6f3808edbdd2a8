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
from edgefl.clocks.setup.network import shape_of
from edgefl.config.experiment import Experiment, parts
from edgefl.config.file import own_names
from edgefl.errors import printable
from edgefl.plugins.launch import host_probe
from edgefl.plugins.launch.connections import (
    BLOCK_BYTES,
    Done,
    HostConnection,
    HostError,
)
from edgefl.plugins.launch.installer import BASE_BYTES, OWN_BYTES, Count, MachineFacts
from edgefl.plugins.launch.inventory import CoordinatorPlace, Host
from emulator.units import NS_PER_S

EDGE_BYTES = 350_000_000  # of memory: an edge with Python, torch and the digits
MODELS_PER_EDGE = 4  # vectors of the model's size in training: start, weights, gradient, update
MBIT = 1e6


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
                if getattr(part.links, f"trace_{way}") is None:
                    rate_bit_s = shape_of(part.links).rates_bit_s[way]
                    rates[way] += edges * rate_bit_s * experiment.chosen_speed
    return Demand(
        len(host.edges) * (EDGE_BYTES + vectors),
        rates["up"],
        rates["down"],
        experiment.data.source == "local",
        tuple(own_names(experiment)),
    )


def problems(host: Host, survey: Survey, wanted: Demand | None, candidate: int = 0) -> list[str]:
    """Return why the host cannot do its part, each in a few words; none if it can.

    ``candidate``: which of the Pythons of ``pythons`` answered. Without ``wanted`` only what every
    experiment needs is checked.
    """
    machine = survey.machine
    if machine is None:
        return []
    reasons = [*_software(host, machine, candidate)]
    room = OWN_BYTES if machine.torch else BASE_BYTES
    if machine.free_bytes < room:
        reasons.append(f"{decimal(machine.free_bytes)} free on its disk, expected {decimal(room)}")
    if host.data is not None and not machine.has_data:
        reasons.append(f"no directory {host.data}")
    if wanted is not None:
        reasons += _for_experiment(host, survey, machine, wanted)
    return reasons


def pythons(host: Host) -> list[str]:
    """The Pythons of a host in the order in which they are tried."""
    return list(
        dict.fromkeys([f"{host.environment}/bin/python", host.python or "python3", "python3"])
    )


def _software(host: Host, machine: MachineFacts, candidate: int) -> list[str]:
    if host.python is not None and pythons(host)[candidate] == "python3" != host.python:
        return [f"no Python {host.python}"]
    reason = machine.old_python() or (None if machine.torch else machine.no_wheels())
    if reason is not None:
        return [reason]
    if not machine.edgefl:
        return ["no edgefl: `edgefl hosts install`"]
    if machine.edgefl != __version__:
        return [f"edgefl {machine.edgefl}, here {__version__}: `edgefl hosts install`"]
    return [] if machine.torch else ["no torch: `edgefl hosts install`"]


def _for_experiment(host: Host, survey: Survey, machine: MachineFacts, wanted: Demand) -> list[str]:
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
    if survey.goodput is not None:
        for way, has, needs in (
            ("up", survey.goodput.up_bit_s, wanted.up_bit_s),
            ("down", survey.goodput.down_bit_s, wanted.down_bit_s),
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
# Prints the number of the first of its words that is a program here.
FIRST_PROGRAM = """
number=0
for python in "$@"; do
    command -v "$python" >/dev/null 2>&1 && { echo "$number"; exit; }
    number=$((number + 1))
done
echo "no Python: none of $*" >&2
exit 1
"""
SPEED = """
from emulator.calibrate import time_step
timing = time_step(60)
print(timing.samples_per_s(timing.median_ns))
"""


class ProbeChannel:
    """Commands to ``host_probe``, and its answers, over any pair of streams.

    HostError if the other side is gone, or does not answer as the probe does.
    """

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
        """The next line."""
        while b"\n" not in self._rest:
            self._rest += await self._more()
            if len(self._rest) > MOST_ANSWER_BYTES:
                raise HostError(self._name, "the probe does not answer in lines")
        line, _, self._rest = self._rest.partition(b"\n")
        return line

    async def ask(self, command: str, kind: type[Answer]) -> Answer:
        """Send a command, and return its answer."""
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

    async def _more(self) -> bytes:
        try:
            data = await self._read(BLOCK_BYTES)
        except OSError as error:
            raise HostError(self._name, f"lost the connection of the probe ({error})") from error
        if not data:
            raise HostError(self._name, "the probe has ended")
        return data

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
        while len(self._rest) < size:
            size -= len(self._rest)
            self._rest = await self._more()
        self._rest = self._rest[size:]

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

    async def run(self, opened: Mapping[str, HostConnection | HostError]) -> list[Survey]:
        """Survey all hosts, by their names; one that cannot be reached has only the reason."""
        return await asyncio.gather(
            *(self._one(name, connection) for name, connection in opened.items())
        )

    async def _one(self, name: str, connection: HostConnection | HostError) -> Survey:
        survey = Survey(name)
        if isinstance(connection, HostError):
            survey.problems.append(connection.reason)
            return survey
        host, candidate, survey.reachable = connection.host, 0, True
        try:
            async with _probe(connection) as (channel, candidate):
                asked = json.dumps({"folder": host.folder, "data": host.data or ""})
                async with asyncio.timeout(ANSWER_S):
                    survey.machine = await channel.ask(f"facts {asked}", MachineFacts)
                async with self._network, asyncio.timeout(TRANSFER_S):
                    await self._measure(connection, channel, survey)
            if survey.machine.edgefl and survey.machine.torch:
                await self._train(connection, pythons(host)[candidate], survey)
        except HostError as error:
            survey.problems.append(error.reason)
        except TimeoutError:
            survey.problems.append("no answer in time")
        survey.problems += problems(host, survey, self.demands.get(name), candidate)
        return survey

    async def _measure(
        self, connection: HostConnection, channel: ProbeChannel, survey: Survey
    ) -> None:
        """Over TCP as edges do, if the coordinator is here; else over the connection."""
        address = self.coordinator.address or connection.own_address
        if self.coordinator.host.via == "local" and address is not None:
            why_not = await self._over_tcp(channel, address, survey)
            if why_not is None:
                return
            survey.problems.append(why_not)
        survey.clock = await channel.clock()
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
        # where the coordinator will listen; on a free port if its own is in use
        where = any_host([address]) if self.coordinator.address is not None else address
        try:
            server = await asyncio.start_server(on, where, self.coordinator.listen_port)
        except OSError:
            server = await asyncio.start_server(on, where, 0)
        try:
            port = server.sockets[0].getsockname()[1]
            answer: dict[str, Any] = await channel.ask(f"connect {address} {port} {token}", dict)
            if "error" in answer:
                reason = printable(str(answer["error"]), 80)
                return f"cannot reach this machine at {address}:{port} ({reason})"
            measured = await arrived.get()
            survey.clock = await measured.clock()
            survey.goodput = await measured.goodput("tcp", survey.clock.rtt_ns)
        finally:
            done.set()
            server.close()
        return None

    async def _train(self, connection: HostConnection, python: str, survey: Survey) -> None:
        """Measure the speed of a training step."""
        words = [python, "-c", SPEED]
        alone = asyncio.Lock() if connection.host.via == "ssh" else self._processor
        async with alone:
            done = await connection.run(words, timeout_s=SPEED_S)
        try:
            survey.samples_per_s = float(done.out)
        except ValueError:
            survey.problems.append(f"cannot train: {done.last_line()}")


@asynccontextmanager
async def _probe(connection: HostConnection) -> AsyncIterator[tuple[ProbeChannel, int]]:
    """Start the probe with the first Python that the host has; yield it, and which one it is."""
    host, candidates = connection.host, pythons(connection.host)
    done = await connection.run(["sh", "-c", FIRST_PROGRAM, "sh", *candidates], env=host.env)
    number = done.out.strip()[:3]
    if done.status or not number.isdigit():
        raise HostError(host.name, done.last_line())
    candidate = min(int(number), len(candidates) - 1)
    python = candidates[candidate]
    words = [python, "-u", "-c", inspect.getsource(host_probe)]
    process = await connection.start(words, env=host.env)
    try:
        channel = ProbeChannel(host.name, process.read, process.write)
        try:
            async with asyncio.timeout(ANSWER_S):
                await channel.ask("clock", Moments)
        except HostError as error:
            process.kill()
            async with asyncio.timeout(ANSWER_S):
                reason = Done(1, error.reason.encode(), await process.errors()).last_line()
            raise HostError(
                host.name, f"{python} does not work as a Python 3 ({printable(reason, 200)})"
            ) from error
        yield channel, candidate
    except BaseException:
        process.kill()
        raise
    process.close_stdin()
    async with asyncio.timeout(ANSWER_S):
        await process.wait()
