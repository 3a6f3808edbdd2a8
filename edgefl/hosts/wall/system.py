"""What the processes of a live run take from their machine: time, threads, sockets and a disk.

They take it from one object, so that a simulated machine can stand in for the real one.
"""

from __future__ import annotations

import ctypes
import queue
import random
import sys
import time
from collections.abc import Callable
from threading import Thread, get_ident
from typing import Any, Protocol

import zmq

from edgefl.disk import Disk, OwnDisk
from edgefl.hosts.wall.connections import Watch
from edgefl.hosts.wall.keys import EdgeKeys, ServerKeys
from edgefl.hosts.wall.mailbox import Mailbox
from edgefl.hosts.wall.wire import Dealer, Router
from emulator.units import NS_PER_S


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
