"""Emulated links in front of any TCP program, in one thread with one epoll and precise timers.

Sockets are read in turns, one chunk each, while their lane has room. Otherwise bytes wait in the
kernel, and TCP flow control stops their senders. ``emulator.proxy.pacing`` decides when chunks
leave. A slow receiver blocks only its own connection.
"""

from __future__ import annotations

import os
import resource
import select
import socket
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, TextIO

from emulator.capacity import Capacity
from emulator.clock import precise_timers
from emulator.errors import BadValue, Unavailable, valid_name
from emulator.kernel_pacing import PacedConnection
from emulator.proxy.pacing import Junction, Lane, ahead_of
from emulator.proxy.record import BusyFile, ConnectionRecord, Log
from emulator.proxy.routes import Address, ProxyWay, Route, address_text, parse_address, proxy_ways
from emulator.proxy.traffic import TIMESTAMPS, ConnectionEnd, Item, Road, Traffic
from emulator.units import NS_PER_S

# receive buffer on a shaped lane; it is small so that the sender notices the rate of its link
KERNEL_BYTES = 256 * 1024
BATCH, BACKLOG, SPARE_FILES = 256, 1024, 64
TICK_NS = NS_PER_S // 2
REST_NS = 2_000_000  # due chunks may be delayed by at most this time
# and by at most so many times the work of the last wake-up, so that busy links share wake-ups
REST_SHARE = 3
EDGES = select.EPOLLIN | select.EPOLLOUT | select.EPOLLRDHUP | select.EPOLLET
READABLE = select.EPOLLIN | select.EPOLLRDHUP | select.EPOLLHUP | select.EPOLLERR
WRITABLE = select.EPOLLOUT | select.EPOLLHUP | select.EPOLLERR
PROCESS, KERNEL, AUTO = PACERS = ("process", "kernel", "auto")
SELECTABLE = 1024  # FD_SETSIZE of the C library
SENT_BYTES = 1 << 22  # send buffer for the kernel's pacing; an ordinary user may get less
RESET_ON_CLOSE = b"\x01\0\0\0\0\0\0\0"  # struct linger {1, 0}
# (host, port), the four values of IPv6, or what a Python without IPv6 returns for IPv6.
SockAddr = tuple[
    socket.AddressFamily, tuple[str, int] | tuple[str, int, int, int] | tuple[int, bytes]
]


