"""Connections to hosts: commands and files there, by ssh (``ssh``), in a namespace, or here.

Start at ``HostConnection``. Then: connections on this machine, and the addresses of a host.
``opening`` opens them.
"""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import signal
from abc import ABC, abstractmethod
from asyncio.subprocess import PIPE
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from ipaddress import IPv4Interface, IPv6Interface, ip_interface
from pathlib import Path
from typing import Any

from edgefl.clocks.network_addresses import any_host, is_loopback
from edgefl.errors import printable
from edgefl.plugins.launch.inventory import CoordinatorPlace, Host

BLOCK_BYTES = 1 << 18
LONGEST_LINE_BYTES = 1 << 20
MOST_OUTPUT_BYTES = 1 << 24  # of a command; a host must not fill this machine's memory
MOST_ERRORS_BYTES = 1 << 16  # the end of its stderr that is kept
STALL_S = 120.0  # a copy without any progress
MOST_QUOTED = 300  # characters of a host's words in an error line
MOST_SHOWN = 80  # and of a command
NO_ENV: Mapping[str, str] = {}
# Commands start in the home folder. A checkout there, ~/edgefl, must not hide an installed edgefl.
SAFE_PATH = {"PYTHONSAFEPATH": "1"}
# $1: target, $2: mode, $3: bytes. `cat` also ends if the connection breaks, so the size is checked.
# Parts that a killed copy of the same file has left are removed.
PUT = """
set -e
umask 077
mkdir -p -- "$(dirname -- "$1")"
rm -f -- "$1".part[0-9]*
part="$1.part$$"
trap 'rm -f -- "$part"' EXIT
trap 'exit 1' HUP INT TERM
cat >"$part"
[ "$(($(wc -c <"$part")))" = "$3" ] || { echo "not all of $3 bytes arrived" >&2; exit 1; }
chmod "$2" "$part"
mv -f -- "$part" "$1"
"""


class HostError(Exception):
    """A failure of one host, in one line; other hosts go on."""

    def __init__(self, host: str, reason: str) -> None:
        super().__init__(printable(f"{host}: {reason}"))
        self.host, self.reason = host, printable(reason)


class UnknownHostKey(HostError):
    """The host's key is not in known_hosts. It may be added after a person has accepted it.

    ``entry``: the line for ``file``. ``question``: what ssh asks, in several lines.
    """

    def __init__(self, host: str, kind: str, fingerprint: str, file: Path, entry: str) -> None:
        super().__init__(
            host,
            f"unknown host key ({kind}, fingerprint {fingerprint}): if it is the right one, answer"
            " yes on a terminal, or --accept-new-host-keys",
        )
        self.kind, self.fingerprint, self.file, self.entry = kind, fingerprint, file, entry

    def question(self) -> str:
        """Return the question of ssh about this key."""
        return (
            f"The authenticity of host '{self.host}' can't be established.\n"
            f"{self.kind} key fingerprint is {self.fingerprint}.\n"
            "Are you sure you want to continue connecting (yes/no/[fingerprint])?"
        )

    def accept(self) -> None:
        """Add the key to ``file``. HostError if that cannot be written."""
        try:
            self.file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            before = self.file.read_bytes() if self.file.exists() else b""
            with self.file.open("ab") as file:
                file.write((b"" if before[-1:] in b"\n" else b"\n") + self.entry.encode() + b"\n")
        except OSError as error:
            reason = f"{self.file} cannot be written ({error.strerror})"
            raise HostError(self.host, reason) from error


@dataclass(frozen=True, slots=True)
class Done:
    """The end of a command on a host; a signal N gives the status 128 + N."""

    status: int
    out: bytes
    err: bytes

    def last_line(self) -> str:
        """The last line of stderr, else of stdout, for an error line."""
        lines = (self.err.strip() or self.out.strip()).decode(errors="replace").splitlines()
        return printable(lines[-1], MOST_QUOTED) if lines else f"exit status {self.status}"


