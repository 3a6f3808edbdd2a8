"""A launch that goes on with a run ends the edges that a killed launch has left."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from agents import AgentProcess, lives
from processes import wait_for

from edgefl.plugins.launch.connections.opening import open_connection
from edgefl.plugins.launch.host_session import HostSession
from edgefl.plugins.launch.inventory import Host
from edgefl.plugins.launch.run_places import run_folder

pytestmark = pytest.mark.processes


@pytest.fixture
def left(tmp_path: Path) -> Iterator[tuple[AgentProcess, Path, list[int]]]:
    """An agent with two edges that wait for a coordinator; its launcher was killed."""
    folder = Path(run_folder(str(tmp_path), "earlier"))
    agent = AgentProcess(folder)
    pids = agent.start("a", "b")
    agent.hang_up()
    assert all(map(lives, pids))
    yield agent, folder, pids
    agent.process.kill()
    agent.process.wait()


def begin(host: Host, former: str) -> None:
    """Start the agent of a new launch on ``host``, and end it."""

    async def work() -> None:
        session = HostSession(host, "new", lambda *_: None, former)
        try:
            await session.begin(await open_connection(host), sys.executable)
            assert session.connected and Path(session.folder).is_dir()
        finally:
            await session.end(at_once=True)

    asyncio.run(work())


@pytest.mark.parametrize("killed", [False, True], ids=["its agent goes on", "its agent died, too"])
def test_its_edges_end_before_the_new_ones_begin(
    tmp_path: Path, left: tuple[AgentProcess, Path, list[int]], killed: bool
) -> None:
    agent, folder, pids = left
    if killed:
        os.kill(agent.process.pid, signal.SIGKILL)
        wait_for(lambda: not any(map(lives, pids)))
    begin(Host("here", via="local", folder=str(tmp_path)), "earlier")
    assert not any(map(lives, pids)) and not folder.exists()


def test_without_anything_left_nothing_is_waited_for(tmp_path: Path) -> None:
    begin(Host("here", via="local", folder=str(tmp_path)), "earlier")
    assert list((tmp_path / "launched").iterdir()) == []
