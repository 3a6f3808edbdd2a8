"""What the processes of a live run take from their machine: time, threads, sockets and a disk.

They take it from one object, so that a simulated machine can stand in for the real one.
"""

from __future__ import annotations

import ctypes
import queue
import random
import socket
import sys
import time
import weakref
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from threading import Thread, get_ident
from typing import Any, Protocol

import zmq

from edgefl.clocks.wall.connections import Watch
from edgefl.clocks.wall.keys import EdgeKeys, ServerKeys
from edgefl.clocks.wall.wire import Dealer, Poller, Router
from edgefl.disk import Disk, OwnDisk
from emulator.units import NS_PER_S

LEAST_NS = NS_PER_S  # a shorter sleep is not reported
# If reading the clocks took longer, the thread was interrupted: the reading is too inexact.
MOST_READING_NS = NS_PER_S // 10
LOOK_EVERY_NS = NS_PER_S // 20  # much less than LEAST_NS


class SleepWatch:
    """Compares two clocks again and again."""

    def __init__(self) -> None:
        self._ahead_ns: int | None = None  # how far the second clock was ahead at the last look
        self._looked_ns: int | None = None  # on the second clock

    def is_due(self, passed_ns: int) -> bool:
        """Whether to call ``look``; ``passed_ns``: the clock that goes on while the machine sleeps.

        This is every LOOK_EVERY_NS, because a look reads three clocks. It is at once after a sleep,
        which that clock has counted.
        """
        if self._looked_ns is not None and 0 <= passed_ns - self._looked_ns < LOOK_EVERY_NS:
            return False
        self._looked_ns = passed_ns
        return True

    def look(self, awake_ns: int, passed_ns: int, awake_after_ns: int) -> int:
        """How long (ns) the machine slept since the last call; 0 if it did not.

        ``awake_ns``: the clock that stands still in sleep, read before and after ``passed_ns``, the
        one that goes on.
        """
        exact = awake_after_ns - awake_ns <= MOST_READING_NS
        slept_ns = 0
        if self._ahead_ns is not None:
            # at least: a machine may also sleep between two readings
            slept_ns = passed_ns - awake_after_ns - self._ahead_ns
        if slept_ns < LEAST_NS:
            slept_ns = 0
        if exact or slept_ns:
            self._ahead_ns = passed_ns - awake_ns
        return slept_ns


class Mailbox:
    """A queue with a descriptor that becomes readable when an item is in it.

    One thread puts, another takes.
    """

    def __init__(self) -> None:
        self._items: deque[Any] = deque()
        # a byte is in the pipe, or will be at once: saves a system call for most puts and takes
        self._signalled = False
        self._ours, self._theirs = socket.socketpair()  # on Windows, select takes only sockets
        for end in (self._ours, self._theirs):
            end.setblocking(False)
            weakref.finalize(self, end.close).atexit = False
        self.fd = self._ours.fileno()

    def close(self) -> None:
        """Close the descriptors. A later ``put`` wakes no reader."""
        self._signalled = True
        self._ours.close()
        self._theirs.close()

    def put(self, *items: Any) -> None:
        self._items.extend(items)
        if not self._signalled:
            self._signalled = True
            with suppress(OSError):  # it is being closed at this moment
                self._theirs.send(b"!")

    def take(self, woken: bool = True) -> list[Any]:
        """Take all items that are in the queue now. ``woken``: the descriptor was readable.

        A byte may arrive after its item was taken, and wakes the reader once without an item. The
        reader must read this byte, too. Otherwise a thread of higher priority would spin on it
        and starve the other thread.
        """
        if woken:
            with suppress(BlockingIOError):
                self._ours.recv(4096)
        elif not self._signalled:
            return []
        # before the items are taken: items put from now on are signalled again
        self._signalled = False
        taken = []
        while self._items:
            taken.append(self._items.popleft())
        return taken


class Inbox(Protocol):
    """A queue between threads."""

    def put(self, item: Any) -> None:
        """Append an item."""

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        """Remove and return the first item; ``queue.Empty`` if none comes in time (s)."""


class System:
    """The machine on which this process runs, if it never sleeps.

    ``disk``: where a run is recorded, and where an edge keeps its state.
    """

    disk: Disk = OwnDisk()
    # whether its kernel may pace connections, see emulator/kernel_pacing.py
    paces = False

    # ------------------------------------------------------------------ time
    # not wrapped: a busy coordinator reads it 50 times for each update
    monotonic_ns = staticmethod(time.monotonic_ns)
    # the CPU time of the calling thread
    thread_ns = staticmethod(time.thread_time_ns)

    def passed_ns(self) -> int:
        """A monotonic clock that goes on while the machine sleeps."""
        return self.monotonic_ns()

    def awake_ns(self) -> int:
        """A monotonic clock that stands still while the machine sleeps."""
        return self.monotonic_ns()

    def sleep_reading(self) -> tuple[int, int, int]:
        """The readings for ``SleepWatch.look``."""
        return self.awake_ns(), self.passed_ns(), self.awake_ns()

    def monotonic_s(self) -> float:
        return self.monotonic_ns() / NS_PER_S

    def unix_s(self) -> float:
        """The date, as seconds since 1970. It may jump."""
        return time.time()

    def sleep(self, pause_s: float) -> None:
        time.sleep(pause_s)

    # ------------------------------------------------------------------ threads
    def start(self, thread: Thread) -> None:
        thread.start()

    def join(self, thread: Thread, timeout_s: float | None = None) -> None:
        thread.join(timeout_s)

    def thread(self) -> int:
        """A number that only the calling thread has."""
        return get_ident()

    def inbox(self) -> Inbox:
        return queue.SimpleQueue()

    def mailbox(self) -> Mailbox:
        return Mailbox()

    # ------------------------------------------------------------------ sockets
    def random_bits(self, bits: int) -> int:
        """A random number below ``2 ** bits`` that another process does not have."""
        return random.SystemRandom().getrandbits(bits)

    def router(self, context: zmq.Context, keys: ServerKeys | None) -> Router:
        return Router(context, keys)

    def dealer(self, context: zmq.Context, keys: EdgeKeys | None, address: str) -> Dealer:
        return Dealer(context, keys, address)

    def poller(self, mailbox: Mailbox) -> Poller:
        return Poller(mailbox.fd)

    def watch(
        self,
        router: Router,
        most_bytes: int,
        greedy: Callable[[bytes, str], None],
        stranger: Callable[[str], None],
        most_strangers: int,
        most: int,
        at_start: Callable[[], object],
    ) -> Watch:
        return Watch(router, most_bytes, greedy, stranger, most_strangers, most, at_start)


class OwnSystem(System):
    """The machine on which this process runs; it may sleep.

    ``monotonic_ns`` stands still in sleep on Linux and macOS, and goes on in Windows.
    """

    paces = sys.platform.startswith("linux")
    # not wrapped: a busy edge reads it 10 times for each update
    monotonic_s = staticmethod(time.monotonic)

    if sys.platform.startswith("linux"):

        def passed_ns(self) -> int:
            return time.clock_gettime_ns(time.CLOCK_BOOTTIME)

    elif sys.platform == "darwin":

        def passed_ns(self) -> int:
            return time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)

        def awake_ns(self) -> int:
            return time.clock_gettime_ns(time.CLOCK_UPTIME_RAW)

    elif sys.platform == "win32":

        def awake_ns(self) -> int:
            ticks = ctypes.c_ulonglong()  # of 100 ns
            ctypes.windll.kernel32.QueryUnbiasedInterruptTime(ctypes.byref(ticks))
            return 100 * ticks.value


OWN_SYSTEM = OwnSystem()
