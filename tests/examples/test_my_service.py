"""A test of a service over a slow link: 200 kB at 4 Mbit/s take 0.4 s, wherever the test runs."""

import socket
import socketserver
import threading
import time

import pytest


class Count(socketserver.StreamRequestHandler):
    """The service under test: reads all, answers with the number of bytes."""

    def handle(self):
        self.wfile.write(str(len(self.rfile.read())).encode())


@pytest.fixture
def service():
    server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Count)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server.server_address
    server.shutdown()
    thread.join()
    server.server_close()


def test_an_upload_takes_the_time_of_the_link(service, proxy):
    link = proxy(service, up="4mbit", down="20mbit", latency="10ms")
    with socket.create_connection(link.address) as client:
        began = time.monotonic()
        client.sendall(bytes(200_000))
        client.shutdown(socket.SHUT_WR)
        answer = client.makefile("rb").read()
        took = time.monotonic() - began
    assert answer == b"200000"
    assert took >= 0.4 + 2 * 0.010  # never faster than the link: 1.6 Mbit at 4 Mbit/s, both ways
