"""What the processes of a live run take from their machine: time, threads, sockets and a disk.

They take it from one object, so that a simulated machine can stand in for the real one.
"""

from __future__ import annotations

import queue
import random
import time
from collections.abc import Callable
from threading import Thread
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
    """The machine on which this process runs. ``disk``: where a run is recorded."""

    disk: Disk = OwnDisk()

    # ------------------------------------------------------------------ time
    def monotonic_ns(self) -> int:
        return time.monotonic_ns()

    def monotonic_s(self) -> float:
        return self.monotonic_ns() / NS_PER_S

    def sleep(self, pause_s: float) -> None:
        time.sleep(pause_s)

    # ------------------------------------------------------------------ threads
    def start(self, thread: Thread) -> None:
        thread.start()

    def join(self, thread: Thread, timeout_s: float | None = None) -> None:
        thread.join(timeout_s)

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
        endless: Callable[[int], None],
        at_start: Callable[[], object],
    ) -> Watch:
        return Watch(router, most_bytes, endless, at_start)


OWN_SYSTEM = System()
