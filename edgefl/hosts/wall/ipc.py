"""JSON messages between the processes of one run on one machine, over a socket pair that keeps
message borders.
"""

from __future__ import annotations

import select
import socket
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import orjson

MOST_BYTES = 1 << 20


class Channel:
    """One end. Whatever is large travels in a file that the message names."""

    def __init__(self, end: socket.socket) -> None:
        self.end = end

    @classmethod
    def pair(cls) -> tuple["Channel", "Channel"]:
        first, second = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        for end in (first, second):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, MOST_BYTES)
        return cls(first), cls(second)

    @classmethod
    def inherited(cls, fd: int) -> "Channel":
        return cls(socket.socket(fileno=fd))

    def fileno(self) -> int:
        return self.end.fileno()

    def send(self, **message: Any) -> None:
        """BrokenPipeError if the other side is gone."""
        self.end.send(orjson.dumps(message))

    def receive(self, timeout_s: float | None = None) -> dict[str, Any] | None:
        """The next message; None if none came in time. EOFError if the other side is gone."""
        if timeout_s is not None and not select.select([self.end], [], [], timeout_s)[0]:
            return None
        try:
            data = self.end.recv(MOST_BYTES)
        except ConnectionResetError:
            data = b""
        if not data:
            raise EOFError("the other process is gone")
        return orjson.loads(data)

    def messages(self) -> Iterator[dict[str, Any]]:
        """Each message as it comes, until the other side is gone."""
        with suppress(EOFError):
            while True:
                message = self.receive()
                assert message is not None  # without a time limit there is one
                yield message

    def close(self) -> None:
        self.end.close()
