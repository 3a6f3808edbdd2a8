"""Servers beside a run that begins: each in a process of its own, until the run ends."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import orjson

from edgefl.errors import needs
from edgefl.live.serve import HOST, address, listen, needed, new_token

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
    with _companion("edgefl.live.serve", listening, told):
        yield where


@contextmanager
def metrics_page(folder: Path, port: int) -> Iterator[str]:
    """Serve the metrics of the runs in ``folder`` to Prometheus; else as ``live_page``."""
    with needs("export", "--metrics-port"):
        import prometheus_client  # noqa: F401  # only looked for
    listening = listen(port, "--metrics-port")
    where = f"http://{HOST}:{listening.getsockname()[1]}/metrics"
    with _companion("edgefl.live.metrics_server", listening, {"runs": str(folder.absolute())}):
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
