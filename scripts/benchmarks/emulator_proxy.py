"""Measure ``emulator proxy`` as a separate program, between sockets of this process."""

from __future__ import annotations

import json
import os
import selectors
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import psutil
from emulator_rows import (
    FIFO,
    MANY_LINKS,
    MB,
    RAW_PIECE_BYTES,
    Bound,
    Cell,
    Extent,
    Shot,
    as_child,
    busy_cores,
    end,
    error_rows,
    ideal_ms,
    offset_and_share,
    priorities,
    wake_rows,
)
from reference import RELAY_BYTES, cpu_s, relay
from table import TIMES, Row, say

from emulator.errors import BadValue
from emulator.host import real_time_priority
from emulator.proxy.proxy import KERNEL, PROCESS

LOCAL = "127.0.0.1"
COMMAND = [sys.executable, "-c", "from emulator.cli import main; main()"]
PAUSE_S = 0.05  # between transfers, until there is no more traffic
PATIENCE_S = 60.0
READ_BYTES = 1 << 18
SEND_EVERY_S = 0.005
TURNS = 3
SEEN_S, MOST_TIMES = 0.4, 30  # CPU clocks tick every 10 ms
UNSHAPED_BYTES = {Extent.TINY: 10 * MB, Extent.QUICK: 250 * MB, Extent.FULL: 1000 * MB}
# factors over a bare relay: CPU of 100 links (7.8 to 8.5 were measured); bytes/s (0.85 to 1.5)
CPU_GOAL, UNSHAPED_GOAL = "<= 10.5", ">= 0.72"
# ms; the kernel's pieces are 10 ms at most, and none but a short one may be early
EARLY_GOALS = {PROCESS: "<= 0", KERNEL: "<= 10"}
G1, G3, G4, G4_MANY = (
    Bound("%", 0.5, 1.0),
    Bound("%", 0.1, 0.1),
    Bound("%", 0.5),
    Bound("%", 1.0, 3.0),
)
BUSY_NORMAL, BUSY_FIFO = Bound("%", 2.0, 2.0), Bound("%", 0.3, 0.3)
Stamps = list[tuple[int, int]]  # (CLOCK_MONOTONIC in ns, total bytes)


@dataclass(slots=True)
class Running:
    """A running proxy with one port per link, all to our ``listener``.

    ``log`` is filled after its end.
    """

    ports: list[int]
    listener: socket.socket
    process: psutil.Process
    log: dict[str, Any]

    def connect(self, index: int = 0) -> tuple[socket.socket, socket.socket]:
        """Make a connection over a link; return (the client's socket, the server's socket)."""
        client = socket.create_connection((LOCAL, self.ports[index]), timeout=PATIENCE_S)
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        server, _ = self.listener.accept()
        server.settimeout(PATIENCE_S)
        return client, server


