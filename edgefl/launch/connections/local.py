"""Commands on this machine, outside or inside a network namespace."""

from __future__ import annotations

import asyncio
import os
import signal
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from edgefl.launch.connections.connection import (
    BLOCK_BYTES,
    NO_ENV,
    SAFE_PATH,
    HostConnection,
    HostError,
    lines_of,
)
from edgefl.launch.host import Host

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
        self._processes: list[LocalProcess] = []

    async def start(self, argv: Sequence[str], *, env: Mapping[str, str] = NO_ENV) -> LocalProcess:
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
        self._processes.append(LocalProcess(process))
        return self._processes[-1]

    async def close(self) -> None:
        for process in self._processes:
            process.stdin.close()
        ends = [asyncio.create_task(each.wait()) for each in self._processes if not each.ended]
        if ends:  # most end with their stdin; the others go on
            _, going = await asyncio.wait(ends, timeout=GRACE_S)
            for end in going:
                end.cancel()


def _expanded(word: str) -> str:
    return os.path.expanduser(word) if word == "~" or word.startswith("~/") else word


class LocalStdin:
    """The standard input of a process on this machine."""

    def __init__(self, process: Process) -> None:
        assert process.stdin is not None
        self._writer = process.stdin

    async def write(self, data: bytes) -> None:
        try:
            self._writer.write(data)
            await self._writer.drain()
        except ConnectionResetError as error:
            raise BrokenPipeError from error

    def close(self) -> None:
        self._writer.close()


class LocalProcess:
    """A process on this machine, with a session of its own."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._stdin = LocalStdin(process)

    @property
    def stdin(self) -> LocalStdin:
        return self._stdin

    @property
    def ended(self) -> bool:
        return self._process.returncode is not None

    async def read(self, most: int = BLOCK_BYTES) -> bytes:
        assert self._process.stdout is not None
        return await self._process.stdout.read(most)

    def lines(self) -> AsyncIterator[bytes]:
        return lines_of(self.read)

    def err_lines(self) -> AsyncIterator[bytes]:
        assert self._process.stderr is not None
        return lines_of(partial(self._process.stderr.read, BLOCK_BYTES))

    async def wait(self) -> int:
        status = await self._process.wait()
        return status if status >= 0 else 128 - status

    def terminate(self) -> None:
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        self._signal(signal.SIGKILL)

    def _signal(self, number: int) -> None:
        with suppress(ProcessLookupError):  # all have ended
            os.killpg(self._process.pid, number)
