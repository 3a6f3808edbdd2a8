"""What every test needs: a cache of parsed data sets of its own, a Ctrl-C that arrives, an end
of what it started; and the marks of what needs more.

A test that starts a process or opens a socket has the mark `processes`, of its own or because it
uses ``warm_python`` or ``started``; without the mark it fails. Tests without it are
`scripts/test.sh --fast`. Where real time matters, too, the mark is `alone`: these tests run one
after the other, in one worker.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Generator, Iterator
from functools import cache
from typing import Any

import pytest
from warm_python import WarmPython

NEEDS_MARK = frozenset(
    ("os.fork", "os.posix_spawn", "subprocess.Popen", "socket.bind", "socket.connect")
)
collect_ignore = ["examples"]  # a user's own files; test_pages.py runs them
_unmarked = False  # is a test without the mark running?


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "warm_python" in getattr(item, "fixturenames", ()):
            item.add_marker("processes")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Each file goes to one worker, so that its fixtures are made once; all files with tests that
    want to be alone to the same one. (The groups of `--dist loadgroup` are part of the names of
    tests, which pytest 9.2 does not let xdist 3.8 change.)
    """
    from xdist.scheduler import LoadScopeScheduling

    @cache
    def group(file: str) -> str:
        marked = "pytest.mark.alone" in (config.rootpath / file).read_text(encoding="utf-8")
        return "alone" if marked else file

    class ByFile(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return group(nodeid.partition("::")[0])

    return ByFile(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, Any, Any]:
    global _unmarked
    _unmarked = item.get_closest_marker("processes") is None
    try:
        return (yield)
    finally:
        _unmarked = False


def _refuse_unmarked(event: str, args: tuple[Any, ...]) -> None:
    if _unmarked and event in NEEDS_MARK and args[:1] != ("git",):  # a run asks for its revision
        raise RuntimeError(f"{event}: a test that does this has the mark `processes`")


sys.addaudithook(_refuse_unmarked)


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


@pytest.fixture(scope="module")
def warm_python() -> Iterator[None]:
    """Commands of the project start as forks of a process that has imported everything."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(subprocess, "Popen", WarmPython)
        yield


@pytest.fixture
def started(warm_python: None) -> Iterator[list[subprocess.Popen[str]]]:
    """Processes of a test: none outlives it."""
    processes: list[subprocess.Popen[str]] = []
    yield processes
    for process in processes:
        process.kill()
        process.communicate()
