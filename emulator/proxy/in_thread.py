"""A proxy in a thread of this process, for tests and notebooks."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from emulator.clock import precise_timers
from emulator.proxy.proxy import Proxy
from emulator.proxy.routes import Address, Route, parse_address, proxy_ways


@contextmanager
def running_proxy(
    to: Address | str,
    *,
    profile: str | None = None,
    up: str | None = None,
    down: str | None = None,
    latency: str | None = None,
    jitter: str | None = None,
    loss: str | None = None,
    seed: int = 0,
) -> Iterator[Proxy]:
    """A proxy with one emulated link to the TCP server at ``to``; it listens on ``.address``.

    Values are text with a unit, as in ``emulator proxy``. What is not given is not emulated.
    BadValue for what is wrong. Connections that are open at the end are reset.
    """
    said = {"up": up, "down": down, "latency": latency, "jitter": jitter, "loss": loss}
    target = parse_address(to, "to") if isinstance(to, str) else (to[0], to[1])
    proxy = Proxy([Route(("127.0.0.1", 0), target, *proxy_ways(profile, said, 2 * seed))])

    def carry() -> None:
        precise_timers()
        proxy.run()

    thread = threading.Thread(target=carry, name="emulator proxy", daemon=True)
    thread.start()
    try:
        yield proxy
    finally:
        proxy.stop()
        thread.join()
