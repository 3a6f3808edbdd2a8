"""Typed messages between processes of one machine, over a socket pair that keeps message
boundaries.

A message is a dataclass declared with ``@message``. It travels as a JSON object: "kind" is the
name of its class in snake case, the other keys are its fields.
"""

from __future__ import annotations

import select
import socket
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, fields
from types import NoneType, UnionType
from typing import Any, TypeVar, cast, dataclass_transform, get_args, get_origin, get_type_hints

import orjson

from edgefl.hosts.ctrl_c import ctrl_c_held_back
from edgefl.snake_case import snake

MOST_BYTES = 1 << 20
Message = TypeVar("Message")
KINDS: dict[str, type] = {}
HINTS: dict[type, dict[str, Any]] = {}  # class -> field -> type


class BadMessage(Exception):
    """The data is not a known message: the two processes run different code."""


@dataclass_transform(frozen_default=True)
def message(declared: type[Message]) -> type[Message]:
    """Make the class a frozen dataclass with slots that a Channel can send.

    Fields may be str, int, float, bool, None, list[...], tuple[..., ...], dict[str, ...], or Any.
    """
    kind: Any = dataclass(frozen=True, slots=True)(declared)
    if snake(kind.__name__) in KINDS:
        raise TypeError(f"{kind.__name__}: a message of that name exists already")
    KINDS[snake(kind.__name__)] = kind
    hints = get_type_hints(kind)
    HINTS[kind] = {field.name: hints[field.name] for field in fields(kind)}
    return cast(type[Message], kind)


def encode(sent: Any) -> bytes:
    values = {name: getattr(sent, name) for name in HINTS[type(sent)]}
    return orjson.dumps({"kind": snake(type(sent).__name__), **values})


def decode(data: bytes) -> Any:
    """Decode a message. BadMessage says what is wrong with it."""
    try:
        values = orjson.loads(data)
        kind = KINDS[values.pop("kind")]
    except (orjson.JSONDecodeError, AttributeError, TypeError, KeyError):
        raise BadMessage(f"no known kind of message: {data[:80]!r}") from None
    hints = HINTS[kind]
    if values.keys() != hints.keys():
        raise BadMessage(f"{kind.__name__}: expected fields {[*hints]}, found {[*values]}")
    try:
        return kind(**{name: _typed(values[name], hint) for name, hint in hints.items()})
    except TypeError as error:
        raise BadMessage(f"{kind.__name__}: {error}") from None


def _typed(value: Any, hint: Any) -> Any:
    """Convert ``value`` to its field's type: JSON has no tuples and may write a float as an int.

    TypeError if the types do not match.
    """
    if hint is Any or (hint in (str, int, bool, NoneType) and type(value) is hint):
        return value
    if hint is float and type(value) in (int, float):
        return float(value)
    origin, inner = get_origin(hint), get_args(hint)
    if origin is UnionType:
        for choice in inner:
            with suppress(TypeError):
                return _typed(value, choice)
    if origin in (list, tuple) and type(value) is list:
        return origin(_typed(part, inner[0]) for part in value)
    if origin is dict and type(value) is dict:
        return {key: _typed(part, inner[1]) for key, part in value.items()}
    raise TypeError(f"expected {hint}, found {value!r}"[:200])


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
            if not select.select([self.end], [], [], timeout_s)[0]:
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
