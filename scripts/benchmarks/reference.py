"""Reference measurements of this machine without edgefl, made in the same run as the benchmark.

A goal that is a multiple of a reference holds on slow and fast machines. The benchmarks' bounds are
a third above the values measured in several runs on 2 cores, which the comments next to them give.
Code that takes 1.5 times as long misses them.
"""

from __future__ import annotations

import multiprocessing
import selectors
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from statistics import median
from tempfile import TemporaryFile
from typing import Any

import numpy as np
import psutil
import zmq

LOCAL = "127.0.0.1"
PATIENCE_S = 120.0
RELAY_BYTES = 1 << 16
BACKLOG = 512
FORKS = multiprocessing.get_context("fork")


def cpu_s(process: psutil.Process) -> float:
    """Return the CPU seconds that a process has used."""
    used = process.cpu_times()
    return used.user + used.system


# ------------------------------------------------------------------ ZeroMQ
@dataclass(frozen=True, slots=True)
class RawRounds:
    """Rounds over raw ZeroMQ; ``cpu_s`` is the CPU time of the ROUTER's process per round."""

    round_s: float
    cpu_s: float


def raw_rounds(edges: int, size: int, rounds: int, piece: int | None = None) -> RawRounds:
    """Measure rounds in which a ROUTER and ``edges`` DEALERs exchange ``size`` bytes each way.

    Every socket has its own process. ``piece``: the size of a message in bytes.
    """
    pieces = 1 if piece is None else -(-size // piece)
    ours, theirs = FORKS.Pipe()
    server = FORKS.Process(
        target=_serve, args=(theirs, edges, size // pieces, pieces, rounds), daemon=True
    )
    server.start()
    port = _heard(ours)
    echoes = [FORKS.Process(target=_echo, args=(port,), daemon=True) for _ in range(edges)]
    for each in echoes:
        each.start()
    found: RawRounds = _heard(ours)
    for process in (server, *echoes):
        process.join()
    return found


def _heard(pipe: Connection) -> Any:
    if not pipe.poll(PATIENCE_S):
        raise TimeoutError(f"the raw measurement did not answer within {PATIENCE_S:g} s")
    return pipe.recv()


def _serve(pipe: Connection, edges: int, size: int, pieces: int, rounds: int) -> None:
    sock = _socket_of(zmq.ROUTER)
    pipe.send(sock.bind_to_random_port(f"tcp://{LOCAL}"))
    names = [sock.recv_multipart()[0] for _ in range(edges)]
    body, seconds, used_s = bytes(size), [], 0.0
    for number in range(rounds + 1):
        if number == 1:  # the first round is the warm-up
            used_s = time.process_time()
        began_s = time.perf_counter()
        for _ in range(pieces):
            for name in names:
                sock.send_multipart([name, body], copy=False)
        for _ in range(edges * pieces):
            sock.recv_multipart(copy=False)
        seconds.append(time.perf_counter() - began_s)
    used_s = time.process_time() - used_s
    for name in names:
        sock.send_multipart([name, b""])
    pipe.send(RawRounds(median(seconds[1:]), used_s / (len(seconds) - 1)))
    sock.close()
    sock.context.term()  # after the last messages are sent


def _echo(port: int) -> None:
    sock = _socket_of(zmq.DEALER)
    sock.connect(f"tcp://{LOCAL}:{port}")
    sock.send(b"hello")
    while len(frame := sock.recv(copy=False)):
        sock.send(frame, copy=False)


def _socket_of(kind: int) -> zmq.Socket[bytes]:
    """A socket of this kind whose queues have no limit."""
    sock: zmq.Socket[bytes] = zmq.Context().socket(kind)
    sock.sndhwm = sock.rcvhwm = 0
    return sock


# ------------------------------------------------------------------ disk
def appending_s(arrays: int, size: int, rounds: int) -> float:
    """Return the seconds (median) in which ``arrays`` times ``size`` bytes are appended to a file.

    The bytes reach the operating system, as those of a journal do. If a virtual machine gets its
    memory on demand, pages that it has not used lately take ten times as long.
    """
    data, seconds = np.random.default_rng(0).bytes(size), []
    with TemporaryFile(prefix="edgefl-bench-", buffering=0) as file:
        for _ in range(rounds):
            began_s = time.perf_counter()
            for _ in range(arrays):
                file.write(data)
            seconds.append(time.perf_counter() - began_s)
    return median(seconds)


# ------------------------------------------------------------------ TCP
@contextmanager
def relay(upstream_port: int, piece: int = RELAY_BYTES) -> Iterator[tuple[int, psutil.Process]]:
    """Run a plain TCP relay from a new port to ``upstream_port``; yield (port, process).

    It reads pieces of at most ``piece`` bytes.
    """
    ours, theirs = FORKS.Pipe()
    process = FORKS.Process(target=_relay, args=(theirs, upstream_port, piece), daemon=True)
    process.start()
    try:
        yield _heard(ours), psutil.Process(process.pid)
    finally:
        process.kill()
        process.join()


def _relay(pipe: Connection, upstream_port: int, piece: int) -> None:
    listener = socket.create_server((LOCAL, 0), backlog=BACKLOG)
    pipe.send(listener.getsockname()[1])
    buffer, selector = bytearray(piece), selectors.DefaultSelector()
    view = memoryview(buffer)
    selector.register(listener, selectors.EVENT_READ)
    while True:
        for key, _ in selector.select():
            if key.fileobj is listener:
                _join(selector, listener.accept()[0], upstream_port)
            elif count := key.fileobj.recv_into(buffer):
                key.data.sendall(view[:count])
            else:
                selector.unregister(key.fileobj)
                key.data.shutdown(socket.SHUT_WR)


def _join(selector: selectors.BaseSelector, client: socket.socket, upstream_port: int) -> None:
    server = socket.create_connection((LOCAL, upstream_port))
    for sock, other in ((client, server), (server, client)):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        selector.register(sock, selectors.EVENT_READ, other)
