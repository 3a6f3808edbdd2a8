"""The page of a run that begins: its server runs in a process of its own beside the run."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import orjson

from edgefl.live.serve import address, listen, needed, new_token

ENDS_S = 5.0  # the server sends the last rows first


@contextmanager
def live_page(folder: Path, port: int | None) -> Iterator[str]:
    """Serve the runs of ``folder`` until the block ends; yields the page's address.

    ``port``: see ``listen``. UserError if the port is taken, or the packages are missing.
    """
    needed("--live")
    token = new_token()
    with listen(port, "--live") as listening:
        process = subprocess.Popen(
            [sys.executable, "-m", "edgefl.live.serve", str(listening.fileno())],
            stdin=subprocess.PIPE,
            pass_fds=[listening.fileno()],
            process_group=0,  # a terminal's Ctrl-C reaches only the run, which ends the server
        )
        where = address(listening, token)
    assert process.stdin is not None
    try:
        with suppress(BrokenPipeError):
            process.stdin.write(
                orjson.dumps({"token": token, "runs": [str(folder.absolute())]}) + b"\n"
            )
            process.stdin.flush()
        yield where
    finally:
        with suppress(BrokenPipeError):
            process.stdin.close()
        try:
            process.wait(ENDS_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
