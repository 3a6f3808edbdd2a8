"""Commands on this machine, outside or inside a network namespace."""

from __future__ import annotations

import asyncio
import os
import signal
from asyncio.subprocess import PIPE
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from edgefl.plugins.launch.connections.connection import (
    BLOCK_BYTES,
    NO_ENV,
    SAFE_PATH,
    HostConnection,
    HostError,
    RemoteProcess,
)
from edgefl.plugins.launch.inventory import Host

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
        made = RemoteProcess(
            self.host, process, (OSError,), process.wait, partial(_kill, process.pid)
        )
        self._processes.append(made)
        return made

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