class LineSplitter:
    """Lines from chunks of bytes. A line that is too long comes in parts."""

    def __init__(self, most_bytes: int) -> None:
        self.most_bytes = most_bytes
        self._rest = b""

    def split(self, data: bytes) -> list[bytes]:
        """Return the complete lines, without their ends."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > self.most_bytes:
            lines, self._rest = [*lines, self._rest], b""
        return [line.removesuffix(b"\r") for line in lines]

    def rest(self) -> list[bytes]:
        """Return the last line if it has no end."""
        rest, self._rest = self._rest, b""
        return [rest] if rest else []


class RemoteProcess:
    """A process on a host. Read ``lines`` and ``err_lines``, or it may block.

    ``process``: of asyncio or of asyncssh, whose streams are alike. ``lost``: what these raise if
    the connection is lost. ``end`` waits for the end. ``kill`` sends SIGKILL to the process and to
    those that it started in its session.
    """

    def __init__(
        self,
        host: Host,
        process: Any,
        lost: tuple[type[Exception], ...],
        end: Callable[[], Awaitable[Any]],
        kill: Callable[[], None],
    ) -> None:
        self._host, self._process, self._lost = host, process, lost
        self._end, self.kill = end, kill

    @property
    def ended(self) -> bool:
        return self._process.returncode is not None

    async def write(self, data: bytes) -> None:
        """Send bytes to stdin; returns when few wait. BrokenPipeError if the process is gone."""
        try:
            self._process.stdin.write(data)
            await self._process.stdin.drain()
        except self._lost as error:
            raise BrokenPipeError from error

    def close_stdin(self) -> None:
        """Send the end of the file. May be called twice."""
        with suppress(OSError):
            self._process.stdin.write_eof()

    async def read(self, most: int = BLOCK_BYTES) -> bytes:
        """Return the next bytes of stdout, at most ``most``; b"" at its end."""
        return await self._read(self._process.stdout, most)

    def lines(self) -> AsyncIterator[bytes]:
        """Yield the lines of stdout without their ends, until the process closes it."""
        return lines_of(self.read)

    def err_lines(self) -> AsyncIterator[bytes]:
        """Yield the lines of stderr."""
        return lines_of(lambda: self._read(self._process.stderr, BLOCK_BYTES))

    async def errors(self) -> bytes:
        """Read stderr to its end, and return the last MOST_ERRORS_BYTES of it."""
        kept = b""
        while block := await self._read(self._process.stderr, BLOCK_BYTES):
            kept = (kept + block)[-MOST_ERRORS_BYTES:]
        return kept

    async def _read(self, stream: Any, most: int) -> bytes:
        try:
            data: bytes = await stream.read(most)
        except self._lost as error:
            raise HostError(self._host.name, f"lost the connection ({error})") from error
        return data

    async def wait(self) -> int:
        """Wait for the end, and return the status.

        HostError if the connection was lost before.
        """
        await self._end()
        status: int | None = self._process.returncode
        if status is None:
            raise HostError(self._host.name, "lost the connection")
        return status if status >= 0 else 128 - status


class HostConnection(ABC):
    """A connection to one host. All methods raise HostError if the host or the network fails.

    ``own_address``: the address of this machine as the host can reach it; None if it is unknown.
    """

    def __init__(self, host: Host, own_address: str | None) -> None:
        self.host, self.own_address = host, own_address

    @abstractmethod
    async def start(self, argv: Sequence[str], *, env: Mapping[str, str] = NO_ENV) -> RemoteProcess:
        """Start a command; "~/" at the start of a word, or of a value of ``env``, is the home."""

    @abstractmethod
    async def close(self) -> None:
        """End the connection. Processes that it started get the end of their stdin."""

    async def run(
        self,
        argv: Sequence[str],
        *,
        stdin: bytes = b"",
        env: Mapping[str, str] = NO_ENV,
        timeout_s: float = 30.0,
    ) -> Done:
        """Run a command to its end. HostError if it takes longer than ``timeout_s``."""
        try:
            async with asyncio.timeout(timeout_s):
                process = await self.start(argv, env=env)
                with _killed_unless_ended(process):
                    return await self._communicate(process, _blocks(stdin))
        except TimeoutError:
            words = shlex.join(argv)[:MOST_SHOWN]
            raise HostError(self.host.name, f"no end of {words} in {timeout_s:g} s") from None

    async def put(
        self,
        source: Path | bytes,
        target: str,
        mode: int = 0o644,
        sent: Callable[[int], None] = lambda size: None,
    ) -> None:
        """Write a file on the host, atomically; folders are made.

        ``sent`` is called with the bytes of each part that was sent. HostError if the host takes
        nothing for STALL_S; OSError if ``source`` cannot be read.
        """
        size = len(source) if isinstance(source, bytes) else source.stat().st_size
        process = await self.start(["sh", "-c", PUT, "sh", target, f"{mode:o}", str(size)])
        with self._no_stall(target), _killed_unless_ended(process):
            done = await self._communicate(process, _blocks(source), sent, STALL_S)
        if done.status:
            raise HostError(self.host.name, f"{target} cannot be written ({done.last_line()})")

    async def get(self, source: str, target: Path, most_bytes: int) -> None:
        """Copy a file of the host to this machine, atomically; folders are made.

        HostError if it cannot be read, or has more than ``most_bytes``.
        """
        target.parent.mkdir(parents=True, exist_ok=True)
        process = await self.start(["cat", "--", source])
        process.close_stdin()
        errors = asyncio.create_task(process.errors())
        part = target.with_name(f"{target.name}.part{os.getpid()}")
        try:
            with (
                self._no_stall(source),
                _killed_unless_ended(process),
                part.open("wb") as file,
            ):
                while block := await asyncio.wait_for(process.read(), STALL_S):
                    if file.tell() + len(block) > most_bytes:
                        reason = f"{source} has more than {most_bytes >> 20} MiB: not copied"
                        raise HostError(self.host.name, reason)
                    file.write(block)
                ends = asyncio.gather(process.wait(), errors)
                status, words = await asyncio.wait_for(ends, STALL_S)
                done = Done(status, b"", words)
            if done.status:
                raise HostError(self.host.name, f"{source} cannot be read ({done.last_line()})")
            part.replace(target)
        finally:
            errors.cancel()
            part.unlink(missing_ok=True)

    async def _communicate(
        self,
        process: RemoteProcess,
        blocks: Iterator[bytes],
        sent: Callable[[int], None] = lambda size: None,
        stall_s: float | None = None,
    ) -> Done:
        """Send ``blocks`` to the process, and wait for its end.

        TimeoutError if one of these steps takes longer than ``stall_s``.
        """
        out = asyncio.create_task(self._output(process))
        err = asyncio.create_task(process.errors())
        try:
            with suppress(BrokenPipeError):  # it may end before it has read everything
                for block in blocks:
                    async with asyncio.timeout(stall_s):
                        await process.write(block)
                    sent(len(block))
            process.close_stdin()
            async with asyncio.timeout(stall_s):
                return Done(*await asyncio.gather(process.wait(), out, err))
        finally:
            out.cancel(), err.cancel()

    async def _output(self, process: RemoteProcess) -> bytes:
        output = bytearray()
        while block := await process.read():
            output += block
            if len(output) > MOST_OUTPUT_BYTES:
                limit = f"{MOST_OUTPUT_BYTES >> 20} MiB"
                raise HostError(self.host.name, f"a command there printed more than {limit}")
        return bytes(output)

    @contextmanager
    def _no_stall(self, path: str) -> Iterator[None]:
        try:
            yield
        except TimeoutError:
            reason = f"{path}: the copy made no progress for {STALL_S:g} s"
            raise HostError(self.host.name, reason) from None


def _blocks(source: Path | bytes) -> Iterator[bytes]:
    if isinstance(source, bytes):
        for start in range(0, len(source), BLOCK_BYTES):
            yield source[start : start + BLOCK_BYTES]
        return
    with source.open("rb") as file:
        while block := file.read(BLOCK_BYTES):
            yield block


async def lines_of(read: Callable[[], Awaitable[bytes]]) -> AsyncIterator[bytes]:
    """Yield lines without their ends, from a function that returns the next bytes.

    A line of more than LONGEST_LINE_BYTES is cut into several.
    """
    splitter = LineSplitter(LONGEST_LINE_BYTES)
    while block := await read():
        for line in splitter.split(block):
            yield line
    for line in splitter.rest():
        yield line


@contextmanager
def _killed_unless_ended(process: RemoteProcess) -> Iterator[None]:
    """Kill the process if the block is left by an exception, such as a timeout."""
    try:
        yield
    except BaseException:
        process.kill()
        raise


# ---------------------------------------------------------------------- this machine
LOOPBACK = "127.0.0.1"
GRACE_S = 1.0


class LocalConnection(HostConnection):
    """Starts processes here, each in its own session.

    ``prefix``: words in front of each command.
    """

    def __init__(
        self, host: Host, own_address: str | None = LOOPBACK, prefix: Sequence[str] = ()
    ) -> None:
        super().__init__(host, own_address)
        self._prefix = list(prefix)
        self._processes: list[RemoteProcess] = []

    async def start(self, argv: Sequence[str], *, env: Mapping[str, str] = NO_ENV) -> RemoteProcess:
        words = [*self._prefix, *map(_expanded, argv)]
        extra = {key: _expanded(value) for key, value in env.items()}
        try:
            process = await asyncio.create_subprocess_exec(
                *words,
                stdin=PIPE,
                stdout=PIPE,
                stderr=PIPE,
                limit=BLOCK_BYTES,
                env=os.environ | SAFE_PATH | extra,
                cwd=Path.home(),
                start_new_session=True,
            )
        except OSError as error:
            raise HostError(self.host.name, f"{words[0]}: {error.strerror}") from error
        self._processes = [each for each in self._processes if not each.ended]
        started = RemoteProcess(
            self.host, process, (OSError,), process.wait, partial(_kill, process.pid)
        )
        self._processes.append(started)
        return started

    async def close(self) -> None:
        for process in self._processes:
            process.close_stdin()
        ends = [asyncio.create_task(each.wait()) for each in self._processes if not each.ended]
        if ends:  # most end with their stdin; the others go on
            _, going = await asyncio.wait(ends, timeout=GRACE_S)
            for end in going:
                end.cancel()


def _expanded(word: str) -> str:
    return os.path.expanduser(word) if word == "~" or word.startswith("~/") else word


def _kill(session: int) -> None:
    with suppress(ProcessLookupError):  # all have ended
        os.killpg(session, signal.SIGKILL)


# ---------------------------------------------------------------------- addresses
Interface = IPv4Interface | IPv6Interface
MOST = 1000  # addresses of one host


async def addresses_of(connection: HostConnection) -> list[Interface]:
    """Return the addresses of a host with their networks, without loopback; IPv4 first.

    HostError if its answer is none.
    """
    done = await connection.run(["ip", "-j", "address", "show", "scope", "global"])
    if done.status:
        raise HostError(connection.host.name, done.last_line())
    try:
        interfaces = [
            ip_interface(f"{each['local']}/{each['prefixlen']}")
            for interface in json.loads(done.out or b"[]")
            for each in interface.get("addr_info", ())
            if each != {}  # an address of another scope
        ]
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise HostError(connection.host.name, "ip does not list its addresses as JSON") from error
    return sorted(interfaces, key=lambda each: each.version)[:MOST]


def nearest_address(theirs: Sequence[Interface], ours: Sequence[Interface]) -> str | None:
    """The first of our addresses in the same network as one of theirs; None if there is none."""
    networks = [each.network for each in theirs]
    near = (each.ip for each in ours if any(each.ip in network for network in networks))
    return next(map(str, near), None)


async def coordinator_address(
    place: CoordinatorPlace, coordinator: HostConnection | None, host: HostConnection
) -> str:
    """Return the address for the edges of ``host``.

    ``coordinator``: the connection to the coordinator's host; None: it runs here. HostError if the
    host has no way to it that can be found.
    """
    if place.address is not None:
        return place.address
    if coordinator is None:
        if host.own_address is not None:
            return host.own_address
        coordinator = LocalConnection(place.host)
    elif place.host.via == "ssh":
        return place.host.name
    theirs, ours = await addresses_of(host), await addresses_of(coordinator)
    near = nearest_address(theirs, ours)
    if near is not None:
        return near
    for address in (str(each.ip) for each in ours):
        done = await host.run(["ip", "route", "get", address])
        if done.status == 0:
            return address
    raise HostError(
        host.host.name,
        "no address found at which it reaches the coordinator: give coordinator.address",
    )


def listen_host(wanted: str, addresses: Iterable[str]) -> str:
    """The address on which the coordinator listens; ``wanted``: that of the config.

    It is loopback if all edges are on this machine.
    """
    addresses = list(addresses)
    if not is_loopback(wanted) or all(is_loopback(address) for address in addresses):
        return wanted
    return any_host(addresses)


def edge_addresses(listens_on: str, addresses: Mapping[str, str]) -> dict[str, str]:
    """The address of the coordinator for each host: its own one if it listens only on loopback.

    A host of this machine is reached by IPv4, but the coordinator may listen on ``::1``.
    """
    if not is_loopback(listens_on):
        return dict(addresses)
    return dict.fromkeys(addresses, listens_on)
