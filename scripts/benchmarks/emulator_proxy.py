"""``emulator proxy`` as a program of its own, between sockets of this process that stamp what
they receive.
"""

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
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import psutil
from emulator_rows import (
    FIFO,
    MB,
    Bound,
    Cell,
    Shot,
    as_child,
    busy_cores,
    end,
    error_rows,
    ideal_ms,
    may_have_priority,
    offset_and_share,
    real_time,
    wake_rows,
)
from table import Row, say

LOCAL = "127.0.0.1"
COMMAND = [sys.executable, "-c", "from emulator.cli import main; main()"]
PAUSE_S = 0.05  # between transfers: everything is quiet again
PATIENCE_S = 60.0
READ_BYTES = 1 << 18
SEND_EVERY_S = 0.005
CPU_GOAL, UNSHAPED_GOAL, EARLY_GOAL = "<= 40", ">= 1", "<= 0"
G1, G3, G4, G4_MANY = (
    Bound("%", 0.5, 1.0),
    Bound("%", 0.1, 0.1),
    Bound("%", 0.5),
    Bound("%", 1.0, 3.0),
)
BUSY_NORMAL, BUSY_FIFO = Bound("%", 2.0, 2.0), Bound("%", 0.3, 0.3)
Stamps = list[tuple[int, int]]  # (CLOCK_MONOTONIC, bytes in all)


@dataclass(slots=True)
class Running:
    """A proxy that carries traffic: one port for each link, all to our ``listener``. ``log`` is
    filled when it has ended.
    """

    ports: list[int]
    listener: socket.socket
    process: psutil.Process
    log: dict[str, Any]

    def connect(self, index: int = 0) -> tuple[socket.socket, socket.socket]:
        """(the client's end, the server's end) of a new connection over a link."""
        client = socket.create_connection((LOCAL, self.ports[index]), timeout=PATIENCE_S)
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        server, _ = self.listener.accept()
        server.settimeout(PATIENCE_S)
        return client, server


class ProxyLinks:
    """The part of the bench: its cells, and the earliest arrival over all of them."""

    def __init__(self, quick: bool) -> None:
        self.quick = quick
        self.early_ms: list[float] = []

    def rows(self) -> Iterator[Row]:
        for cell, way in self._single():
            yield from self.cell_rows(f"{cell.goal} proxy {way}, {cell.name}", cell, way)
        for cell in self._many():
            yield from self.many_rows(f"{cell.goal} proxy {cell.name}", cell)
        yield self.early_row("idle")
        for way in ("up", "down"):
            yield Row(
                f"proxy {way}, not shaped",
                unshaped_gbit_s(way, 250 * MB if self.quick else 1000 * MB),
                "Gbit/s",
                UNSHAPED_GOAL,
            )

    def busy_rows(self) -> Iterator[Row]:
        """G5, with real-time priority and without it; other rows have no goal here."""
        with busy_cores():
            for priority in (True, False) if may_have_priority() else (False,):
                cell = Cell(
                    "G5",
                    10,
                    5_000_000,
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
        found, log = measure(cell, way, priority, self.early_ms)
        rows = error_rows(name, found, cell.bound)
        return rows + (
            wake_rows(name, log["fidelity"]["wake_lag_ms"]) if cell.goal in ("G2", "G5") else []
        )

    def many_rows(self, name: str, cell: Cell) -> list[Row]:
        found, log, cpu_percent = measure_many(cell, self.early_ms)
        goal = CPU_GOAL if cell.links >= 100 and cell.bound.median else None
        return [
            *error_rows(name, found, cell.bound),
            Row(f"{name}: CPU", cpu_percent, "% of a core", goal),
            *wake_rows(name, log["fidelity"]["wake_lag_ms"]),
        ]

    def early_row(self, when: str) -> Row:
        early_ms, self.early_ms = max(self.early_ms, default=None), []
        return Row(
            f"proxy, {when}: bytes ahead of the curve, most",
            None if early_ms is None else max(0.0, early_ms),
            "ms",
            EARLY_GOAL,
        )

    def _single(self) -> Iterator[tuple[Cell, str]]:
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
        yield Cell("G4", 2, 250_000, links=20, bound=G4)
        if not self.quick:
            yield Cell("G4", 10, 1_000_000, links=20, bound=G4)
        yield Cell("G4", 2, 250_000 if self.quick else 1_000_000, links=100, bound=G4_MANY)


@contextmanager
def running(options: list[str], links: int = 1, priority: bool = True) -> Iterator[Running]:
    """A proxy of ``links`` links alike; it has ended, and its log is read, when this is left."""
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
            time.sleep(PAUSE_S)
            yield proxy
        finally:
            end(process)
        proxy.log.update(json.loads((folder / "log.json").read_text(encoding="utf-8")))


def shape(cell: Cell) -> list[str]:
    late = ["--latency", f"{cell.latency_ms:g}ms"] if cell.latency_ms else []
    return ["--up", f"{cell.rate_bit_s}bit", "--down", f"{cell.rate_bit_s}bit", *late]


def measure(
    cell: Cell, way: str, priority: bool = True, early_ms: list[float] | None = None
) -> tuple[list[Shot], dict[str, Any]]:
    """``cell.repeat`` transfers, a connection each; how far a byte was ahead of the curve goes
    to ``early_ms``.
    """
    say(f"proxy: {way}, {cell.name}, {cell.repeat} times")
    payload, found = os.urandom(cell.size), []
    with running(shape(cell), priority=priority) as proxy:
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
    """(stamp before the first byte was sent, arrivals) of one transfer over a new connection."""
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
            f"{stamps[-1][1] if stamps else 0} of {len(payload)} bytes came through the proxy"
        )
    time.sleep(PAUSE_S)
    return began_ns, stamps


