"""The agent of a host: what waits for its launcher, its files, and the agent as a process."""

from __future__ import annotations

import asyncio
import os
import signal
import stat
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from agents import AgentProcess, lives, prepared
from builders import experiment
from hypothesis import given
from hypothesis import strategies as st
from processes import wait_for

from edgefl.plugins.launch.agent import Outbox, claimed, clear_stale
from edgefl.plugins.launch.agent_messages import (
    AgentOver,
    AgentReady,
    EdgeEnded,
    EdgesPrepared,
    EdgeStarted,
    HostLine,
    KillEdges,
    StopEdges,
    run_folder,
)
from edgefl.plugins.launch.host_session import HostSession
from edgefl.plugins.launch.inventory import Host
from edgefl.plugins.launch.opening import open_connection

pytestmark = pytest.mark.processes
Started = Callable[..., AgentProcess]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "launched" / "run-1"


@pytest.fixture
def agent(folder: Path) -> Iterator[Started]:
    """Start agents, and end them after the test."""
    made: list[AgentProcess] = []

    def start(*words: str, at: Path = folder) -> AgentProcess:
        made.append(AgentProcess(at, *words))
        return made[-1]

    yield start
    for one in made:
        one.process.kill()
        one.process.wait()


@pytest.mark.parametrize("order", [StopEdges(), KillEdges()])
def test_an_agent_ends_with_its_edges_and_leaves_nothing(
    agent: Started, folder: Path, order: object
) -> None:
    one = agent()
    pids = one.start("a", "b")
    assert all(map(lives, pids)) and folder.is_dir()
    one.say(order)
    one.hear(AgentOver)
    assert one.end() == 0 and not any(map(lives, pids))
    assert list(folder.parent.iterdir()) == []


def test_an_edge_that_is_killed_is_started_again(agent: Started) -> None:
    one = agent()
    first, other = one.start("a", "b", restarts=1)
    os.kill(first, signal.SIGKILL)
    ended = one.hear(EdgeEnded)
    assert (ended.edge, ended.status, ended.why) == ("a", -9, "killed by signal 9")
    again = one.hear(EdgeStarted)
    assert again.edge == "a" and again.pid != first and lives(other)
    os.kill(again.pid, signal.SIGKILL)
    assert one.hear(EdgeEnded).again is None and lives(other)


def test_edges_end_with_an_agent_that_is_killed(agent: Started, folder: Path) -> None:
    one = agent()
    pids = one.start("a", "b")
    one.process.kill()
    wait_for(lambda: not any(map(lives, pids)))
    assert folder.is_dir()
    other = agent(at=folder.with_name("run-2"))
    other.hear(AgentReady)
    assert not folder.exists(), "the next agent removes what a killed one has left"
    assert other.hear(HostLine).text == "removed what run-1 had left here"


def test_without_edges_an_agent_ends_with_its_connection(agent: Started, folder: Path) -> None:
    one = agent()
    one.hear(AgentReady)
    one.hang_up()
    assert one.end() == 0 and not folder.exists()


def test_a_launcher_that_comes_back_finds_its_edges(agent: Started, folder: Path) -> None:
    one = agent()
    pids = one.start("a", "b")
    one.hang_up()
    back = agent("--attach")
    assert set(back.hear(AgentReady).running) == {"a", "b"} and all(map(lives, pids))
    os.kill(pids[0], signal.SIGKILL)
    assert back.hear(EdgeEnded).edge == "a"
    back.say(StopEdges())
    back.hear(AgentOver)
    assert one.end() == 0 and back.end() == 0 and not any(map(lives, pids))


def test_no_agent_to_attach_to(agent: Started, folder: Path) -> None:
    one = agent("--attach")
    assert one.end() == 1
    assert one.process.stderr is not None
    assert b"no agent runs in" in one.process.stderr.read()


def test_sigterm_ends_an_agent_in_order_and_ctrl_c_does_not(agent: Started, folder: Path) -> None:
    one = agent()
    pids = one.start("a")
    for number in (signal.SIGINT, signal.SIGHUP):
        one.process.send_signal(number)
    one.process.send_signal(signal.SIGTERM)
    assert one.hear(EdgeEnded).why == "stopped"
    assert one.end() == 0 and not any(map(lives, pids)) and not folder.exists()


def test_a_host_without_the_data_says_so_before_the_start(agent: Started) -> None:
    one = agent()
    one.hear(AgentReady)
    one.say(prepared("a", of=experiment(edges={"names": ("a",)}, data={"name": "mnist"})))
    assert "mnist" in one.hear(EdgesPrepared).problem


def test_a_folder_is_its_owners_and_belongs_to_one_run(tmp_path: Path) -> None:
    folder = tmp_path / "launched" / "run-1"
    with claimed(folder):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        with pytest.raises(FileExistsError), claimed(folder):
            pass


def test_what_killed_agents_left_is_removed_and_nothing_else(tmp_path: Path) -> None:
    parent = tmp_path / "launched"
    assert clear_stale(parent) == []
    with claimed(parent / "lives"):
        with claimed(parent / "killed"):
            (parent / "killed" / "keys").mkdir()
        (parent / "early").mkdir()  # its agent was killed before it could lock it
        assert clear_stale(parent) == ["early", "killed"]
        assert [path.name for path in parent.iterdir()] == ["lives"]


def drained(outbox: Outbox, portion: int = 1000) -> bytes:
    sent = b""
    while outbox:
        part = outbox.next()[:portion]
        sent += part
        outbox.sent(len(part))
    return sent


@given(st.lists(st.binary(min_size=1, max_size=20)), st.integers(1, 7))
def test_messages_come_whole_and_in_order(messages: list[bytes], portion: int) -> None:
    outbox = Outbox()
    for message in messages:
        outbox.add(message)
    assert drained(outbox, portion) == b"".join(messages)


def test_only_text_is_dropped_if_too_much_waits() -> None:
    outbox = Outbox(most_bytes=10)
    for message in (b"12345", b"67890", b"x"):
        outbox.add(message, may_drop=True)
    outbox.add(b"important" * 10)
    assert drained(outbox) == b"1234567890" + b"important" * 10
    outbox.add(b"y", may_drop=True)
    assert drained(outbox) == b"y", "there is room again"


def test_a_new_reader_gets_the_interrupted_message_from_its_beginning() -> None:
    outbox = Outbox()
    outbox.add(b"first\n")
    outbox.add(b"second\n")
    outbox.sent(3)
    outbox.greet(b"ready\n")
    assert drained(outbox) == b"ready\nfirst\nsecond\n"


# --------------------------------------------------- a launch that was killed
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
