"""A queue between two threads, for a reader that also waits for a socket."""

from __future__ import annotations

import os
from collections import deque
from contextlib import suppress
from typing import Any


class Mailbox:
    """A queue with a descriptor that becomes readable when an item is in it.

    One thread puts, another takes.
    """

    def __init__(self) -> None:
        self._items: deque[Any] = deque()
        # a byte is in the pipe, or will be at once: saves a system call for most puts and takes
        self._signalled = False
        self.fd, self._write_fd = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def put(self, *items: Any) -> None:
        self._items.extend(items)
        if not self._signalled:
            self._signalled = True
            os.write(self._write_fd, b"!")

    def take(self, woken: bool = True) -> list[Any]:
        """Take all items that are in the queue now. ``woken``: the descriptor was readable.

        A byte may arrive after its item was taken, and wakes the reader once without an item. The
        reader must read this byte, too. Otherwise a thread of higher priority would spin on it
        and starve the other thread.
        """
        if woken:
            with suppress(BlockingIOError):
                os.read(self.fd, 4096)
        elif not self._signalled:
            return []
        # before the items are taken: items put from now on are signalled again
        self._signalled = False
        taken = []
        while self._items:
            taken.append(self._items.popleft())
        return taken
