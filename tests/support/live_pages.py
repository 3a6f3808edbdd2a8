"""The live page of run directories in a real browser."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from browser import Page


@contextmanager
def opened(chromium: Page, *runs: Path) -> Iterator[Page]:
    """Serve ``runs`` and open their page. At the end: no complaint, and no other host was asked."""
    from edgefl.plugins.live.serve import address, listen, serve

    listening, (read_end, write_end) = listen(0, "--port"), os.pipe()
    server = threading.Thread(
        target=serve, args=(listening, "token", list(runs), read_end), daemon=True
    )
    server.start()
    try:
        with shown(chromium, address(listening, "token")) as page:
            yield page
    finally:
        chromium.open("about:blank")
        os.close(write_end)
        server.join()
        os.close(read_end)


@contextmanager
def shown(chromium: Page, address: str) -> Iterator[Page]:
    """Open an address and wait for the first numbers; checks as ``opened``."""
    chromium.hosts()
    chromium.complaints()
    chromium.size(1280, 900)
    chromium.prefers("light")
    chromium.open(address)
    try:
        chromium.wait("document.querySelector('td.version')?.textContent.match(/[0-9]/)")
    except AssertionError as error:
        raise AssertionError(f"no numbers: {_state(chromium)}") from error
    yield chromium
    complaints, hosts = chromium.complaints(), chromium.hosts()
    assert complaints == [], complaints
    assert hosts == {"127.0.0.1"}, hosts


def _state(chromium: Page) -> str:
    """What tells why a page shows nothing: its state, a frame, its text, the console."""
    state = chromium.js(
        "return [location.href, document.readyState, document.visibilityState,"
        " document.body?.innerText.slice(0, 2000)]"
    )
    frame = chromium.later(
        "return await Promise.race([new Promise((done) => requestAnimationFrame(done)),"
        " new Promise((done) => setTimeout(done, 5000, 'no frame in 5 s'))])"
    )
    return f"{state}, frame: {frame}, console: {chromium.complaints()}"
