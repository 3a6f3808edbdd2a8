"""A test of a service over a slow link: 200 kB at 4 Mbit/s take 0.4 s, wherever the test runs."""

import socket
import socketserver
import threading
import time
from contextlib import contextmanager

from emulator import Constant, Latency, Proxy, ProxyWay, Route, parse_duration, parse_rate


class Count(socketserver.StreamRequestHandler):
    """The service under test: reads all, answers with the number of bytes."""

    def handle(self):
        self.wfile.write(str(len(self.rfile.read())).encode())


@contextmanager
def running(server):
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server.server_address
    server.shutdown()
    thread.join()
    server.server_close()


@contextmanager
def slow_link(to, up, down, latency):
    """An address; what connects to it reaches ``to`` over an emulated link."""
    delay = Latency(parse_duration(latency))
    ways = [ProxyWay(Constant(parse_rate(rate)), delay) for rate in (up, down)]
    proxy = Proxy([Route(("127.0.0.1", 0), to, *ways)])
    thread = threading.Thread(target=proxy.run)
    thread.start()
    yield proxy.addresses[0]
    proxy.stop()
    thread.join()


def test_an_upload_takes_the_time_of_the_link():
    service = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Count)
    with (
        running(service) as to,
        slow_link(to, "4mbit", "20mbit", "10ms") as address,
        socket.create_connection(address) as client,
    ):
        began = time.monotonic()
        client.sendall(bytes(200_000))
        client.shutdown(socket.SHUT_WR)
        answer = client.makefile("rb").read()
        took = time.monotonic() - began
    assert answer == b"200000"
    assert took >= 0.4 + 2 * 0.010  # never faster than the link: 1.6 Mbit at 4 Mbit/s, both ways
