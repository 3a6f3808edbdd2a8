"""Typed messages between processes of one machine, over a socket pair that keeps message
boundaries.

A message is a class derived from ``Message``. It travels as a JSON object: "kind" is the name of
its class in snake case, the other keys are its fields.
"""

from __future__ import annotations

import select
import socket
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache, reduce
from operator import or_
from pathlib import Path
from typing import Annotated, Any

import msgspec

from edgefl.clocks.ctrl_c import ctrl_c_held_back
from edgefl.snake_case import snake

MOST_BYTES = 1 << 20
Int64 = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]


class BadMessage(Exception):
    """The data is not a known message: the two processes run different code."""


class Message(msgspec.Struct, frozen=True, tag_field="kind", tag=snake, forbid_unknown_fields=True):
    """The base of all messages. Fields may have any type that JSON can hold, and Path.

    A field without a default must be there; whole numbers are Int64.
    """


@cache
def _decoder(kinds: tuple[type[Message], ...]) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(reduce(or_, kinds), dec_hook=_from_text)


def _from_text(kind: type, text: Any) -> Any:
    return kind(text)  # of Path, the only kind that JSON does not know


def encode(sent: Message) -> bytes:
    return msgspec.json.encode(sent, enc_hook=_to_text)


def _to_text(value: Any) -> str:
    if not isinstance(value, Path):
        raise TypeError(f"a message cannot hold a {type(value).__name__}")
    return str(value)


def decode(data: bytes) -> Any:
    """Decode a message. BadMessage says what is wrong with it."""
    try:
        return _decoder(tuple(Message.__subclasses__())).decode(data)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:  # also no UTF-8
        raise BadMessage(f"{error}: {data[:80]!r}") from None


class Channel:
    """One end of the socket pair. Large data travels in a file that the message names."""

    def __init__(self, end: socket.socket) -> None:
        self.end = end
        self.kept: list[int] = []  # descriptors that came with messages
        self._unread: list[Any] = []  # a message that a Ctrl-C has kept from its receiver

    @classmethod
    def pair(cls) -> tuple[Channel, Channel]:
        first, second = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        for end in (first, second):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, MOST_BYTES)
        return cls(first), cls(second)

    @classmethod
    def inherited(cls, fd: int) -> Channel:
        return cls(socket.socket(fileno=fd))

    def fileno(self) -> int:
        return self.end.fileno()

    def send(self, sent: Any, fd: int | None = None) -> None:
        """Send a message. BrokenPipeError if the other side has closed.

        ``fd``: a descriptor that the receiver keeps open until its process ends.
        """
        if fd is None:
            self.end.send(encode(sent))
        else:
            socket.send_fds(self.end, [encode(sent)], [fd])

    def receive(self, timeout_s: float | None = None) -> Any:
        """Return the next message; None if none arrives in time.

        EOFError if the other side has closed, BadMessage if the data is not a message.
        """
        if not self._unread:
            poll = select.poll()  # ``select.select`` takes no descriptor above 1023
            poll.register(self.end, select.POLLIN)
            if not poll.poll(None if timeout_s is None else 1000 * timeout_s):
                return None
            with ctrl_c_held_back():  # at its end, the message is kept for the next call
                self._unread.append(decode(self._data()))
        return self._unread.pop()

    def _data(self) -> bytes:
        """The next message as it was sent. EOFError if the other side has closed."""
        try:
            data, fds, _, _ = socket.recv_fds(self.end, MOST_BYTES, 1)
        except ConnectionResetError:
            data, fds = b"", []
        self.kept.extend(fds)
        if not data:
            raise EOFError("the other process has ended")
        return data

    def serve(self, answer: Callable[[Any], Any]) -> None:
        """Receive messages until the other side closes. Send ``answer(message)``, unless None."""
        for order in self._messages():
            reply = answer(order)
            if reply is not None:
                self.send(reply)

    def close(self) -> None:
        self.end.close()

    def _messages(self) -> Iterator[Any]:
        with suppress(EOFError):
            while True:
                yield self.receive()
