"""Check that `emulator proxy` frees ended connections: its memory over 10,000 short ones."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator

from emulator_proxy import PAUSE_S, Running, running
from emulator_rows import Extent
from table import Row, say

CONNECTIONS = {Extent.TINY: (10, 100), Extent.QUICK: (1_000, 10_000), Extent.FULL: (1_000, 10_000)}
LOOKS = 10
GOAL = "<= 4"
MIB = 1 << 20
REQUEST, ANSWER = bytes(200), bytes(1000)


def rows(extent: Extent) -> Iterator[Row]:
    """Measure the growth of memory, after a warm-up that fills the pools of the interpreter.

    The link is shaped and has a latency, so that connections pass through every queue.
    """
    warm, measured = CONNECTIONS[extent]
    say(f"proxy: {measured} short connections")
    with running(["--up", "1gbit", "--down", "1gbit", "--latency", "0.1ms"]) as proxy:
        _connect(proxy, warm)
        before, most, began_s = proxy.process.memory_info().rss, 0, time.monotonic()
        for _ in range(LOOKS):
            _connect(proxy, measured // LOOKS)
            most = max(most, proxy.process.memory_info().rss)
        lasted_s = time.monotonic() - began_s
        time.sleep(PAUSE_S)
    ended = len(proxy.log["connections"])
    yield Row(
        f"proxy, {measured} short connections: memory grows by, most",
        (most - before) / MIB,
        "MiB",
        GOAL,
    )
    yield Row(
        f"proxy, {measured} short connections: those in its log that were not closed properly",
        _failed(proxy),
        "",
        "<= 0",
    )
    yield Row(
        f"proxy, {measured} short connections: missing in its log",
        warm + measured - ended,
        "",
        "<= 0",
    )
    yield Row(f"proxy, {measured} short connections: one takes", 1e3 * lasted_s / measured, "ms")


def _connect(proxy: Running, times: int) -> None:
    """Make ``times`` connections one after the other: request, answer, close."""
    for _ in range(times):
        client, server = proxy.connect()
        with client, server:
            client.sendall(REQUEST)
            server.recv(len(REQUEST), socket.MSG_WAITALL)
            server.sendall(ANSWER)
            server.shutdown(socket.SHUT_WR)
            while client.recv(1 << 16):
                pass


def _failed(proxy: Running) -> int:
    return sum(connection["end"] != "closed" for connection in proxy.log["connections"])
