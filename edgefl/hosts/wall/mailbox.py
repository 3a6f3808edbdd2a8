"""How one thread hands things to another that waits for a socket too."""

from __future__ import annotations

import os
from collections import deque
from contextlib import suppress
from typing import Any


class Mailbox:
    """A queue with a descriptor that becomes readable when something is in it; one thread puts,
    another takes.
    """

    def __init__(self) -> None:
        self._items: deque[Any] = deque()
        # a byte lies in the pipe, or is about to: spares a system call for most puts and takes
        self._signalled = False
        self.fd, self._write_fd = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def put(self, *items: Any) -> None:
        self._items.extend(items)
        if not self._signalled:
            self._signalled = True
            os.write(self._write_fd, b"!")

    def take(self, woken: bool = True) -> list[Any]:
        """Everything that is in it now. ``woken``: the descriptor was readable.

        A byte may come after its item was taken, and wakes the reader once without an item. It
        must be read all the same, or a thread of higher priority would spin on it and starve the
        other one.
        """
        if woken:
            with suppress(BlockingIOError):
                os.read(self.fd, 4096)
        elif not self._signalled:
            return []
        # before the items are taken: what is put from now on is signalled again
        self._signalled = False
        taken = []
        while self._items:
            taken.append(self._items.popleft())
        return taken