class ProxyLinks:
    """The part "proxy" of the benchmark: its cells, and the earliest arrival of all of them."""

    def __init__(self, extent: Extent, pacing: str) -> None:
        self.extent, self.quick, self.pacing = extent, extent < Extent.FULL, pacing
        self.early_ms: list[float] = []

    def rows(self) -> Iterator[Row]:
        for cell, way in self._single():
            yield from self.cell_rows(f"{cell.goal} proxy {way}, {cell.name}", cell, way)
        for cell in self._many():
            yield from self.many_rows(f"{cell.goal} proxy {cell.name}", cell)
        yield self.early_row("idle")
        for way in ("up", "down") if self.pacing == PROCESS else ():
            yield from unshaped_rows(way, UNSHAPED_BYTES[self.extent])

    def busy_rows(self) -> Iterator[Row]:
        """G5, with and without real-time priority; other rows have no goal here."""
        with busy_cores(self.extent):
            for priority in priorities(self.extent):
                cell = Cell(
                    "G5",
                    10,
                    50_000 if self.extent == Extent.TINY else 5_000_000,
                    repeat=1 if self.quick else 3,
                    bound=BUSY_FIFO if priority else BUSY_NORMAL,
                )
                yield from self.cell_rows(
                    f"G5 proxy, cores busy, {FIFO if priority else 'normal priority'}: {cell.name}",
                    cell,
                    "up",
                    priority,
                )
            if not self.quick:
                yield from self.many_rows(
                    "proxy, cores busy: 20 x 2 Mbit/s, 0.25 MB", Cell("", 2, 250_000, links=20)
                )
        yield self.early_row("cores busy")

    def cell_rows(self, name: str, cell: Cell, way: str, priority: bool = True) -> list[Row]:
        found, log = measure(cell, way, priority, self.early_ms, self.pacing)
        rows = [*error_rows(name, found, cell.bound), *paced_rows(name, log)]
        return rows + (
            wake_rows(name, log["fidelity"]["wake_lag_ms"]) if cell.goal in ("G2", "G5") else []
        )

    def many_rows(self, name: str, cell: Cell) -> list[Row]:
        found, log, used = measure_many(cell, self.early_ms, self.pacing)
        raw_s = relayed_cpu_s(cell)
        judged = cell.links >= MANY_LINKS and cell.bound.median
        return [
            *error_rows(name, found, cell.bound),
            Row(f"{name}: CPU", 100 * used.cpu_s / used.lasted_s, "% of a core"),
            Row(
                f"{name}: CPU / bare relay",
                used.cpu_s / raw_s if raw_s else None,
                TIMES,
                CPU_GOAL if judged else None,
            ),
            *wake_rows(name, log["fidelity"]["wake_lag_ms"]),
            *paced_rows(name, log),
        ]

    def early_row(self, when: str) -> Row:
        early_ms, self.early_ms = max(self.early_ms, default=None), []
        return Row(
            f"proxy, {when}: bytes ahead of the curve, most",
            None if early_ms is None else max(0.0, early_ms),
            "ms",
            EARLY_GOALS[self.pacing],
        )

    def _single(self) -> Iterator[tuple[Cell, str]]:
        if self.extent == Extent.TINY:
            yield Cell("G1", 20, 50_000, repeat=1, bound=G1), "up"
            return
        repeat = 2 if self.quick else 5
        if not self.quick:
            yield Cell("G1", 1, 62_500, bound=G1), "up"
            yield Cell("G1", 2, 250_000, bound=G1), "up"
        yield Cell("G1", 10, 1_000_000, repeat=repeat, bound=G1), "up"
        if not self.quick:
            yield Cell("G1", 10, 1_000_000, bound=G1), "down"
            yield Cell("G1", 10, 1_000_000, latency_ms=30, bound=G1), "up"
        for size in (250_000, 1_000_000) if self.quick else (250_000, 1_000_000, 10_000_000):
            cell = Cell("G2", 100, size)
            cell = replace(cell, bound=offset_and_share(cell.ideal_ms, (1.0, 0.2), (3.0, 0.5)))
            yield cell, "up"
            if size == MB and not self.quick:
                yield cell, "down"
        yield Cell("G3", 10, 10_000_000, repeat=1 if self.quick else 3, bound=G3), "up"

    def _many(self) -> Iterator[Cell]:
        if self.extent == Extent.TINY:
            yield Cell("G4", 20, 50_000, links=2, bound=G4_MANY)
            return
        yield Cell("G4", 2, 250_000, links=20, bound=G4)
        if not self.quick:
            yield Cell("G4", 10, 1_000_000, links=20, bound=G4)
        yield Cell("G4", 2, 250_000 if self.quick else 1_000_000, links=100, bound=G4_MANY)


