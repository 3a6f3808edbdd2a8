"""Queues between two threads, also for a reader that waits for a socket."""

from __future__ import annotations

import os
import socket
import weakref
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any


class TurnOutbox:
    """Collects what a thread tells another one in a turn, so that the other wakes once."""

    def __init__(self, put: Callable[[Any], None]) -> None:
        self._put, self._items = put, list[Any]()

    def __call__(self, item: Any) -> None:
        self._items.append(item)

    def send(self) -> None:
        """Put all items, in order."""
        for item in self._items:
            self._put(item)
        self._items.clear()


class Mailbox:
    """A queue with a descriptor that becomes readable when an item is in it.

    One thread puts, another takes.
    """

    def __init__(self) -> None:
        self._items: deque[Any] = deque()
        # a byte is in the pipe, or will be at once: saves a system call for most puts and takes
        self._signalled = False
        self.fd, self._read, self._write = _pipe(self) if hasattr(os, "pipe2") else _sockets()

    def put(self, *items: Any) -> None:
        self._items.extend(items)
        if not self._signalled:
            self._signalled = True
            self._write(b"!")

    def take(self, woken: bool = True) -> list[Any]:
        """Take all items that are in the queue now. ``woken``: the descriptor was readable.

        A byte may arrive after its item was taken, and wakes the reader once without an item. The
        reader must read this byte, too. Otherwise a thread of higher priority would spin on it
        and starve the other thread.
        """
        if woken:
            with suppress(BlockingIOError):
                self._read(4096)
        elif not self._signalled:
            return []
        # before the items are taken: items put from now on are signalled again
        self._signalled = False
        taken = []
        while self._items:
            taken.append(self._items.popleft())
        return taken


Ends = tuple[int, Callable[[int], bytes], Callable[[bytes], int]]  # descriptor, read, write


def _pipe(owner: Mailbox) -> Ends:
    """Open a pipe that is closed when no thread has ``owner`` any more."""
    fds = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    for fd in fds:
        weakref.finalize(owner, os.close, fd).atexit = False
    return fds[0], partial(os.read, fds[0]), partial(os.write, fds[1])


def _sockets() -> Ends:
    """Open a socket pair: macOS has no pipe2, and on Windows select takes only sockets.

    It takes twice the time of a pipe.
    """
    ours, theirs = socket.socketpair()
    for end in (ours, theirs):
        end.setblocking(False)
    return ours.fileno(), ours.recv, theirs.send
