"""Fixtures of all tests: a separate data cache, a working Ctrl-C, the end of started processes.

A test that starts a process or opens a socket needs the mark `processes`, given directly or by
``warm_python`` or ``started``; without it the test fails. `scripts/test.sh --fast` runs the tests
without this mark. A test that also depends on real time has the mark `alone`: such tests run one
after another, in one worker.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Generator, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from warm_python import WarmPython

# for scripts/test.sh --fast: a quarter of the examples
settings.register_profile("fast", settings.get_profile("ci"), max_examples=25)

NEEDS_MARK = frozenset(
    ("os.fork", "os.posix_spawn", "subprocess.Popen", "socket.bind", "socket.connect")
)
collect_ignore = ["examples"]  # a user's own files; test_pages.py runs them
FILE_MARKS = re.compile(r"^pytestmark = (?:[^\[\n].*|\[(?:.|\n)*?^\]|\[.*\])$", re.MULTILINE)
_unmarked = False  # whether a test without the mark is running


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not import a file if ``-m "not ... and not ..."`` leaves out all of its tests."""
    words = config.option.markexpr.split(" and ")
    if collection_path.suffix != ".py" or not all(word.startswith("not ") for word in words):
        return None
    marks = FILE_MARKS.search(collection_path.read_text(encoding="utf-8"))
    found = set() if marks is None else set(re.findall(r"mark\.(\w+)", marks[0]))
    if marks is not None and "warm_python" in marks[0]:
        found.add("processes")
    return True if found & {word.removeprefix("not ") for word in words} else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "warm_python" in getattr(item, "fixturenames", ()):
            item.add_marker("processes")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Give each file to one worker, so that its fixtures are made once.

    All files with tests marked `alone` go to the same worker. (The groups of `--dist loadgroup` are
    part of test names, which pytest 9.2 does not let xdist 3.8 change.)
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
    if (
        _unmarked and event in NEEDS_MARK and args[:1] != ("git",)
    ):  # because a run asks git for its revision
        raise RuntimeError(f"{event}: a test that does this has the mark `processes`")


sys.addaudithook(_refuse_unmarked)


@pytest.fixture(autouse=True, scope="session")
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep tests, and the processes that they start, out of the user's cache."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(os.environ, "EDGEFL_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(autouse=True, scope="session")
def _ctrl_c() -> None:
    """Restore SIGINT, because a shell starts background jobs with SIGINT ignored.

    Processes that the tests start and interrupt would inherit this.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="module")
def warm_python() -> Iterator[None]:
    """Start commands of the project as forks of a process that has imported everything."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(subprocess, "Popen", WarmPython)
        yield


@pytest.fixture
def started(warm_python: None) -> Iterator[list[subprocess.Popen[str]]]:
    """Collect the processes of a test and end them after it."""
    processes: list[subprocess.Popen[str]] = []
    yield processes
    for process in processes:
        process.kill()
        process.communicate()