@contextmanager
def running(options: list[str], links: int = 1, priority: bool = True) -> Iterator[Running]:
    """Run a proxy with ``links`` equal links; on exit, end it and read its log."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-emulator-")))
        listener = stack.enter_context(socket.create_server((LOCAL, 0), backlog=512))
        listener.settimeout(PATIENCE_S)
        maps = [f"--map={LOCAL}:0={LOCAL}:{listener.getsockname()[1]}"] * links
        command = [*COMMAND, "proxy", *options, *maps, "--log", str(folder / "log.json")]
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True, preexec_fn=as_child(priority)
        )
        stack.enter_context(process)
        proxy = Running([], listener, psutil.Process(process.pid), {})
        try:
            assert process.stdout is not None
            for line in process.stdout:
                if line.startswith("listening on"):
                    proxy.ports.append(int(line.split()[2].rstrip(",").rpartition(":")[2]))
                if line.startswith("Next:"):
                    break
            if not proxy.ports:
                raise BadValue(
                    f"emulator proxy {' '.join(options)}: ended with status {process.wait()} before"
                    " it listened"
                )
            time.sleep(PAUSE_S)
            yield proxy
        finally:
            end(process)
        proxy.log.update(json.loads((folder / "log.json").read_text(encoding="utf-8")))


def paced_rows(name: str, log: dict[str, Any]) -> list[Row]:
    """The share of the bytes that the kernel spaced, if it was asked."""
    carried, spaced = (
        sum(link[key] for link in log["pacing"]) for key in ("bytes", "kernel_bytes")
    )
    return [Row(f"{name}: bytes that the kernel spaced", 100 * spaced / carried, "%")] * (
        spaced > 0
    )


def shape(cell: Cell, pacing: str) -> list[str]:
    late = ["--latency", f"{cell.latency_ms:g}ms"] if cell.latency_ms else []
    rates = ["--up", f"{cell.rate_bit_s}bit", "--down", f"{cell.rate_bit_s}bit"]
    return [*rates, *late, "--pacing", pacing]


def measure(
    cell: Cell,
    way: str,
    priority: bool = True,
    early_ms: list[float] | None = None,
    pacing: str = PROCESS,
) -> tuple[list[Shot], dict[str, Any]]:
    """Time ``cell.repeat`` transfers, one connection each.

    For each transfer, the largest lead of a byte over the service curve is appended to
    ``early_ms``.
    """
    say(f"proxy, {pacing}: {way}, {cell.name}, {cell.repeat} times")
    payload, found = os.urandom(cell.size), []
    with running(shape(cell, pacing), priority=priority) as proxy:
        for _ in range(cell.repeat):
            began_ns, stamps = carried(proxy, way, payload)
            found.append(Shot((stamps[-1][0] - began_ns) / 1e6, cell.ideal_ms))
            if early_ms is not None:
                early_ms.append(
                    max(
                        ideal_ms(size, cell.rate_bit_s, cell.latency_ms) - (at_ns - began_ns) / 1e6
                        for at_ns, size in stamps
                    )
                )
    return found, proxy.log


def carried(proxy: Running, way: str, payload: bytes) -> tuple[int, Stamps]:
    """Transfer ``payload`` over a new connection; return (moment before the start, arrivals)."""
    client, server = proxy.connect()
    sender, receiver = (client, server) if way == "up" else (server, client)
    stamps: Stamps = []
    with client, server:
        thread = threading.Thread(target=_receive, args=(receiver, stamps))
        thread.start()
        time.sleep(2 * PAUSE_S)
        began_ns = time.monotonic_ns()
        sender.sendall(payload)
        sender.shutdown(socket.SHUT_WR)
        thread.join()
    if not stamps or stamps[-1][1] != len(payload):
        raise RuntimeError(
            f"{stamps[-1][1] if stamps else 0} of {len(payload)} bytes passed the proxy"
        )
    time.sleep(PAUSE_S)
    return began_ns, stamps


def _receive(sock: socket.socket, stamps: Stamps) -> None:
    real_time_priority()  # otherwise a busy machine makes the stamps late, not the proxy
    buffer, got = bytearray(READ_BYTES), 0
    while count := sock.recv_into(buffer):
        got += count
        stamps.append((time.monotonic_ns(), got))


def unshaped_rows(way: str, size: int) -> list[Row]:
    """Compare the highest rate of the proxy with that of a bare relay, measured in turns."""
    say(f"proxy: {way}, not shaped")
    with running([]) as proxy, relayed() as bare:
        rates = [(_gbit_s(proxy, way, size), _gbit_s(bare, way, size)) for _ in range(TURNS)]
    ours, raw = (max(column) for column in zip(*rates))
    return [
        Row(f"proxy {way}, not shaped", ours, "Gbit/s"),
        Row(f"proxy {way}, not shaped / bare relay", ours / raw, TIMES, UNSHAPED_GOAL),
    ]


def _gbit_s(proxy: Running, way: str, size: int) -> float:
    began_ns, stamps = carried(proxy, way, bytes(size))
    return 8 * size / (stamps[-1][0] - began_ns)


@contextmanager
def relayed(piece: int = RELAY_BYTES, links: int = 1) -> Iterator[Running]:
    """Run a bare relay instead of the proxy."""
    with socket.create_server((LOCAL, 0), backlog=512) as listener:
        listener.settimeout(PATIENCE_S)
        with relay(listener.getsockname()[1], piece) as (port, process):
            yield Running([port] * links, listener, process, {})


# ------------------------------------------------------------------ many links at once
@dataclass(frozen=True, slots=True)
class Used:
    """CPU seconds, and the elapsed time."""

    cpu_s: float
    lasted_s: float


def measure_many(
    cell: Cell, early_ms: list[float], pacing: str = PROCESS, priority: bool = True
) -> tuple[list[Shot], dict[str, Any], Used]:
    """Time one upload on all links at once; also measure the CPU time of the proxy."""
    say(f"proxy, {pacing}: {cell.name}")
    with running(shape(cell, pacing), links=cell.links, priority=priority) as proxy:
        began_ns, stamps, used = all_at_once(proxy, cell)
    for began, arrived in zip(began_ns, stamps):
        early_ms.append(
            max(
                ideal_ms(size, cell.rate_bit_s, cell.latency_ms) - (at_ns - began) / 1e6
                for at_ns, size in arrived
            )
        )
    return timed(cell, began_ns, stamps), proxy.log, used


def timed(cell: Cell, began_ns: list[int], stamps: list[Stamps]) -> list[Shot]:
    return [
        Shot((arrived[-1][0] - began) / 1e6, cell.ideal_ms)
        for began, arrived in zip(began_ns, stamps)
    ]


def relayed_cpu_s(cell: Cell) -> float:
    """CPU seconds of a bare relay for the same bytes.

    It repeats the transfer until the coarse CPU clock shows it.
    """
    with relayed(RAW_PIECE_BYTES, cell.links) as bare:
        used_s, times = 0.0, 0
        while not times or (used_s < SEEN_S and times < MOST_TIMES):
            used_s, times = used_s + all_at_once(bare, cell)[2].cpu_s, times + 1
    return used_s / times


def all_at_once(proxy: Running, cell: Cell) -> tuple[list[int], list[Stamps], Used]:
    """Upload on all links at once.

    Return (the start of each link, the arrivals of each link, the CPU time of the proxy).
    """
    with ExitStack() as stack:
        pairs = [proxy.connect(index) for index in range(cell.links)]
        for sock in (sock for pair in pairs for sock in pair):
            stack.enter_context(sock).setblocking(False)
        time.sleep(2 * PAUSE_S)
        began_s, used_s = time.monotonic(), cpu_s(proxy.process)
        began_ns, stamps = uploaded(pairs, cell.size)
        used = Used(cpu_s(proxy.process) - used_s, time.monotonic() - began_s)
    return began_ns, stamps, used


def uploaded(
    pairs: list[tuple[socket.socket, socket.socket]], size: int
) -> tuple[list[int], list[Stamps]]:
    """Send ``size`` bytes on all these connections at once; return their starts and arrivals.

    Both ends have real-time priority, see ``_receive``.
    """
    payload, began_ns = memoryview(os.urandom(size)), [0] * len(pairs)
    with ThreadPoolExecutor(2, initializer=real_time_priority) as ends:
        sent = ends.submit(_send_all, [client for client, _ in pairs], payload, began_ns)
        stamps = ends.submit(_receive_all, [server for _, server in pairs], size).result()
        sent.result()
    return began_ns, stamps


def _send_all(socks: list[socket.socket], payload: memoryview, began_ns: list[int]) -> None:
    left = [payload] * len(socks)
    while any(left):
        for index, sock in enumerate(socks):
            if not left[index]:
                continue
            began_ns[index] = began_ns[index] or time.monotonic_ns()
            try:
                left[index] = left[index][sock.send(left[index]) :]
            except BlockingIOError:
                continue
        time.sleep(SEND_EVERY_S)


def _receive_all(socks: list[socket.socket], size: int) -> list[Stamps]:
    stamps: list[Stamps] = [[] for _ in socks]
    buffer = bytearray(READ_BYTES)
    with selectors.DefaultSelector() as selector:
        for index, sock in enumerate(socks):
            selector.register(sock, selectors.EVENT_READ, index)
        while selector.get_map():
            for key, _ in selector.select():
                arrived = stamps[key.data]
                count = socks[key.data].recv_into(buffer)
                arrived.append((time.monotonic_ns(), count + (arrived[-1][1] if arrived else 0)))
                if arrived[-1][1] >= size or not count:
                    selector.unregister(socks[key.data])
    return stamps
