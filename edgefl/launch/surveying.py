"""Find out about hosts: all at the same time, except for what would disturb other measurements."""

from __future__ import annotations

import asyncio
import inspect
import json
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from pydantic import TypeAdapter

from edgefl.errors import printable
from edgefl.hosts.network_addresses import any_host
from edgefl.launch import host_probe
from edgefl.launch.connections.connection import (
    BLOCK_BYTES,
    HostConnection,
    HostError,
    RemoteProcess,
    last_lines,
)
from edgefl.launch.environment import Count
from edgefl.launch.inventory import CoordinatorPlace
from edgefl.launch.survey import (
    ClockOffset,
    Demand,
    Goodput,
    MachineFacts,
    Survey,
    clock_of,
    problems,
    pythons,
    rate_bit_s,
)

MOMENTS = TypeAdapter(tuple[Count, Count])
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

    async def ask(self, command: str) -> dict[str, Any]:
        """Send a command, and return its answer."""
        await self.send(f"{command}\n".encode())
        return await self.answer()

    async def answer(self) -> dict[str, Any]:
        line = await self.line()
        try:
            found = json.loads(line)
        except ValueError:
            found = None
        if not isinstance(found, dict):
            text = line.decode(errors="replace")
            raise HostError(self._name, f"expected an answer of the probe, found {text[:80]!r}")
        return found

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
            told = await self.ask("clock")
            back = time.time_ns()
            try:
                come, gone = MOMENTS.validate_python((told.get("came_ns"), told.get("goes_ns")))
            except ValueError as error:
                raise HostError(self._name, "the probe does not tell its clock") from error
            pings.append((sent, come, gone, back))
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
        await self.answer()


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
                    survey.machine = _machine(name, await channel.ask(f"facts {about}"))
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
            told = await channel.ask(f"connect {address} {port} {token}")
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


def _machine(name: str, told: dict[str, Any]) -> MachineFacts:
    try:
        return MachineFacts.parsed(told)
    except ValueError as error:
        raise HostError(name, "the probe's answer does not describe a machine") from error


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
                await channel.ask("clock")
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
