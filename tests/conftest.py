"""What every test needs: a cache of parsed data sets of its own, a Ctrl-C that arrives, an end
of what it started.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True, scope="session")
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Tests write nothing into the user's cache; processes that they start inherit this."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(os.environ, "EDGEFL_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(autouse=True, scope="session")
def _ctrl_c() -> None:
    """A shell starts what it puts into the background with SIGINT ignored, and so would be what
    the tests start and then interrupt.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def started() -> Iterator[list[subprocess.Popen[str]]]:
    """Processes of a test: none outlives it."""
    processes: list[subprocess.Popen[str]] = []
    yield processes
    for process in processes:
        process.kill()
        process.communicate()
