"""Measure ``emulator kernel``: a program in its namespace against a server on this host.

Needs root.
"""

from __future__ import annotations

import ctypes
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

from emulator_proxy import COMMAND, timed, uploaded
from emulator_rows import Bound, Cell, Extent, Shot, as_child, end, error_rows
from table import Row, say

from emulator.errors import BadValue
from emulator.lab.attached import examine
from emulator.lab.running import Lab
from emulator.lab.system import NAMESPACE_FILES, choose, require_tools, tools
from emulator.lab.topology import KernelWay

G7 = Bound("%", 1.5)
PATIENCE_S, CLONE_NEWNET = 60.0, 0x40000000
STAMP = struct.Struct("<q")
CLIENT = """
import os, socket, struct, sys, time
way, size, times, port = sys.argv[1], *map(int, sys.argv[2:])
for _ in range(times):
    sock = socket.create_connection((os.environ["EMULATOR_HOST_ADDRESS"], port), timeout=60)
    if way == "up":
        body = bytes(size - 8)
        sock.sendall(struct.pack("<q", time.monotonic_ns()) + body)
        sock.recv(1)
        continue
    sock.sendall(b"g")
    buffer, head, got = bytearray(1 << 16), b"", 0
    while got < size and (count := sock.recv_into(buffer)):
        at_ns, got, head = time.monotonic_ns(), got + count, (head + buffer[:8])[:8]
    sock.sendall(struct.pack("<q", at_ns - struct.unpack("<q", head)[0] if got == size else -1))
    sock.recv(1)
"""


class KernelLinks:
    """The part "kernel" of the benchmark."""

    def __init__(self, extent: Extent) -> None:
        self.extent, self.quick = extent, extent < Extent.FULL

    def rows(self) -> Iterator[Row]:
        why = why_not()
        if why is not None:
            yield Row("G7 kernel mode", f"not measured: {why}")
            return
        for shaper in shapers()[: 1 if self.quick else None]:
            for way in ("up", "down"):
                for cell in self._cells():
                    yield from error_rows(
                        f"G7 kernel {shaper} {way}, {cell.name}",
                        measure(cell, way, shaper),
                        cell.bound,
                    )

    def _cells(self) -> list[Cell]:
        if self.extent == Extent.TINY:
            return [Cell("G7", 100, 100_000, repeat=1, bound=G7)]
        repeat = 2 if self.quick else 5
        cells = [
            Cell("G7", 10, 1_000_000, repeat=repeat, bound=G7),
            Cell("G7", 100, 1_000_000, repeat=repeat, bound=G7),
        ]
        return (
            cells
            if self.quick
            else [
                *cells,
                Cell("G7", 30, 1_000_000, bound=G7),
                Cell("G7", 100, 10_000_000, bound=G7),
            ]
        )


def why_not() -> str | None:
    """Return the reason why kernel mode cannot be measured here, or None."""
    try:
        require_tools(tools(), "kernel mode")
        choose(examine(), KernelWay(1_000_000), KernelWay(1_000_000))
    except BadValue as error:
        return str(error)
    return None


def shapers() -> list[str]:
    system = examine()
    return [kind for kind in ("htb", "tbf") if getattr(system, f"sch_{kind}")]


def measure(cell: Cell, way: str, shaper: str | None = None) -> list[Shot]:
    """Time ``cell.repeat`` transfers.

    Both ends use the CLOCK_MONOTONIC of the machine; the sender reads it after it has made the
    payload.
    """
    say(f"kernel: {shaper or ''} {way}, {cell.name}, {cell.repeat} times")
    took_ns: list[int] = []
    with socket.create_server(("0.0.0.0", 0)) as listener:
        listener.settimeout(PATIENCE_S)
        thread = threading.Thread(target=_serve, args=(listener, way, cell, took_ns))
        thread.start()
        shape = [
            "--up",
            f"{cell.rate_bit_s}bit",
            "--down",
            f"{cell.rate_bit_s}bit",
            *(["--shaper", shaper] if shaper else []),
        ]
        client = [
            sys.executable,
            "-c",
            CLIENT,
            way,
            str(cell.size),
            str(cell.repeat),
            str(listener.getsockname()[1]),
        ]
        process = subprocess.Popen(
            [*COMMAND, "kernel", "run", *shape, "--", *client],
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=as_child(),
        )
        try:
            _, complaints = process.communicate(
                timeout=PATIENCE_S + cell.repeat * cell.ideal_ms / 500
            )
        finally:
            end(process)
            listener.close()
            thread.join()
    if process.returncode or len(took_ns) < cell.repeat:
        raise BadValue(
            f"kernel mode: status {process.returncode}, {len(took_ns)} of {cell.repeat} transfers:"
            f" {complaints.strip()}"
        )
    return [Shot(ns / 1e6, cell.ideal_ms) for ns in took_ns]


def measure_many(cell: Cell) -> list[Shot]:
    """Time one upload over all links at once, each from a network namespace of its own."""
    say(f"lab: {cell.name}")
    topology = {
        "name": "bench",
        "hosts": [{"name": "here", "here": True}, {"name": f"edge-[1-{cell.links}]"}],
        "links": [
            {"from": f"edge-[1-{cell.links}]", "to": "here", "rate": f"{cell.rate_bit_s}bit"}
        ],
    }
    with (
        Lab(topology) as lab,
        socket.create_server(("0.0.0.0", 0), backlog=512) as listener,
        ExitStack() as stack,
    ):
        pairs = []
        for number in range(1, cell.links + 1):
            edge = lab.host(f"edge-{number}")
            address = (edge.outside_address, listener.getsockname()[1])
            with ThreadPoolExecutor(1) as inside:  # its thread is in the namespace
                client = inside.submit(_connected, edge.namespace, address).result()
            pairs.append((stack.enter_context(client), stack.enter_context(listener.accept()[0])))
        for sock in (sock for pair in pairs for sock in pair):
            sock.setblocking(False)
        return timed(cell, *uploaded(pairs, cell.size))


def _connected(namespace: str, address: tuple[str, int]) -> socket.socket:
    with (NAMESPACE_FILES / namespace).open("rb") as file:
        if ctypes.CDLL(None, use_errno=True).setns(file.fileno(), CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), namespace)
    return socket.create_connection(address, timeout=PATIENCE_S)


def _serve(listener: socket.socket, way: str, cell: Cell, took_ns: list[int]) -> None:
    try:
        for _ in range(cell.repeat):
            sock, _ = listener.accept()
            with sock:
                sock.settimeout(PATIENCE_S)
                took_ns.append(
                    _received(sock, cell.size) if way == "up" else _sent(sock, cell.size)
                )
                sock.sendall(b"k")
    except OSError:
        return  # the program did not connect; the benchmark sees this from its exit status


def _received(sock: socket.socket, size: int) -> int:
    buffer, head, got, at_ns = bytearray(1 << 16), b"", 0, 0
    while got < size and (count := sock.recv_into(buffer)):
        at_ns, got, head = time.monotonic_ns(), got + count, (head + buffer[:8])[:8]
    return at_ns - STAMP.unpack(head)[0]


def _sent(sock: socket.socket, size: int) -> int:
    sock.recv(1)
    body = bytes(size - STAMP.size)
    sock.sendall(STAMP.pack(time.monotonic_ns()) + body)
    return int(STAMP.unpack(sock.recv(STAMP.size))[0])