class Proxy:
    """A TCP proxy with emulated links. It listens from its creation on (BadValue if it cannot).

    ``run`` carries traffic until ``stop``, which any thread or signal handler may call.
    """

    def __init__(
        self,
        routes: Sequence[Route],
        shared_up: Capacity | None = None,
        shared_down: Capacity | None = None,
        log: Log | None = None,
        busy: BusyFile | None = None,
        pacing: str = PROCESS,
    ) -> None:
        valid_name("pacing", pacing, PACERS)
        self.addresses: list[Address] = []
        self._origin_ns, self.began_unix_s = time.monotonic_ns(), time.time()
        self.traffic = Traffic(self._now, self._hang_up, log, self._pace)
        self._pacing = pacing
        # what the kernel may hold of a connection; 0: it does not pace
        self._queue_bytes = 0 if pacing == PROCESS else _queue_bytes()
        self._most_open = _most_open(len(routes))
        self._stopped, self._busy, self._no_room = False, busy, False
        # a stop of another thread, or of a signal handler, may come while the files are closed
        self._closing = threading.RLock()
        self._ends: dict[int, ConnectionEnd] = {}
        self._socks: dict[ConnectionEnd, socket.socket] = {}
        # listeners that are not polled because there is no room for another connection
        self._full_listeners: set[int] = set()
        self._listeners: dict[int, tuple[socket.socket, SockAddr, Road, Road]] = {}
        shared = {"up": shared_up, "down": shared_down}
        self._junctions = {
            direction: Junction[Item](capacity)
            for direction, capacity in shared.items()
            if capacity is not None
        }
        self._roads: list[Road] = []
        # created before any other socket, because select() needs a file number below 1024
        self._epoll = select.epoll()
        if self._epoll.fileno() >= SELECTABLE:
            self._epoll.close()
            raise Unavailable(
                f"proxy: this process has {SELECTABLE} files open, and precise waiting needs a"
                " file number below that: start the proxy before they are opened"
            )
        self._stop_fd = os.eventfd(0, os.EFD_NONBLOCK)
        self._epoll.register(self._stop_fd, select.EPOLLIN)
        try:
            for route in routes:
                self._listen(route)
        except BaseException:
            self.close()
            raise

    @property
    def address(self) -> Address:
        """Where the first route listens."""
        return self.addresses[0]

    def pacing(self) -> list[dict[str, Any]]:
        """Who paces each direction of each shaped link, and its bytes, as plain JSON values.

        ``pacer`` is "kernel" if it may; ``kernel_bytes`` are those that it spaced. ``reason``: why
        it may not, if it was asked.
        """
        return [
            {
                "listen": address_text(address),
                "direction": road.direction,
                "pacer": PROCESS if road.lane.ahead is None else KERNEL,
                "reason": road.not_paced,
                "bytes": road.bytes,
                "kernel_bytes": road.paced_bytes,
            }
            for address, roads in zip(self.addresses, zip(*[iter(self._roads)] * 2))
            for road in roads
            if road.shaped
        ]

    def stop(self) -> None:
        """End ``run`` at its next step."""
        self._stopped = True
        with self._closing:
            if not self._epoll.closed:
                os.eventfd_write(self._stop_fd, 1)

    def run(self, seconds: float | None = None, status: TextIO | None = None) -> None:
        """Carry traffic, for at most ``seconds``; write a live line to ``status`` twice a second.

        Connections that are open at the end are reset.
        """
        tick_ns = self._now()
        end_ns = None if seconds is None else tick_ns + round(seconds * NS_PER_S)
        try:
            while not self._stopped and (end_ns is None or self._now() < end_ns):
                next_tick_ns = tick_ns + TICK_NS
                self._wait(
                    self._turn(next_tick_ns if end_ns is None else min(next_tick_ns, end_ns))
                )
                if self._now() >= next_tick_ns:
                    tick_ns = self._now()
                    self._ask_all()
                    self._show(status)
        finally:
            self.close()

    def close(self) -> None:
        """Reset all open connections and stop listening. May be called twice."""
        for end in list(self._ends.values()):
            if not end.dead:
                self.traffic.cut(end, "the proxy stopped")
        for road in self._roads:
            if road.busy is not None:
                road.busy.stop(self._now())
        for listener, *_ in self._listeners.values():
            listener.close()
        self._listeners.clear()
        with self._closing:
            if not self._epoll.closed:
                self._epoll.close()
                os.close(self._stop_fd)

    def _now(self) -> int:
        return time.monotonic_ns() - self._origin_ns

    def _listen(self, route: Route) -> None:
        up, down = self._road("up", route, route.up), self._road("down", route, route.down)
        family, address = _resolve(route.listen, "listen")
        to = _resolve(route.to, "to")
        listener = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        self._listeners[listener.fileno()] = (listener, to, up, down)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if up.shaped:
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, KERNEL_BYTES)
            _enlarge(listener, down)
            listener.bind(address)
            listener.listen(BACKLOG)
        except OSError as error:
            raise BadValue(
                f"listen {address_text(route.listen)}: {(error.strerror or str(error)).lower()}"
            ) from None
        self._epoll.register(listener, select.EPOLLIN)
        self.addresses.append(listener.getsockname()[:2])
        for road in (up, down):
            if self._busy is not None and road.shaped:
                road.busy = self._busy.link(address_text(self.addresses[-1]), road.direction)

    def _road(self, direction: str, route: Route, way: ProxyWay) -> Road:
        junction, ahead = self._junctions.get(direction), None
        why = ""
        if self._pacing != PROCESS:
            found = ahead_of(way.capacity, way.delay, junction is not None, self._queue_bytes)
            ahead, why = (None, found) if isinstance(found, str) else (found, "")
            if why and self._pacing == KERNEL and (way.capacity or junction):
                raise BadValue(
                    f"pacing kernel: link {address_text(route.listen)} {direction}: {why} (with"
                    " auto, this program paces such a link)"
                )
        road = Road(
            direction, Lane(len(self._roads), way.capacity, way.delay, junction, ahead), why
        )
        self._roads.append(road)
        return road

    def _pace(self, end: ConnectionEnd) -> PacedConnection | None:
        sock = self._socks[end].fileno()
        paced = PacedConnection(sock, os.fstat(sock).st_ino)
        return paced if paced.segment else None

    def _turn(self, at_latest_ns: int) -> int:
        """Send what is due and read while there is room; return when to continue."""
        began_ns = self._now()
        for junction in self._junctions.values():
            junction.advance(began_ns)
        for road in self._roads:
            if road.next_ns() <= began_ns:
                self.traffic.deliver(road)
        more = self.traffic.fill()
        ended_ns = self._now()
        if more:
            return ended_ns
        moments = [road.next_ns() for road in self._roads] + [
            junction.next_decision() for junction in self._junctions.values()
        ]
        rested_ns = ended_ns + min(REST_NS, REST_SHARE * (ended_ns - began_ns))
        return min(at_latest_ns, max(rested_ns, min(*moments, self.traffic.refill_ns)))

    def _wait(self, wake_ns: int) -> None:
        """Sleep until ``wake_ns`` or a socket event, and handle the events.

        The sleep uses select, because epoll rounds its timeout to milliseconds.
        """
        rest_ns = wake_ns - self._now()
        if rest_ns > 0 and not select.select([self._epoll], [], [], rest_ns / NS_PER_S)[0]:
            self.traffic.fidelity.wake(self._now() - wake_ns)
        for fd, events in self._epoll.poll(0, BATCH):
            end = self._ends.get(fd)
            if end is None:
                self._accept(fd)
                continue
            if events & select.EPOLLERR and end.finished:
                number = self._socks[end].getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
                self.traffic.is_broken(end, OSError(number, os.strerror(number)))
            if events & WRITABLE:
                self.traffic.is_writable(end)
            if events & READABLE:
                self.traffic.is_readable(end)

    def _accept(self, fd: int) -> None:
        """Accept one new connection if there is one and room for it; epoll reports the others."""
        if fd not in self._listeners:
            return
        listener, (family, to), up, down = self._listeners[fd]
        if self.traffic.totals.open >= self._most_open:
            self._ask_later(fd)
            return
        server = None
        try:
            server = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
            client, peer = listener.accept()
        except OSError as error:
            if server is not None:
                server.close()
            # with these two errors the client has just disconnected
            if not isinstance(error, (BlockingIOError, ConnectionAbortedError)):
                self._ask_later(fd)  # the system is out of sockets
            return
        record = ConnectionRecord(
            self.traffic.totals.opened,
            address_text(listener.getsockname()),
            address_text(peer),
            self._now(),
        )
        ends = (
            ConnectionEnd(client, "client", up, record),
            ConnectionEnd(server, "server", down, record),
        )
        self.traffic.opened(*ends)
        if down.shaped:
            server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, KERNEL_BYTES)
        _enlarge(server, up)
        server.connect_ex(to)  # the first read reports a failure
        for end, sock in zip(ends, (client, server)):
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with suppress(OSError):  # without it, bytes have come when they are read
                sock.setsockopt(socket.SOL_SOCKET, TIMESTAMPS, 1)
            self._ends[sock.fileno()], self._socks[end] = end, sock
            self._epoll.register(sock, EDGES)

    def _ask_later(self, fd: int) -> None:
        if not self._no_room:
            self._no_room = True
            most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
            with suppress(OSError):  # stderr may be closed
                print(
                    f"emulator: warning: clients wait until one of the {self.traffic.totals.open}"
                    f" connections ends: each needs two files, and this process may have {most}"
                    " open; raise that with ulimit -n",
                    file=sys.stderr,
                )
        self._epoll.unregister(fd)
        self._full_listeners.add(fd)

    def _ask_all(self) -> None:
        while self._full_listeners:
            self._epoll.register(self._full_listeners.pop(), select.EPOLLIN)

    def _hang_up(self, end: ConnectionEnd, reset: bool) -> None:
        sock = self._socks.pop(end)
        del self._ends[sock.fileno()]
        if reset:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
        sock.close()
        self._ask_all()

    def _show(self, status: TextIO | None) -> None:
        # Checked first, because a stopped terminal must not stop the traffic.
        if status is not None and select.select([], [status], [], 0)[1]:
            print(
                f"\r\x1b[K{self.traffic.totals.line(self._now(), self.traffic.fidelity.wake_lag)}",
                end="",
                file=status,
                flush=True,
            )


