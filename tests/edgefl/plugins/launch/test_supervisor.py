"""What an agent decides about the edges of its host."""

from __future__ import annotations

import pytest

from edgefl.clocks.process_messages import InjectFault
from edgefl.exit_status import BAD_INPUT, NO_ANSWER, NOT_STARTED, OVER, REFUSED
from edgefl.plugins.launch.agent_messages import EdgeEnded, EdgeStarted
from edgefl.plugins.launch.supervisor import (
    GRACE_S,
    ORPHAN_S,
    SILENCE_S,
    OrderEdge,
    SignalEdge,
    SpawnEdge,
    Supervisor,
)


def running(*edges: str, restarts: int = 2) -> Supervisor:
    """Edges that run and have found the coordinator, at second 0."""
    supervisor = Supervisor()
    assert supervisor.start([(edge,) for edge in edges], restarts) == [
        SpawnEdge(edge) for edge in edges
    ]
    for number, edge in enumerate(edges):
        assert supervisor.spawned(edge, 100 + number, 0.0) == [EdgeStarted(edge, 100 + number)]
        supervisor.waits(edge, False, 0.0)
    return supervisor


def ended(edge: str, status: int, why: str, again: float | None = None) -> list[EdgeEnded]:
    return [EdgeEnded(edge, status, why, again)]


def test_an_edge_that_dies_is_started_again_with_longer_and_longer_pauses() -> None:
    one = running("a")
    assert one.exited("a", -9, 10.0) == ended("a", -9, "killed by signal 9", 1.0)
    assert one.tick(10.9) == [] and not one.over
    assert one.tick(11.0) == [SpawnEdge("a")]
    assert one.tick(11.1) == []
    one.spawned("a", 200, 11.1)
    assert one.exited("a", 1, 12.0) == ended("a", 1, "died with exit status 1", 2.0)
    assert one.tick(14.0) == [SpawnEdge("a")]
    one.spawned("a", 201, 14.0)
    assert one.exited("a", 1, 15.0) == ended("a", 1, "died with exit status 1")
    assert one.tick(100.0) == []


@pytest.mark.parametrize(
    ("status", "why"),
    [(OVER, "the run is over"), (REFUSED, "refused"), (BAD_INPUT, "cannot take part")],
)
def test_an_edge_that_has_ended_for_good_stays_so(status: int, why: str) -> None:
    one = running("a", "b")
    assert one.exited("a", status, 1.0) == ended("a", status, why)
    one.heard(50.0)
    assert one.tick(50.0) == [] and one.running == ("b",)


def test_the_agent_stays_while_its_launcher_may_give_orders() -> None:
    one = running("a")
    one.exited("a", OVER, 1.0)
    assert not one.over
    assert one.stop(2.0) == [] and one.over


def test_stop_asks_and_then_kills() -> None:
    one = running("a", "b")
    assert one.stop(5.0) == [SignalEdge("a", "end"), SignalEdge("b", "end")]
    assert one.exited("a", -15, 5.1) == ended("a", -15, "stopped")
    assert one.tick(5.0 + GRACE_S - 0.1) == []
    assert one.tick(5.0 + GRACE_S) == [SignalEdge("b", "kill")] and not one.over
    one.exited("b", -9, 11.0)
    assert one.over and one.start([("c",)], 1) == []


def test_edges_go_on_without_a_connection_and_the_agent_stays_with_them() -> None:
    one = running("a")
    one.disconnected(10.0)
    assert one.tick(1000.0) == [] and not one.over
    one.heard(1000.0)
    one.exited("a", -9, 1001.0)
    assert one.tick(1002.0) == [SpawnEdge("a")], "connected again: it may restart edges"


def test_without_a_connection_no_edge_is_started_again() -> None:
    one = running("a")
    one.disconnected(10.0)
    assert one.exited("a", NO_ANSWER, 80.0) == ended("a", 75, "no answer from the coordinator", 1.0)
    assert one.tick(80.0) == [] and one.over


@pytest.mark.parametrize("others", [(), ("b",)])
@pytest.mark.parametrize("way", ["before", "meanwhile", "fault"])
def test_a_restart_waits_for_a_launcher_that_comes_back(way: str, others: tuple[str, ...]) -> None:
    one = running("a", *others)
    if way == "fault":
        one.inject(InjectFault("restart", "a"))
    if way == "before":
        one.exited("a", -9, 10.0)
    one.disconnected(10.5)
    if way != "before":
        one.exited("a", -9, 11.0)
    assert one.tick(10.5 + ORPHAN_S - 0.1) == [] and not one.over
    again_s = 1000.0 if others else 40.0  # the agent stays with edges that run
    assert one.tick(again_s - 0.1) == [] and not one.over
    one.heard(again_s)
    assert one.start([("a",), *((other,) for other in others)], 2) == []
    assert one.tick(again_s) == [SpawnEdge("a")]


