"""A coordinator that is killed and resumed, with ten edges that keep running.

The run makes all its versions; the record and the edges' own notes prove that each acknowledged
update counts exactly once over all resumptions.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
import small_disk as disks
from chaos_run import ChaosRun, write_config

pytestmark = [pytest.mark.rest, pytest.mark.alone]

EDGES, VERSIONS, KILLS = 10, 60, 3
DISK_BYTES = 16 << 20


@pytest.fixture
def run(warm_python: None, tmp_path: Path) -> Iterator[ChaosRun]:
    write_config(tmp_path, EDGES, VERSIONS)
    run = ChaosRun(tmp_path, [f"e{number:03}" for number in range(EDGES)])
    yield run
    run.close()


def assert_whole(run: ChaosRun, resumptions: int) -> None:
    """All versions were made, and nothing acknowledged is lost or applied twice."""
    summary, found = run.to_the_end(), run.proof()
    assert found.faults == []
    assert (found.version, found.finished) == (VERSIONS, "versions")
    assert len(run.witnessed("acknowledged")) >= VERSIONS // 2
    assert found.facts["resumed"] == resumptions
    assert all(row["outage_s"] > 0 for row in run.rows(fact="resumed"))
    assert len(summary["resumed"]) == resumptions


def test_the_coordinator_is_killed_three_times_and_edges_meanwhile(run: ChaosRun) -> None:
    run.start()
    choose = random.Random(3)
    for step in range(KILLS):
        run.wait_for_version(VERSIONS * (step + 1) // (KILLS + 2))
        run.kill_coordinator()
        if step == 1:  # one edge loses its work, all others keep theirs
            run.kill_edge(choose.choice(run.names))
        run.resume()
    assert_whole(run, KILLS)


def test_the_command_is_killed_and_its_edges_end(run: ChaosRun) -> None:
    """The coordinator's process sees it and ends the run; edges keep their updates on disk."""
    run.state = True
    run.start()
    run.wait_for_version(VERSIONS // 3)
    run.kill_launcher()
    run.restart_edges()
    run.resume()
    assert_whole(run, 1)


@pytest.mark.skipif(bool(disks.refusal()), reason=disks.refusal() or "-")
def test_the_disk_is_full_and_then_the_coordinator_is_killed(run: ChaosRun) -> None:
    with disks.small_disk(run.folder / "runs", DISK_BYTES) as disk:
        run.start()
        run.wait_for_version(VERSIONS // 3)
        filler = disks.fill(disk)
        run.wait_until(lambda: "the run waits until there is room" in run.said, "it waits")
        known = len(run.witnessed("acknowledged"))
        run.kill_coordinator()
        filler.unlink()
        run.resume()
        assert_whole(run, 1)
        assert len(run.witnessed("acknowledged")) > known
        run.close()
