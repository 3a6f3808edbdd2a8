"""Serving the metrics of runs to Prometheus on this machine, until the parent process ends it."""

from __future__ import annotations

import os
import socket
import sys
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

import orjson

from edgefl.exports.prometheus import RunMetrics
from edgefl.live.guard import LOOPBACK
from edgefl.live.serve import NICE

PATIENCE_S = 5.0  # for one request, since the server takes one after another

Application = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


class MetricsHandler(WSGIRequestHandler):
    """Gives up on a client that says nothing, and prints no line per request."""

    timeout = PATIENCE_S

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing: the terminal is the run's."""


def metrics_app(folder: Path) -> Application:
    """Return the WSGI application: metrics for this machine's own names, 403 for others.

    The address of another machine that leads here (DNS rebinding) would let a page of the web read
    them.
    """
    from prometheus_client import CollectorRegistry, make_wsgi_app

    registry = CollectorRegistry()
    registry.register(RunMetrics(folder))
    metrics: Application = make_wsgi_app(registry)

    def app(environ: dict[str, Any], respond: Callable[..., Any]) -> Iterable[bytes]:
        name = urlsplit(f"//{environ.get('HTTP_HOST', '')}").hostname
        if name not in LOOPBACK:
            respond("403 Forbidden", [("Content-Type", "text/plain")])
            return [b"these metrics are only for their own machine\n"]
        return metrics(environ, respond)

    return app


def serve_metrics(listening: socket.socket, folder: Path, parent: int) -> None:
    """Serve until the other end of ``parent``, a descriptor, is closed."""
    server = WSGIServer(("", 0), MetricsHandler, bind_and_activate=False)
    server.socket.close()
    server.socket = listening
    server.server_name, server.server_port = listening.getsockname()[:2]
    server.setup_environ()
    server.set_app(metrics_app(folder))
    threading.Thread(target=_end_with, args=(parent, server), daemon=True).start()
    server.serve_forever()


def _end_with(parent: int, server: WSGIServer) -> None:
    while os.read(parent, 1):
        pass
    server.shutdown()


def main() -> None:
    """Serve beside a run: ``python -m edgefl.live.metrics_server FD``, what is told on stdin."""
    os.nice(NICE)
    told = orjson.loads(sys.stdin.buffer.readline())
    with socket.socket(fileno=int(sys.argv[1])) as listening:
        serve_metrics(listening, Path(told["runs"]), sys.stdin.fileno())


if __name__ == "__main__":
    main()