def test_a_restart_does_not_wait_for_ever() -> None:
    one = running("a")
    one.exited("a", -9, 10.0)
    one.disconnected(10.5)
    assert one.tick(10.5 + ORPHAN_S) == [] and one.over


def test_an_edge_without_launcher_and_coordinator_does_not_wait_for_ever() -> None:
    one = running("a", "b")
    one.waits("a", True, 5.0)  # between two strategies
    one.disconnected(100.0)
    assert one.tick(100.0 + ORPHAN_S - 0.1) == []
    assert one.tick(100.0 + ORPHAN_S) == [SignalEdge("a", "kill")]
    assert one.exited("a", -9, 131.0) == ended("a", -9, "no launcher and no coordinator")
    one.waits("b", True, 140.0)
    one.waits("b", False, 141.0)  # the next strategy has begun
    assert one.tick(1000.0) == []


def test_a_silent_launcher_counts_as_gone() -> None:
    one = running("a")
    one.heard(7.0)
    one.tick(7.0 + SILENCE_S)
    assert one.connected
    one.tick(7.1 + SILENCE_S)
    assert not one.connected


def test_an_agent_whose_launcher_goes_before_the_start_ends() -> None:
    one = Supervisor()
    assert not one.over
    one.disconnected(0.0)
    assert one.over


def test_faults_of_the_config_cost_no_restart() -> None:
    one = running("a", restarts=1)
    assert one.inject(InjectFault("kill", "a")) == [SignalEdge("a", "kill")]
    assert one.exited("a", -9, 1.0) == ended("a", -9, "fault: kill")
    one.heard(50.0)
    assert one.tick(50.0) == []
    assert one.inject(InjectFault("restart", "a")) == [SpawnEdge("a")]
    one.spawned("a", 200, 60.0)
    assert one.inject(InjectFault("restart", "a")) == [SignalEdge("a", "kill")]
    one.exited("a", -9, 61.0)
    assert one.tick(61.0) == [SpawnEdge("a")]
    one.spawned("a", 201, 61.0)
    for fault in ("freeze", "thaw"):
        assert one.inject(InjectFault(fault, "a")) == [SignalEdge("a", fault)]
    assert one.exited("a", -11, 70.0) == ended("a", -11, "killed by signal 11", 1.0)
    assert one.inject(InjectFault("freeze", "a")) == []
    assert one.inject(InjectFault("kill", "elsewhere")) == []


def test_a_process_that_the_system_refuses_is_tried_again() -> None:
    one = Supervisor()
    one.start([("a",)], 1)
    assert one.exited("a", NOT_STARTED, 1.0) == ended("a", 71, "could not be started", 1.0)
    assert one.tick(2.0) == [SpawnEdge("a")]


# ------------------------------------------------------------------ several edges in one process
TRIO = ("a", "b", "c")


def sharing() -> Supervisor:
    """Three edges that share a process, which has the name of the first one."""
    one = Supervisor()
    assert one.start([TRIO], 1) == [SpawnEdge("a", TRIO)]
    assert one.spawned("a", 100, 0.0) == [EdgeStarted("a", 100, TRIO)]
    one.waits("a", False, 0.0)
    return one


def test_a_process_takes_its_edges_along_and_brings_them_back() -> None:
    one = sharing()
    (told,) = one.exited("a", -9, 1.0)
    assert told == EdgeEnded("a", -9, "killed by signal 9", 1.0, TRIO)
    assert one.tick(2.0) == [SpawnEdge("a", TRIO)]


def test_faults_and_ends_of_one_edge_leave_its_neighbours_alone() -> None:
    one = sharing()
    for fault in ("freeze", "thaw"):
        order = InjectFault(fault, "b")
        assert one.inject(order) == [OrderEdge("a", order)]
    kill = InjectFault("kill", "b")
    assert one.inject(kill) == [OrderEdge("a", kill), *ended("b", -9, "fault: kill")]
    one.ended_alone("a", "a")  # refused
    assert one.inject(InjectFault("freeze", "b")) == []
    assert one.running == ("c",)
    assert one.inject(InjectFault("restart", "b")) == [OrderEdge("a", InjectFault("restart", "b"))]
    assert one.exited("a", -9, 1.0)[0] == EdgeEnded("a", -9, "killed by signal 9", 1.0, ("b", "c"))
    assert one.tick(2.0) == [SpawnEdge("a", ("b", "c"))]


def test_an_edge_comes_back_after_the_end_of_all_its_neighbours() -> None:
    one = sharing()
    for edge in TRIO:
        one.inject(InjectFault("kill", edge))
    assert one.exited("a", OVER, 1.0) == [], "each was told before"
    assert one.inject(InjectFault("restart", "c")) == [SpawnEdge("a", ("c",))]
