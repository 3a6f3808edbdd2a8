"""A host whose agent lies or prints nonsense harms no other host, and not this machine."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from agents import prepared

from edgefl import __version__
from edgefl.plugins.launch.agent_messages import (
    AgentReady,
    EdgeEnded,
    EdgesPrepared,
    EdgeStarted,
    HostLine,
    to_line,
)
from edgefl.plugins.launch.host_session import MOST_UNREAD, HostsThread
from edgefl.plugins.launch.inventory import CoordinatorPlace, Host, Inventory
from edgefl.plugins.launch.opening import asker

pytestmark = pytest.mark.processes
HERE = CoordinatorPlace(Host("coordinator", via="local"), None, 0)
NO_PROCESS = 1 << 30  # larger than every process id
READY = AgentReady(NO_PROCESS, __version__, ())
PREPARED = to_line(EdgesPrepared(""))
PATIENCE_S = 30.0


def host(folder: Path, name: str, *lines: bytes) -> Host:
    """A host of this machine whose Python prints these lines, and then waits for its end."""
    (folder / f"{name}.txt").write_bytes(b"".join(lines))
    python = folder / name
    # the order comes before what it says after it is ready
    python.write_text(
        f"#!/bin/sh\necho '{to_line(READY).decode().strip()}'\nread order\n"
        f"cat '{folder / name}.txt'\nexec cat >/dev/null\n"
    )
    python.chmod(0o755)
    work = str(folder / f"{name}.work")
    return Host(name, via="local", python=str(python), edges=(name,), folder=work)


@contextmanager
def begun(*hosts: Host) -> Iterator[tuple[HostsThread, list[tuple[str, str, str]]]]:
    log: list[tuple[str, str, str]] = []
    thread = HostsThread(
        Inventory(Path("lab.toml"), HERE, hosts), "run", lambda *line: log.append(line)
    )
    try:
        thread.connect(asker(False))
        files = {each.name: () for each in hosts}
        thread.prepare(files, None, lambda each, shards: prepared(each.name))
        assert thread.lost == {}
        yield thread, log
    finally:
        thread.end(at_once=True)
        thread.close()


def until(condition: Callable[[], bool]) -> None:
    end_s = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end_s
        time.sleep(0.01)


def test_a_host_speaks_only_for_its_own_edges(tmp_path: Path) -> None:
    lies = (
        EdgeEnded("good", 1, "it died", None),
        EdgeStarted("ghost", 1),
        HostLine("good\x1b[2J\nx", "a line"),
        HostLine("", "the last one"),
    )
    bad = host(tmp_path, "bad", PREPARED, *map(to_line, lies))
    good = host(tmp_path, "good", PREPARED)
    with begun(bad, good) as (thread, log):
        until(lambda: ("bad", "", "the last one") in log)
        assert thread.left == {"bad", "good"} and not thread.all_gone
        assert thread.news() == []
        assert [line for line in log if line[1] or line[0] == "good"] == []
        assert ("bad", "", "left out: a message about 'good', which is no edge of it") in log


def test_a_host_that_reports_without_end_fills_no_memory(tmp_path: Path) -> None:
    dead = [to_line(EdgeEnded("bad", 1, f"death {number}", 0.0)) for number in range(5000)]
    bad = host(tmp_path, "bad", PREPARED, *dead, to_line(HostLine("", "the last one")))
    with begun(bad) as (thread, log):
        until(lambda: ("bad", "", "the last one") in log)
        news = thread.news()
        assert len(news) == MOST_UNREAD and "death 4999" in str(news[-1])
        assert thread.news() == []
