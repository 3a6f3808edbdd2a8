"""Serving the page on this machine, until the user or the parent process ends it.

Beside a run that begins, a server is a process of its own, which ends with the run.
"""

from __future__ import annotations

import asyncio
import errno
import os
import secrets
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import orjson

from edgefl.errors import UserError, needs
from edgefl.plugins.live.feeds import Feeds

HOST, PORT = "127.0.0.1", 8050
TRIED = 20  # ports from PORT on, if the user has not chosen one
NICE = 19  # a run on this machine comes first


def listen(port: int | None, option: str) -> socket.socket:
    """Return a socket that listens on loopback.

    ``port``: None: PORT, or the next one that is free; 0: any. UserError names ``option`` if the
    port is taken.
    """
    last: OSError | None = None
    for each in [*range(PORT, PORT + TRIED), 0] if port is None else [port]:
        found = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            found.bind((HOST, each))
            found.listen(128)
            return found
        except OSError as error:
            found.close()
            last = error
    assert last is not None
    if last.errno == errno.EADDRINUSE:
        why = f"port {port} of {HOST} is taken by another program"
    else:
        why = f"port {port} of {HOST} cannot be used ({last.strerror})"
    raise UserError(f"{option} {port}: {why}: expected a free one, or 0 for any")


def needed(what: str) -> None:
    """UserError if the packages of the server are missing; ``what``: the feature, for the line."""
    with needs("live", what):
        import starlette  # noqa: F401  # only looked for
        import uvicorn  # noqa: F401  # only looked for


def new_token() -> str:
    return secrets.token_urlsafe(18)


def address(listening: socket.socket, token: str) -> str:
    """Return the page's address."""
    return f"http://{HOST}:{listening.getsockname()[1]}/{token}/"


def serve(
    listening: socket.socket, token: str, runs: Sequence[Path], parent: int | None = None
) -> None:
    """Serve the page until Ctrl-C; with ``parent``, a descriptor, until its other end is closed."""
    import uvicorn

    from edgefl.plugins.live.app import Server

    server: uvicorn.Server

    def stopping() -> bool:
        return server.should_exit

    pages = Server(Feeds(runs), stopping)
    config = uvicorn.Config(
        pages.app(token),
        log_level="error",
        access_log=False,
        lifespan="off",
        server_header=False,
        timeout_graceful_shutdown=2,
        ws="none",
    )
    server = uvicorn.Server(config)
    if parent is not None:
        after_parent(parent, lambda: setattr(server, "should_exit", True))
    try:
        asyncio.run(server.serve(sockets=[listening]))
    finally:
        pages.close()


def after_parent(parent: int, end: Callable[[], None]) -> None:
    """Call ``end`` in a thread once the parent closes its end of a descriptor, or dies."""

    def wait() -> None:
        while os.read(parent, 1):
            pass
        end()

    threading.Thread(target=wait, daemon=True).start()


@contextmanager
def companion() -> Iterator[tuple[socket.socket, dict[str, Any], int]]:
    """The process beside a run, see ``_companion``: its socket, its orders, and the descriptor of
    its parent.
    """
    os.nice(NICE)
    with suppress(AttributeError, OSError):  # not Linux, or not allowed
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))  # interrupts no other process
    orders = orjson.loads(sys.stdin.buffer.readline())
    with socket.socket(fileno=int(sys.argv[1])) as listening:
        yield listening, orders, sys.stdin.fileno()


def main() -> None:
    """Serve beside a run: ``python -m edgefl.plugins.live.serve FD``, with what to do on stdin."""
    with companion() as (listening, orders, parent):
        serve(listening, orders["token"], [Path(run) for run in orders["runs"]], parent)


if __name__ == "__main__":
    main()


ENDS_S = 5.0  # the server sends the last rows first


@contextmanager
def live_page(folder: Path, port: int | None) -> Iterator[str]:
    """Serve the page of the runs in ``folder`` until the block ends; yields the page's address.

    ``port``: see ``listen``. UserError if the port is taken, or the packages are missing.
    """
    needed("--live")
    token, listening = new_token(), listen(port, "--live")
    where = address(listening, token)
    told = {"token": token, "runs": [str(folder.absolute())]}
    with _companion("edgefl.plugins.live.serve", listening, told):
        yield where


@contextmanager
def metrics_page(folder: Path, port: int) -> Iterator[str]:
    """Serve the metrics of the runs in ``folder`` to Prometheus; else as ``live_page``."""
    with needs("export", "--metrics-port"):
        import prometheus_client  # noqa: F401  # only looked for
    listening = listen(port, "--metrics-port")
    where = f"http://{HOST}:{listening.getsockname()[1]}/metrics"
    with _companion(
        "edgefl.plugins.live.metrics_server", listening, {"runs": str(folder.absolute())}
    ):
        yield where


@contextmanager
def _companion(module: str, listening: socket.socket, told: Mapping[str, Any]) -> Iterator[None]:
    """Run ``python -m module FD`` with ``told`` as a line on its stdin, whose end ends it."""
    with listening:
        process = subprocess.Popen(
            [sys.executable, "-m", module, str(listening.fileno())],
            stdin=subprocess.PIPE,
            pass_fds=[listening.fileno()],
            process_group=0,  # a terminal's Ctrl-C reaches only the run, which ends the server
        )
    assert process.stdin is not None
    try:
        with suppress(BrokenPipeError):
            process.stdin.write(orjson.dumps(told) + b"\n")
            process.stdin.flush()
        yield
    finally:
        with suppress(BrokenPipeError):
            process.stdin.close()
        try:
            process.wait(ENDS_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
