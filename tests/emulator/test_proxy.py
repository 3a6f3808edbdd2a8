"""The proxy in front of real programs, over real sockets.

No test here checks a speed; closed forms are in test_proxy_traffic.py.
"""

from __future__ import annotations

import contextlib
import csv
import hashlib
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from emulator.capacity import Capacity
from emulator.capacity.rates import Constant
from emulator.cli import run
from emulator.delay import Latency
from emulator.errors import BadValue
from emulator.proxy.proxy import Proxy, running_proxy
from emulator.proxy.record import Log
from emulator.proxy.routes import ProxyWay, Route
from emulator.proxy.traffic import UNTAKEN_BYTES

pytestmark = [pytest.mark.processes, pytest.mark.alone]

LOCAL = "127.0.0.1"
PATIENCE_S = 10
Handler = Callable[[socket.socket], None]


class Running:
    """A proxy in a thread; ``port`` is that of its first address."""

    def __init__(self, proxy: Proxy) -> None:
        self.proxy = proxy
        self.port = proxy.addresses[0][1]
        self.thread = threading.Thread(target=proxy.run, daemon=True)
        self.thread.start()

    def connect(self, index: int = 0) -> socket.socket:
        return socket.create_connection(self.proxy.addresses[index], timeout=PATIENCE_S)

    def stop(self) -> None:
        self.proxy.stop()
        self.thread.join(PATIENCE_S)
        assert not self.thread.is_alive()

    def settle(self) -> None:
        """Wait until no connection is open."""
        wait_until(lambda: self.proxy.traffic.totals.open == 0)


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, "it never came"
        time.sleep(0.005)


class Servers:
    """Everything that a test starts; it is stopped after the test."""

    def __init__(self) -> None:
        self._stops: list[Callable[[], None]] = []

    def proxy(
        self,
        *ports: int,
        up: int | None = None,
        down: int | None = None,
        delay_ns: int = 0,
        shared_up: Capacity | None = None,
        log: Log | None = None,
        pacing: str = "process",
    ) -> Running:
        up_way, down_way = (
            ProxyWay(None if rate is None else Constant(rate), Latency(delay_ns))
            for rate in (up, down)
        )
        running = Running(
            Proxy(
                [Route((LOCAL, 0), (LOCAL, port), up_way, down_way) for port in ports],
                shared_up=shared_up,
                log=log,
                pacing=pacing,
            )
        )
        self._stops.append(running.stop)
        return running

    def serve(self, handler: Handler) -> int:
        """Start a server that runs ``handler`` in a thread per connection; return its port."""
        listener = socket.create_server((LOCAL, 0), backlog=256)
        threading.Thread(target=self._accept, args=(listener, handler), daemon=True).start()
        # shutdown wakes a blocked accept; close does not
        self._stops.append(lambda: (listener.shutdown(socket.SHUT_RDWR), listener.close()))
        return listener.getsockname()[1]

    def stop(self) -> None:
        for stop in reversed(self._stops):
            stop()

    def later(self, stop: Callable[[], None]) -> None:
        self._stops.append(stop)

    def _accept(self, listener: socket.socket, handler: Handler) -> None:
        while True:
            try:
                sock, _ = listener.accept()
            except OSError:
                return
            sock.settimeout(PATIENCE_S)
            threading.Thread(target=self._handle, args=(handler, sock), daemon=True).start()

    def _handle(self, handler: Handler, sock: socket.socket) -> None:
        with contextlib.suppress(ConnectionError):  # many tests reset their connections
            handler(sock)


@pytest.fixture
def servers() -> Iterator[Servers]:
    servers = Servers()
    yield servers
    servers.stop()


def test_a_stop_is_not_overtaken_by_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    up, down = (ProxyWay(None, Latency(0)) for _ in range(2))
    proxy = Proxy([Route((LOCAL, 0), (LOCAL, 1), up, down)])
    closer, write = threading.Thread(target=proxy.close), os.eventfd_write

    def slowly(file: int, value: int) -> None:
        closer.start()
        closer.join(0.2)  # another thread ends the proxy meanwhile, if it may
        write(file, value)

    monkeypatch.setattr(os, "eventfd_write", slowly)
    proxy.stop()
    closer.join(PATIENCE_S)
    assert not closer.is_alive()


def read_all(sock: socket.socket) -> bytes:
    parts = []
    while part := sock.recv(1 << 18):
        parts.append(part)
    return b"".join(parts)


def echo(sock: socket.socket) -> None:
    with sock:
        while part := sock.recv(1 << 16):
            sock.sendall(part)


def reset(sock: socket.socket) -> None:
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


by_whom = pytest.mark.parametrize("pacing", ["process", "auto"])


