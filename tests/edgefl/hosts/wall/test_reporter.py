"""The thread that reports about an edge's host, and which edge speaks for a host."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from host_reports import FACTS, REPORT
from msgspec.structs import replace
from processes import wait_for

from edgefl.hosts.wall.edge import reporter as edge_reporter
from edgefl.hosts.wall.edge.reporter import HostClaim, Reporter
from edgefl.protocol.messages import HostFacts, HostReport

pytestmark = pytest.mark.processes
ADDRESS = "tcp://127.0.0.1:7700"


class Machine:
    """Counts how often it is asked, and for whom."""

    def __init__(self, address: str) -> None:
        self.asked: list[bool] = []

    def facts(self) -> HostFacts:
        return FACTS

    def report(self, for_host: bool = True) -> HostReport:
        self.asked.append(for_host)
        return replace(REPORT, rss_bytes=len(self.asked))


def began(monkeypatch: pytest.MonkeyPatch, period_ns: int = 2_000_000_000) -> Reporter:
    monkeypatch.setattr(edge_reporter, "FIRST_REPORT_S", 0.01)
    found = Reporter(ADDRESS, Machine)  # type: ignore[arg-type]  # a stand-in
    found.begin(7, period_ns)
    return found


def test_facts_come_once_a_session_and_reports_as_they_are_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reporter = began(monkeypatch)
    try:
        said: list[Any] = []
        wait_for(lambda: said.extend(reporter.due(1)) or len(said) == 2)
        assert said == [FACTS, replace(REPORT, rss_bytes=2)]  # the first one began to count
        assert reporter.due(1) == [] and reporter.due(2) == [FACTS] and reporter.due(2) == []
    finally:
        reporter.end()
        reporter.join(5)
    assert not reporter.is_alive()


def test_a_coordinator_that_wants_no_reports_gets_none() -> None:
    reporter = Reporter(ADDRESS, Machine)  # type: ignore[arg-type]  # a stand-in
    reporter.begin(7, 0)
    assert not reporter.is_alive() and reporter.due(1) == []
    reporter.end()


def test_nobody_is_asked_more_often_than_every_two_seconds() -> None:
    reporter = Reporter(ADDRESS, Machine)  # type: ignore[arg-type]  # a stand-in
    reporter.begin(7, 1)
    reporter.end()
    assert reporter.period_s == 2.0
    reporter.join(5)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has names that leave no file")
def test_one_process_speaks_for_a_host_and_another_takes_over() -> None:
    first, second, other = HostClaim("a run"), HostClaim("a run"), HostClaim("another run")
    try:
        assert [claim.take() for claim in (first, second, other)] == [True, False, True]
        assert first.take() and not second.take()
        first.release()
        assert second.take() and not first.take()
    finally:
        for claim in (first, second, other):
            claim.release()
