"""Ten edges of real processes that are killed, frozen and cut off: the run ends as planned.

The record and the edges' own notes prove that each acknowledged update counts exactly once.
"""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from chaos_run import Cable, ChaosRun, write_config

pytestmark = [pytest.mark.rest, pytest.mark.alone]

EDGES, VERSIONS = 10, 60
KILLS, FREEZES, CUT_S = 4, 2, 0.3


@pytest.fixture
def run(warm_python: None, tmp_path: Path) -> Iterator[ChaosRun]:
    write_config(tmp_path, EDGES, VERSIONS)
    run = ChaosRun(tmp_path, [f"e{number:03}" for number in range(EDGES)])
    yield run
    run.close()


def assert_exactly_once(run: ChaosRun, versions: int) -> None:
    found = run.proof()
    assert found.faults == []
    assert (found.version, found.finished) == (versions, "versions")
    assert len(run.witnessed("acknowledged")) >= versions // 2  # the proof is about something


def test_random_edges_are_killed_again_and_again(run: ChaosRun) -> None:
    run.start()
    choose = random.Random(1)
    for step in range(KILLS):
        run.wait_for_version(VERSIONS * (step + 1) // (KILLS + 2))
        run.kill_edge(choose.choice(run.names))
    summary = run.to_the_end()
    assert summary["versions"] == VERSIONS
    assert_exactly_once(run, VERSIONS)
    assert run.proof().facts["session_ended"] >= 1


def test_frozen_edges_come_back(run: ChaosRun) -> None:
    run.start()
    frozen = random.Random(2).sample(run.names, FREEZES)
    for edge in frozen:
        run.signal_edge(edge, signal.SIGSTOP)
    for edge in frozen:
        run.wait_for_row(event="edge_lost", edge=edge)
        run.signal_edge(edge, signal.SIGCONT)
    assert run.to_the_end()["versions"] == VERSIONS
    assert_exactly_once(run, VERSIONS)


def test_cut_and_silent_connections_are_made_again(run: ChaosRun) -> None:
    """A cut is noticed at once; the edges of a silent connection are lost after liveness_s."""
    cut, silent = run.names[:2], run.names[2:4]
    cables = Cable(run, cut), Cable(run, silent)
    run.start()
    cables[1].silence()
    for _ in range(2):
        cables[0].cut()
        time.sleep(CUT_S)
        cables[0].restore()
    for edge in silent:
        run.wait_for_row(event="edge_lost", edge=edge)
    cables[1].end_silence()
    assert run.to_the_end()["versions"] == VERSIONS
    assert_exactly_once(run, VERSIONS)
