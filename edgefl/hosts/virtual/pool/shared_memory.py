"""Memory shared by a process and its forked workers, and messages whose vectors are in it.

The memory is an anonymous mapping: it has no name, so a killed run leaves nothing behind. It is
divided into cells of one model each. The process that opened it decides which worker may write to
which cell. A vector without a cell travels inside its message, which costs one or two copies.
"""

from __future__ import annotations

import heapq
import mmap
import struct
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from socket import socket
from typing import Any

import msgpack
import numpy as np
import psutil

from edgefl.vectors import aligned

IN_CELL, IN_MESSAGE = 1, 2  # msgpack extension types
PLACE = struct.Struct("<QQ")  # cell, elements
LENGTH = struct.Struct("<Q")
MOST_READ = 1 << 20


class NoRoom(Exception):
    """There is not enough shared memory, or workers cannot run here; the text says why."""


class Arena:
    """``cells`` cells for ``elements`` float32 each, or fewer if memory is short.

    NoRoom if fewer than ``least`` fit.
    """

    def __init__(self, cells: int, least: int, elements: int) -> None:
        self.stride = -(-4 * max(elements, 1) // mmap.PAGESIZE) * mmap.PAGESIZE
        available = psutil.virtual_memory().available
        cells = min(cells, available // 2 // self.stride)
        if cells < least:
            raise NoRoom(
                f"{least} models of {self.stride / 1e6:.0f} MB in shared memory, with"
                f" {available / 1e6:.0f} MB available"
            )
        try:
            self._memory = mmap.mmap(-1, cells * self.stride)
        except (OSError, ValueError, OverflowError) as error:
            raise NoRoom(
                f"no {cells * self.stride / 1e6:.0f} MB of shared memory ({error})"
            ) from error
        self._bytes = np.frombuffer(self._memory, np.uint8)
        self._free = list(range(cells))  # a heap: cells that already have memory are taken first

    def take(self) -> int | None:
        return heapq.heappop(self._free) if self._free else None

    def give(self, cell: int) -> None:
        heapq.heappush(self._free, cell)

    def fits(self, vector: np.ndarray) -> bool:
        return vector.dtype == np.float32 and vector.ndim == 1 and vector.nbytes <= self.stride

    def view(self, cell: int, elements: int) -> np.ndarray:
        """The first ``elements`` elements of a cell, which begins at a page boundary."""
        start = cell * self.stride
        return self._bytes[start : start + 4 * elements].view(np.float32)

    def write(self, cell: int, vector: np.ndarray) -> None:
        self.view(cell, vector.size)[:] = vector


def pack(message: Any, place: Callable[[np.ndarray], int | None]) -> bytes:
    """Encode ``message``: plain data and arrays.

    ``place`` writes a vector to a cell and returns the cell; None: it travels in the message.
    """

    def other(value: Any) -> Any:
        if isinstance(value, np.generic):
            return value.item()
        if not isinstance(value, np.ndarray):
            raise TypeError(f"{type(value).__name__} cannot be sent to a worker")
        cell = place(value)
        if cell is not None:
            return msgpack.ExtType(IN_CELL, PLACE.pack(cell, value.size))
        return msgpack.ExtType(
            IN_MESSAGE, msgpack.packb([value.dtype.str, list(value.shape), value.tobytes()])
        )

    return msgpack.packb(message, default=other)


def unpack(data: bytes, arena: Arena) -> Any:
    """Decode a message. Vectors in cells are read-only views: they change if the cell is reused."""

    def array(code: int, content: bytes) -> np.ndarray:
        if code == IN_CELL:
            found = arena.view(*PLACE.unpack(content))
        else:
            dtype, shape, raw = msgpack.unpackb(content)
            found = aligned(len(raw), np.uint8)
            found[:] = np.frombuffer(raw, np.uint8)
            found = found.view(dtype).reshape(shape)
        found.flags.writeable = False
        return found

    return msgpack.unpackb(data, ext_hook=array, strict_map_key=False)


class MessageStream:
    """Whole messages over a stream socket, without blocking.

    ``push`` sends later what the socket does not take now.
    """

    def __init__(self, end: socket) -> None:
        end.setblocking(False)
        self.end = end
        self._out: deque[memoryview] = deque()
        self._in = bytearray()

    @property
    def pending(self) -> bool:
        """Whether data waits for ``push``."""
        return bool(self._out)

    def fileno(self) -> int:
        return self.end.fileno()

    def send(self, data: bytes) -> None:
        self._out.append(memoryview(LENGTH.pack(len(data)) + data))
        self.push()

    def push(self) -> None:
        """Send as much as the socket takes.

        If the other side has closed, all data is dropped, and ``receive`` reports that.
        """
        try:
            while self._out:
                sent = self.end.send(self._out[0])
                if sent == len(self._out[0]):
                    self._out.popleft()
                else:
                    self._out[0] = self._out[0][sent:]
        except BlockingIOError:
            return
        except OSError:
            self._out.clear()

    def receive(self) -> list[bytes]:
        """Return all whole messages so far.

        EOFError if the other side has closed and all its messages have been returned.
        """
        ended = False
        with suppress(BlockingIOError):
            while not ended:
                data = self._read()
                self._in += data
                ended = not data
        messages = []
        while len(self._in) >= LENGTH.size and len(self._in) - LENGTH.size >= (
            size := LENGTH.unpack_from(self._in)[0]
        ):
            messages.append(bytes(self._in[LENGTH.size : LENGTH.size + size]))
            del self._in[: LENGTH.size + size]
        if ended and not messages:
            raise EOFError("the other process has ended")
        return messages

    def close(self) -> None:
        self.end.close()

    def _read(self) -> bytes:
        try:
            return self.end.recv(MOST_READ)
        except ConnectionResetError:
            return b""
