"""The agent of a host as a process: its edges, its launcher, and its files."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from agents import AgentProcess, lives, prepared
from builders import experiment
from processes import wait_for

from edgefl.plugins.launch.agent_messages import (
    AgentOver,
    AgentReady,
    EdgeEnded,
    EdgesPrepared,
    EdgeStarted,
    HostLine,
    KillEdges,
    StopEdges,
)

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
@pytest.mark.parametrize("words", [(), ("--separate",)])
def test_an_agent_ends_with_its_edges_and_leaves_nothing(
    agent: Started, folder: Path, words: tuple[str, ...], order: object
) -> None:
    one = agent(*words)
    pids = one.start("a", "b")
    assert all(map(lives, pids)) and folder.is_dir()
    one.say(order)
    one.hear(AgentOver)
    assert one.end() == 0 and not any(map(lives, pids))
    assert list(folder.parent.iterdir()) == []


@pytest.mark.parametrize("words", [(), ("--separate",)])
def test_an_edge_that_is_killed_is_started_again(agent: Started, words: tuple[str, ...]) -> None:
    one = agent(*words)
    first, other = one.start("a", "b", restarts=1)
    os.kill(first, signal.SIGKILL)
    ended = one.hear(EdgeEnded)
    assert (ended.edge, ended.status, ended.why) == ("a", -9, "killed by signal 9")
    again = one.hear(EdgeStarted)
    assert again.edge == "a" and again.pid != first and lives(other)
    os.kill(again.pid, signal.SIGKILL)
    assert one.hear(EdgeEnded).again is None and lives(other)


@pytest.mark.parametrize("words", [(), ("--separate",)])
def test_edges_end_with_an_agent_that_is_killed(
    agent: Started, folder: Path, words: tuple[str, ...]
) -> None:
    one = agent(*words)
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