def _receive(sock: socket.socket, stamps: Stamps) -> None:
    real_time()  # or a busy machine would make the stamps late, not the proxy
    buffer, got = bytearray(READ_BYTES), 0
    while count := sock.recv_into(buffer):
        got += count
        stamps.append((time.monotonic_ns(), got))


def unshaped_gbit_s(way: str, size: int) -> float:
    """The best of three: how fast the proxy can be."""
    say(f"proxy: {way}, not shaped")
    payload, best = bytes(size), 0.0
    with running([]) as proxy:
        for _ in range(3):
            began_ns, stamps = carried(proxy, way, payload)
            best = max(best, 8 * size / (stamps[-1][0] - began_ns))
    return best


# ------------------------------------------------------------------ many links at once
def measure_many(cell: Cell, early_ms: list[float]) -> tuple[list[Shot], dict[str, Any], float]:
    """All links at once, upwards; also the CPU of the proxy meanwhile, as % of a core."""
    say(f"proxy: {cell.name}")
    payload = memoryview(os.urandom(cell.size))
    with running(shape(cell), links=cell.links) as proxy, ExitStack() as stack:
        pairs = [proxy.connect(index) for index in range(cell.links)]
        for sock in (sock for pair in pairs for sock in pair):
            stack.enter_context(sock).setblocking(False)
        time.sleep(2 * PAUSE_S)
        began_s, used_s = time.monotonic(), _cpu_s(proxy.process)
        began_ns = [0] * cell.links
        thread = threading.Thread(
            target=_send_all, args=([client for client, _ in pairs], payload, began_ns)
        )
        thread.start()
        stamps = _receive_all([server for _, server in pairs], cell.size)
        cpu_percent = 100 * (_cpu_s(proxy.process) - used_s) / (time.monotonic() - began_s)
        thread.join()
    for began, arrived in zip(began_ns, stamps):
        early_ms.append(
            max(
                ideal_ms(size, cell.rate_bit_s, cell.latency_ms) - (at_ns - began) / 1e6
                for at_ns, size in arrived
            )
        )
    return (
        [
            Shot((arrived[-1][0] - began) / 1e6, cell.ideal_ms)
            for began, arrived in zip(began_ns, stamps)
        ],
        proxy.log,
        cpu_percent,
    )


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


def _cpu_s(process: psutil.Process) -> float:
    used = process.cpu_times()
    return used.user + used.system
