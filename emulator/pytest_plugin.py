"""Fixtures for pytest: ``proxy``, an emulated link, and ``lab``, a network of hosts.

pytest loads this file at its start, so it imports the emulator only when a fixture is used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from emulator.lab.running import Lab
    from emulator.lab.topology import Topology
    from emulator.proxy.proxy import Proxy

REQUIRE = "--require-lab"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that turns skipped tests into errors."""
    parser.getgroup("emulator").addoption(
        REQUIRE,
        action="store_true",
        help="fail tests that use the fixture lab where no lab can be made, instead of skipping",
    )


@pytest.fixture
def proxy() -> Iterator[Callable[..., Proxy]]:
    """A function that puts an emulated link in front of a TCP server, until the test ends.

    ``proxy(("127.0.0.1", 8000), up="4mbit", latency="10ms").address`` is where clients connect;
    the other options are down, jitter, loss, profile and seed. It needs no root.
    """
    from emulator.proxy.proxy import running_proxy

    with ExitStack() as stack:

        def make(to: tuple[str, int] | str, **link: Any) -> Proxy:
            return stack.enter_context(running_proxy(to, **link))

        yield make


@pytest.fixture
def lab(request: pytest.FixtureRequest) -> Iterator[Callable[..., Lab]]:
    """A function that makes a lab of network namespaces, until the test ends.

    ``lab("cells.toml")`` or ``lab({"hosts": [...], "links": [...]})``; the result is an
    ``emulator.Lab``. Without root, or where the kernel lacks something, the test is skipped with
    the reason; with --require-lab it fails.
    """
    from emulator.errors import Unavailable
    from emulator.lab.running import Lab

    with ExitStack() as stack:

        def make(topology: Path | str | Mapping[str, Any] | Topology, **options: Any) -> Lab:
            try:
                return stack.enter_context(Lab(topology, **options))
            except Unavailable as reason:
                if request.config.getoption(REQUIRE):
                    raise
                pytest.skip(str(reason))

        yield make