@by_whom
def test_a_stream_both_ways(servers: Servers, pacing: str) -> None:
    running = servers.proxy(servers.serve(echo), up=4 * 10**8, down=3 * 10**7, pacing=pacing)
    content = os.urandom(2 * 2**20)
    with running.connect() as sock:
        sender = threading.Thread(
            target=lambda: (sock.sendall(content), sock.shutdown(socket.SHUT_WR))
        )
        sender.start()
        assert hashlib.sha256(read_all(sock)).digest() == hashlib.sha256(content).digest()
        sender.join()
    running.settle()
    totals = running.proxy.traffic.totals
    assert (totals.up_bytes, totals.down_bytes, totals.failed) == (len(content), len(content), 0)
    up, down = running.proxy.pacing()
    assert up["direction"] == "up" and up["bytes"] == down["bytes"] == len(content)
    assert (down["kernel_bytes"] > len(content) // 2) == (down["pacer"] == "kernel")
    assert pacing == "auto" or not up["kernel_bytes"] + down["kernel_bytes"]


@by_whom
def test_a_reset_by_the_client_reaches_the_server_behind_its_bytes(
    servers: Servers, pacing: str
) -> None:
    seen, ends = bytearray(), list[str]()

    def record(sock: socket.socket) -> None:
        try:
            while part := sock.recv(1000):
                seen.extend(part)
            ends.append("closed")
        except ConnectionResetError:
            ends.append("reset")

    running = servers.proxy(servers.serve(record), up=10**6, delay_ns=20_000_000, pacing=pacing)
    sock = running.connect()
    sock.sendall(b"last words")
    wait_until(lambda: bool(seen))
    reset(sock)
    wait_until(lambda: bool(ends))
    assert (seen, ends) == (b"last words", ["reset"])
    running.settle()


def test_a_server_that_is_not_there_is_a_reset(servers: Servers, tmp_path: Path) -> None:
    with socket.create_server((LOCAL, 0)) as gone:
        port = gone.getsockname()[1]
    log = Log(tmp_path / "log.json")
    running = servers.proxy(port, log=log)
    with pytest.raises(ConnectionResetError), running.connect() as sock:
        sock.recv(1)
    running.settle()
    log.close({})
    (connection,) = json.loads((tmp_path / "log.json").read_text())["connections"]
    assert connection["end"] == "server: Connection refused"


def test_a_stalled_connection_harms_no_other_and_holds_little(servers: Servers) -> None:
    poured = []

    def pour(sock: socket.socket) -> None:
        sock.settimeout(None)
        try:
            if sock.recv(5) == b"stall":
                while True:
                    poured.append(sock.send(bytes(1 << 16)))
            sock.sendall(bytes(500_000))
        except OSError:
            pass
        sock.close()

    running = servers.proxy(servers.serve(pour), down=200 * 10**6)
    with running.connect() as stalled, running.connect() as live:
        stalled.sendall(b"stall")
        wait_until(lambda: sum(poured) > UNTAKEN_BYTES)
        live.sendall(b"talk.")
        assert len(read_all(live)) == 500_000
        wait_until(lambda: _stands_still(poured))
        # what the proxy holds, and what the buffers of four sockets take
        assert sum(poured) <= UNTAKEN_BYTES + 4 * 2**20 + 4 * 8 * 2**20
        reset(stalled)
    running.settle()


def _stands_still(amounts: list[int]) -> bool:
    before = sum(amounts)
    time.sleep(0.2)
    return sum(amounts) == before


def test_the_command_carries_ends_and_says_so(servers: Servers, tmp_path: Path) -> None:
    log = tmp_path / "log.json"
    ends = f"--listen {LOCAL}:0 --to {LOCAL}:{servers.serve(echo)}"
    files = f"--log {log} --busy {tmp_path / 'busy.csv'} --pacing auto"
    words = f"proxy {ends} --profile lte --latency 5ms {files}".split()
    process = subprocess.Popen(
        [sys.executable, "-c", "from emulator.cli import main; main()", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    first, *more = [process.stdout.readline() for _ in range(5)]
    assert first.startswith(f"listening on {LOCAL}:") and "up 7.6 Mbit/s, 5 ms" in first
    with socket.create_connection(
        (LOCAL, int(first.split()[2].rstrip(",").rpartition(":")[2])), timeout=PATIENCE_S
    ) as sock:
        sock.sendall(b"hello")
        assert sock.recv(5) == b"hello"
    process.send_signal(signal.SIGTERM)
    out, error = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, error) == (0, "")
    assert more[-1].startswith("Next: ") and "1 connections" in out
    content = json.loads(log.read_text())
    assert content["summary"]["up_bytes"] == 5
    assert [(link["pacer"], link["reason"]) for link in content["pacing"]] == [
        ("process", "its latency varies")
    ] * 2
    assert content["fidelity"]["host"]["priority"] in ("normal", "SCHED_FIFO")
    rows = list(csv.DictReader((tmp_path / "busy.csv").open()))
    assert [(row["direction"], row["bytes"]) for row in rows] == [("up", "5"), ("down", "5")]
    assert all(float(row["begin_s"]) < float(row["end_s"]) for row in rows)
    assert content["began_unix_s"] > 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["busy.csv", "log.json"]


def test_a_port_in_use_is_one_line_and_leaves_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server((LOCAL, 0)) as taken:
        port = taken.getsockname()[1]
        open_files = len(os.listdir("/proc/self/fd"))
        links = f"--map {LOCAL}:0={LOCAL}:1 --listen {LOCAL}:{port} --to {LOCAL}:1"
        files = f"--log {tmp_path / 'log.json'} --busy {tmp_path / 'busy.csv'}"
        assert run(f"proxy {links} {files}".split()) == 2
        out, error = capsys.readouterr()
        assert (out, error) == ("", f"emulator: listen {LOCAL}:{port}: address already in use\n")
        assert list(tmp_path.iterdir()) == [] and len(os.listdir("/proc/self/fd")) <= open_files


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (f"--map {LOCAL}:0=a..b:1", "to a..b:1: is no name of a host"),
        (f"--map {'a' * 64}:0={LOCAL}:1", "a:0: is no name of a host"),
        (f"--map {LOCAL}:0={LOCAL}:1 --log /tmp", "log /tmp: cannot be written (Is a directory)"),
        (f"--map {LOCAL}:0={LOCAL}:1 --log /tmp/x --busy /tmp/x", "expected another file than"),
    ],
)
def test_what_a_proxy_cannot_begin_with_is_one_line(
    words: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(f"proxy {words} --seconds 0.01".split()) == 2
    out, error = capsys.readouterr()
    assert out == "" and says in error and error.count("\n") == 1


def test_files_that_fail_cost_no_other_file(servers: Servers, tmp_path: Path) -> None:
    """The end of a session (SIGHUP) closes the terminal, the disk of one file is full."""
    log = tmp_path / "log.json"
    files = f"--log {log} --busy /dev/full"
    words = f"proxy --map {LOCAL}:0={LOCAL}:{servers.serve(echo)} {files}".split()
    heard = "import signal; signal.signal(signal.SIGHUP, signal.SIG_DFL)"  # nohup may run the tests
    process = subprocess.Popen(
        [sys.executable, "-c", f"{heard}; from emulator.cli import main; main()", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None and process.stderr is not None
    try:
        while not process.stdout.readline().startswith("Next: "):
            pass
        process.stdout.close()
        process.send_signal(signal.SIGHUP)
        assert process.wait(PATIENCE_S) > 0
        assert "busy /dev/full: incomplete" in process.stderr.read()
    finally:
        process.kill()
        process.wait()
        process.stderr.close()
    assert json.loads(log.read_text())["summary"]["opened"] == 0


def test_the_limit_on_open_files_is_named_once(
    servers: Servers, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("emulator.proxy.proxy._most_open", lambda listeners: 1)
    running = servers.proxy(servers.serve(echo))
    for _ in range(3):
        with running.connect(), running.connect():
            wait_until(lambda: bool(running.proxy._full_listeners))
        running.settle()
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and "clients wait until one of the 1 conn" in error
    assert "ulimit -n" in error


def test_a_proxy_without_a_low_file_number_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("emulator.proxy.proxy.SELECTABLE", 0)
    open_files = len(os.listdir("/proc/self/fd"))
    with pytest.raises(BadValue, match="start the proxy before"), running_proxy(f"{LOCAL}:1"):
        pass
    assert len(os.listdir("/proc/self/fd")) == open_files


def test_what_ends_a_proxy_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    def turn(proxy: Proxy, at_latest_ns: int) -> int:
        raise RuntimeError("a bug")

    monkeypatch.setattr(Proxy, "_turn", turn)
    with pytest.raises(RuntimeError, match="a bug"), running_proxy(f"{LOCAL}:1") as proxy:
        wait_until(lambda: not proxy._listeners)


# ------------------------------------------------------------------ who paces
@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("--up 2mbit --pacing kernal", "'kernal' does not exist: did you mean kernel?"),
        ("--up 2mbit --latency 9ms --jitter 2ms --pacing kernel", "up: its latency varies"),
        ("--up 2mbit --shared-up 3mbit --pacing kernel", "up: it shares a rate with others"),
        ("--up 900gbit --pacing kernel", "up: it is too fast for a send buffer of"),
    ],
)
def test_links_that_the_kernel_cannot_pace_are_one_line(
    words: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(f"proxy --map {LOCAL}:0={LOCAL}:1 {words}".split()) == 2
    out, error = capsys.readouterr()
    assert out == "" and says in error and error.count("\n") == 1


class NoKernel:
    """What kernel_pacing finds on a system that does not pace."""

    segment = 0

    def __init__(self, fd: int, inode: int) -> None: ...


def test_a_system_that_does_not_pace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("emulator.proxy.proxy.PacedConnection", NoKernel)
    ways = ProxyWay(Constant(10**6), Latency(0)), ProxyWay(None, Latency(0))
    routes = [Route((LOCAL, 0), (LOCAL, 1), *ways)]
    proxy = Proxy(routes, pacing="auto")
    (link,) = proxy.pacing()
    proxy.close()
    assert link["pacer"] == "process"
    assert link["reason"] == "this system does not pace connections"
    with pytest.raises(BadValue, match=r"pacing kernel: .* this system does not pace"):
        Proxy(routes, pacing="kernel")