def _enlarge(sock: socket.socket, road: Road) -> None:
    """Give a socket the send buffer for what the kernel will space."""
    if road.lane.ahead is not None:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SENT_BYTES)


def _queue_bytes() -> int:
    """What a send buffer holds for sure if its connection is paced; 0: this system paces none."""
    with socket.socket() as sock:
        if not PacedConnection(sock.fileno(), os.fstat(sock.fileno()).st_ino).segment:
            return 0
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SENT_BYTES)
        # Linux reports twice what is asked for, half of it for its own use
        return sock.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) // 2


def _most_open(listeners: int) -> int:
    """Raise the limit on open files; return how many connections it allows, two sockets each."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return (
        max(1, (hard - SPARE_FILES - listeners) // 2) if hard != resource.RLIM_INFINITY else 2**20
    )


def _resolve(address: Address, what: str) -> SockAddr:
    try:
        found = socket.getaddrinfo(*address, type=socket.SOCK_STREAM)
    except UnicodeError:
        raise BadValue(
            f"{what} {address_text(address)}: is no name of a host (a part of it is empty or longer"
            " than 63 characters)"
        ) from None
    except OSError as error:
        raise BadValue(
            f"{what} {address_text(address)}: {(error.strerror or str(error)).lower()}"
        ) from None
    # A name such as localhost may have both addresses. IPv4 first, because programs that listen
    # only on IPv6 are rarer.
    family, _, _, _, sockaddr = min(found, key=lambda entry: entry[0] != socket.AF_INET)
    return family, sockaddr


@contextmanager
def running_proxy(
    to: Address | str,
    *,
    profile: str | None = None,
    up: str | None = None,
    down: str | None = None,
    latency: str | None = None,
    jitter: str | None = None,
    loss: str | None = None,
    seed: int = 0,
    pacing: str = PROCESS,
) -> Iterator[Proxy]:
    """A proxy with one emulated link to the TCP server at ``to``; it listens on ``.address``.

    Values are text with a unit, as in ``emulator proxy``. What is not given is not emulated.
    BadValue for what is wrong. Connections that are open at the end are reset. An error that ends
    the proxy earlier is raised at the end.
    """
    said = {"up": up, "down": down, "latency": latency, "jitter": jitter, "loss": loss}
    target = parse_address(to, "to") if isinstance(to, str) else (to[0], to[1])
    route = Route(("127.0.0.1", 0), target, *proxy_ways(profile, said, 2 * seed))
    proxy = Proxy([route], pacing=pacing)

    errors: list[BaseException] = []

    def carry() -> None:
        precise_timers()
        try:
            proxy.run()
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=carry, name="emulator proxy", daemon=True)
    thread.start()
    try:
        yield proxy
    finally:
        proxy.stop()
        thread.join()
        if errors:
            raise errors[0]
