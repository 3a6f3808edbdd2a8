"""Edges on another machine, with CURVE keys, whose network breaks. Root; skipped elsewhere.

Two network namespaces are the two machines. Edges note each piece of a transfer, so that a test
sees where a broken transfer goes on.
"""

from __future__ import annotations

import itertools
import signal
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import namespace_pair as pair
import pytest
from chaos_run import ChaosRun, write_config

from edgefl.clocks.wall import keys as curve

pytestmark = [
    pytest.mark.rest,
    pytest.mark.alone,
    pytest.mark.skipif(bool(pair.refusal()), reason=pair.refusal() or "-"),
]

NAMES = ("e000", "e001", "e002")
CUT_S, SHORT_S = 5.0, 1.5
# the reason that closes a task whose offer was lost with the connection
NEVER_HEARD_OF = "edge restarted or lost its task"
MIDDLE = (0.3, 0.6)  # of a transfer
# 180 kB at 2 Mbit/s take 0.7 s in each direction
CONFIG = """
name = "chaos"
seed = 5
model = {{name = "mlp", hidden = [600]}}
edges = {{count = {edges}}}
training = {{epochs = 1, batch_size = 32}}
devices = {{samples_per_s = 2000.0}}
links = {{up_mbit_s = 2.0, down_mbit_s = 2.0, latency_ms = 5.0}}
network = {{heartbeat_s = 0.2, liveness_s = 1.0, grace_s = 60.0, task_timeout_s = 0}}
evaluation = {{every_versions = 0}}
stop = {{versions = {versions}}}
strategies = [{{strategy = "fedasync", concurrency = {edges}}}]
"""
PARAMETERS = 64 * 600 + 600 + 600 * 10 + 10
SIZE = 4 * PARAMETERS
WINDOW = SIZE // 4  # more than is on its way at one moment, less than what came before MIDDLE


@pytest.fixture
def run(warm_python: None, tmp_path: Path) -> Iterator[ChaosRun]:
    write_config(tmp_path, len(NAMES), 1_000_000, CONFIG)
    curve.new(tmp_path / "keys", NAMES)
    with pair.namespace_pair() as places:
        run = ChaosRun(tmp_path, NAMES, host=pair.FIRST, places=places, keys=tmp_path / "keys")
        try:
            run.start()
            yield run
        finally:
            run.close()


def transfers(run: ChaosRun, key: str) -> dict[tuple[str, int], list[dict[str, Any]]]:
    """The pieces that edges have "received" or "sent", by edge and transfer, in order."""
    found = defaultdict(list)
    for edge, row in run.witnessed(key):
        found[edge, row[key]].append(row)
    return found


def half_way(run: ChaosRun, key: str) -> set[str]:
    """The edges whose latest transfer is somewhere in its middle."""
    latest = {edge: pieces[-1] for (edge, _), pieces in transfers(run, key).items()}
    shares = {edge: (piece["at"] + piece["bytes"]) / SIZE for edge, piece in latest.items()}
    return {edge for edge, share in shares.items() if MIDDLE[0] < share < MIDDLE[1]}


def broken(run: ChaosRun, key: str) -> list[list[dict[str, Any]]]:
    """The transfers that began in one session and went on in another."""
    each = transfers(run, key).values()
    return [pieces for pieces in each if len({piece["session"] for piece in pieces}) > 1]


def assert_byte_exact(pieces: list[dict[str, Any]]) -> None:
    """Each byte came once, in order, up to the last one."""
    end = 0
    for piece in pieces:
        assert piece["at"] == end
        end += piece["bytes"]
    assert end == SIZE


def assert_goes_on(pieces: list[dict[str, Any]]) -> None:
    """The bytes that the cut lost on their way were sent again, and no others."""
    for before, after in itertools.pairwise(pieces):
        end = before["at"] + before["bytes"]
        if after["session"] == before["session"]:
            assert after["at"] == end
        else:
            assert end - WINDOW < after["at"] <= end  # 0: all that was sent was on its way
    assert pieces[-1]["at"] + pieces[-1]["bytes"] == SIZE


def began_again_at(pieces: list[dict[str, Any]]) -> int:
    """The first byte of a transfer that its second session carried."""
    return next(
        after["at"]
        for before, after in itertools.pairwise(pieces)
        if after["session"] != before["session"]
    )


def go_on(run: ChaosRun) -> None:
    """Wait for some updates of all edges."""
    before = {edge: len(run.rows(event="update_arrived", edge=edge)) for edge in NAMES}
    run.wait_until(
        lambda: all(len(run.rows(event="update_arrived", edge=e)) > before[e] + 1 for e in NAMES),
        "all edges go on",
    )


def end(run: ChaosRun) -> None:
    """Go on for some updates of all edges, end the run with Ctrl-C, and check the record."""
    go_on(run)
    run.coordinator.send_signal(signal.SIGINT)
    run.ended(run.coordinator)
    found = run.proof()
    assert found.faults == [] and found.finished == "interrupted"
    assert not found.facts["wire_error"] and not found.facts["quarantined"]
    assert run.witnessed("acknowledged")
    assert {row["reason"] for row in run.rows(event="task_closed")} <= {NEVER_HEARD_OF}


def wait_until_all_are_lost(run: ChaosRun, times: int) -> None:
    for edge in NAMES:
        run.wait_until(
            lambda edge=edge: len(run.rows(event="edge_lost", edge=edge)) == times,
            f"{edge} is lost",
        )


def cut_in_the_middle(run: ChaosRun, key: str, for_s: float, times: int) -> None:
    """Cut the cable while a transfer is in its middle, until all edges are lost."""
    run.wait_until(lambda: half_way(run, key), "a transfer in its middle")
    pair.cut(run.places[1])
    time.sleep(for_s)
    wait_until_all_are_lost(run, times)
    pair.restore(run.places[1])


def test_transfers_go_on_at_the_next_byte_after_a_cut(run: ChaosRun) -> None:
    cut_in_the_middle(run, "received", CUT_S, 1)
    cut_in_the_middle(run, "sent", SHORT_S, 2)
    end(run)
    downloads, uploads = broken(run, "received"), broken(run, "sent")
    assert downloads and uploads
    for pieces in downloads:
        assert_byte_exact(pieces)
    for pieces in uploads:
        assert_goes_on(pieces)
    assert any(began_again_at(pieces) > 0 for pieces in uploads)


def test_a_cut_of_one_direction_and_another_address_lose_no_update(
    run: ChaosRun,
) -> None:
    first, second = run.places
    for times, (where, to) in enumerate([(second, pair.FIRST), (first, pair.SECOND)], 1):
        pair.lose_what_leaves(where, to)
        wait_until_all_are_lost(run, times)
        pair.lose_no_more(where, to)
        go_on(run)
    pair.move(second, pair.SECOND, pair.THIRD)
    wait_until_all_are_lost(run, 3)
    end(run)


def test_a_coordinator_is_killed_and_resumed_in_the_middle_of_transfers(run: ChaosRun) -> None:
    """A download goes on at the next byte; the dead coordinator held the bytes of an upload."""
    for key in ("received", "sent"):
        run.wait_until(lambda key=key: half_way(run, key), "a transfer in its middle")
        run.kill_coordinator()
        run.resume()
        go_on(run)
    end(run)
    downloads, uploads = broken(run, "received"), broken(run, "sent")
    assert downloads and uploads
    for pieces in downloads:
        assert_byte_exact(pieces)
    for pieces in uploads:
        again = [each for each in pieces if each["session"] == pieces[-1]["session"]]
        assert_byte_exact(again)
    assert len(run.rows(fact="resumed")) == 2
