"""Real processes and sockets: the run of the virtual clock, faults, bad peers, byte rates."""

from __future__ import annotations

import re
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import psutil
import pytest
from processes import NS_PER_S, SMALL, Coordinator, Peer, happened, wait_for

from edgefl.clocks.process_messages import ForkEdges
from edgefl.clocks.setup.learning import learning
from edgefl.clocks.setup.rundir import replay_run
from edgefl.clocks.virtual.run import run_virtual
from edgefl.clocks.wall.connections import BEFORE_JOINING_BYTES, TOO_MUCH
from edgefl.clocks.wall.launcher import Interrupted, LaunchOptions, WallRun
from edgefl.config.file import load
from edgefl.protocol.messages import (
    MAX_HEADER_BYTES,
    PROTOCOL,
    Credit,
    Join,
    Offer,
    Piece,
    Refuse,
    Setup,
)
from edgefl.results.read import read_csv, read_events

pytestmark = pytest.mark.alone

LATE = re.compile(
    "late by more than|overran their emulated time|no message from edge|real path of edge"
)


def small(folder: Path, *overrides: str) -> WallRun:
    (folder / "small.toml").write_text(SMALL)
    return WallRun(
        load(folder / "small.toml", overrides), LaunchOptions(folder / "runs", folder), print
    )


# ------------------------------------------------------------------ one config, two clocks
@pytest.fixture(scope="module")
def pair(warm_python: None, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Run directories of the same config on the wall clock and under the virtual clock."""
    folder = tmp_path_factory.mktemp("pair")
    wall = small(folder, "record.payloads=true")
    wall.run(lambda *_: None)
    run_virtual(learning(wall.experiment, folder), 0, folder / "virtual")
    return wall.directory(0), folder / "virtual"


def summary(directory: Path) -> dict[str, Any]:
    return orjson.loads((directory / "summary.json").read_bytes())


def test_a_short_run_is_faithful_or_late(pair: tuple[Path, Path]) -> None:
    """A busy machine may be late, and then the run reports it; there must be no other reason."""
    found = summary(pair[0])["fidelity"]
    assert (found["verdict"] == "faithful") == (found["reasons"] == [])
    assert not [reason for reason in found["reasons"] if not LATE.search(reason)]


def test_a_run_leaves_every_file(pair: tuple[Path, Path]) -> None:
    wall, virtual = pair
    assert not (virtual / "hosts.csv").exists()
    assert {path.name for path in wall.iterdir()} - {"hosts.csv"} == {  # not in a very short run
        "config.toml",
        "events.jsonl",
        "layout.json",
        "links.csv",
        "metrics.csv",
        "summary.json",
        "model.safetensors",
        "journal",
    }
    found = summary(wall)
    assert {"transfer_lag_ms", "wake_lag_ms", "handle_ms", "host"} <= set(found["fidelity"])
    assert (found["clock"], found["versions"], found["finished"], found["fidelity"]["wire"]) == (
        "wall",
        8,
        "versions",
        {},
    )
    assert read_events(wall / "events.jsonl")[-1]["fact"] == "finished"
    assert [int(row["version"]) for row in read_csv(wall / "metrics.csv")] == list(range(9))
    rows = read_csv(wall / "links.csv")
    assert rows and all(
        float(row["offered_s"]) < float(row["scheduled_s"]) <= float(row["finished_s"])
        for row in rows
    )
    for direction in ("up", "down"):
        assert (
            sum(int(row["bytes"]) for row in rows if row["direction"] == direction)
            == found[f"bytes_{direction}"]
        )


def test_a_socket_run_replays_bit_equal(pair: tuple[Path, Path]) -> None:
    result = replay_run(pair[0])
    events = [line for line in read_events(pair[0] / "events.jsonl") if "event" in line]
    assert result.version == 8 and result.events == len(events)


@pytest.mark.usefixtures("warm_python")
@pytest.mark.skipif(not Path("/proc/net/if_inet6").exists(), reason="no IPv6 here")
def test_a_run_over_ipv6(tmp_path: Path) -> None:
    (found,) = small(tmp_path, "stop.versions=2", "network.host='[::1]'").run(lambda *_: None)
    assert found["versions"] == 2 and found["updates_applied"] == 2


# --------------------------------------------------------------- edges that die, hang and come back
def send_signal(launcher: WallRun, edge: str, number: int) -> None:
    (process,) = (
        child
        for child in psutil.Process(launcher.processes.warm.pid).children()
        if child.name() == f"edge {edge}"
    )
    process.send_signal(number)


def script(launcher: WallRun, directory: Path, address: list[str]) -> Iterator[Any]:
    """Kills e000 and freezes e001 while they work, then brings both back.

    It yields what must happen before it continues.
    """

    def arrived(edge: str) -> list[dict[str, Any]]:
        return happened(directory, event="update_arrived", edge=edge)

    yield lambda: arrived("e000") and arrived("e001")
    send_signal(launcher, "e000", signal.SIGKILL)
    send_signal(launcher, "e001", signal.SIGSTOP)
    yield lambda: happened(directory, event="task_closed", edge="e001")
    send_signal(launcher, "e001", signal.SIGCONT)
    yield lambda: happened(directory, event="task_closed", edge="e000", reason="edge lost")
    launcher.processes.control.send(ForkEdges(("e000",), address[0], index=0))
    before = {edge: len(arrived(edge)) for edge in ("e000", "e001", "e002")}
    yield lambda: all(len(arrived(edge)) > before[edge] for edge in before)


@pytest.mark.usefixtures("warm_python")
def test_a_run_outlives_killed_and_frozen_edges(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    times = ("network.heartbeat_s=0.2", "network.liveness_s=1.0", "network.grace_s=0.5")
    launcher, address = small(tmp_path, "stop.versions=100000", "stop.emulated_s=120", *times), []
    steps = script(launcher, launcher.directory(0), address)
    waiting: list[Callable[[], Any]] = [lambda: True]

    def watch(index: int, directory: Path, port: int) -> None:
        address[:] = [f"tcp://127.0.0.1:{port}"]
        if waiting[0]():
            waiting[0] = next(steps, lambda: False)
            if steps.gi_frame is None:
                raise KeyboardInterrupt

    with pytest.raises(Interrupted) as ended:
        launcher.run(watch)
    directory, found = launcher.directory(0), ended.value.summaries[0]
    assert found["finished"] == "interrupted" and launcher.exits == {"e000"}
    assert "edge e000 died (exit status -9" in capsys.readouterr().out
    assert {line["edge"]: line["reason"] for line in happened(directory, fact="session_ended")} == {
        "e000": "silent",
        "e001": "silent",
    }
    assert (
        len(happened(directory, event="edge_joined", edge="e000"))
        == len(happened(directory, event="edge_joined", edge="e001"))
        == 2
    )
    tasks = Counter(line["task"] for line in happened(directory, event="update_arrived"))
    assert set(tasks.values()) == {1} and found["updates_applied"] == len(tasks), (
        "an update was applied twice"
    )
    assert summary(directory) == found and (directory / "model.safetensors").exists()


# ------------------------------------------------------------------ peers that break the rules
SIZE = 10_000  # 40 kB, 160 ms at 2 Mbit/s: several pieces and credits
BARE: dict[str, Any] = {
    "edges": {"names": ["good-1", "good-2", "bad"]},
    "links": {"up_mbit_s": 2.0, "down_mbit_s": 2.0},
    "stop": {"emulated_s": 300.0},
    "network": {"grace_s": 0.2},
    "strategies": [{"strategy": "fedasync"}],
}


@pytest.fixture
def bare(warm_python: None, tmp_path: Path) -> Iterator[Coordinator]:
    coordinator = Coordinator(tmp_path, SIZE, **BARE)
    yield coordinator
    coordinator.process.kill()
    coordinator.process.wait()


def refusal(peer: Peer) -> tuple[str, bool]:
    refuse = peer.hear(Refuse)
    return refuse.reason, refuse.final


def test_strangers_are_counted_and_refused(bare: Coordinator) -> None:
    noise = (
        [b"\x00garbage"],
        [b"one", b"two", b"three"],
        [b"\xc2" * BEFORE_JOINING_BYTES],
        [b"\xc2" * (MAX_HEADER_BYTES + 1)],
    )
    strangers = [Peer(bare.port) for _ in noise]
    for stranger, frames in zip(strangers, noise):
        stranger.raw(*frames)
    peer = Peer(bare.port)
    peer.greet("bad", protocol=PROTOCOL + 1)
    assert refusal(peer) == (
        f"protocol version: the coordinator uses {PROTOCOL}, this edge {PROTOCOL + 1}",
        True,
    )
    peer = Peer(bare.port)
    peer.greet("nobody")
    assert refusal(peer) == (
        "edge id: 'nobody' is not one of this experiment's edges (edges.count, edges.names)",
        True,
    )
    peer = Peer(bare.port)
    peer.greet("bad")
    peer.hear(Setup)
    peer.say(Join("another", *bare.digests[1:], 10, [], []))
    assert refusal(peer) == ("config differs from the coordinator's", True)
    peer = Peer(bare.port)
    peer.greet("bad")
    peer.hear(Setup)
    peer.say(Piece(1, 0), b"x")
    assert refusal(peer) == ("protocol error: Piece before Join", False)
    for name in BARE["edges"]["names"]:
        bare.echo(name)
    wait_for(lambda: happened(bare.directory, event="update_arrived", edge="bad"))
    found = bare.end()
    quarantined = [fact["reason"] for fact in happened(bare.directory, fact="quarantined")]
    assert quarantined == ["3 frames in a message, at most 2"]
    # a message that is too long is not read, or comes before its connection is closed
    wire = found["fidelity"]["wire"]
    assert wire["quarantined"] == 1 and wire["refused"] == 3 and wire["wire error"] in (2, 3)
    strangers = [fact["reason"] for fact in happened(bare.directory, fact="stranger")]
    assert strangers == [TOO_MUCH] and found["fidelity"]["strangers"][TOO_MUCH] >= 1
    assert (
        len(happened(bare.directory, fact="wire_error")) == wire["wire error"]
        and len(happened(bare.directory, fact="refused")) == 3
    )


def test_a_bad_edge_is_dropped_and_the_others_go_on(bare: Coordinator) -> None:
    bare.echo("good-1")
    bare.echo("good-2")
    peer = Peer(bare.port).join("bad", bare.digests)
    for weights, reason in (
        (np.full(SIZE, np.nan, np.float32), "not finite"),
        (np.ones(SIZE + 1, np.float32), "wrong length"),
    ):
        task = peer.task()
        peer.upload(peer.offer(task, weights))
        discarded = partial(happened, bare.directory, fact="discarded", task=task.number)
        assert wait_for(discarded)[0]["reason"] == reason
    task = peer.task()
    outgoing = peer.offer(task, np.ones(SIZE, np.float32))
    limit = peer.hear(Credit).limit
    assert limit < outgoing.body
    peer.piece(outgoing, 0, limit + 1)
    assert "were credited" in refusal(peer)[0]
    peer = Peer(bare.port).join("bad", bare.digests)
    task = peer.task()
    outgoing = peer.offer(task, np.ones(SIZE, np.float32))
    outgoing.piece(0, SIZE)[:4] = b"\0\0\0\0"  # bytes that differ from the offered ones
    peer.upload(outgoing)
    assert refusal(peer) == ("protocol error: transfer 1 does not match its digest", False)
    peer = Peer(bare.port).join("bad", bare.digests)
    peer.raw(b"garbage")
    assert refusal(peer)[0].startswith("protocol error: header is not")
    peer = Peer(bare.port).join("bad", bare.digests)
    task = peer.task()
    peer.upload(peer.offer(task, np.ones(SIZE, np.float32)))
    wait_for(lambda: happened(bare.directory, event="update_arrived", task=task.number))
    before = {
        edge: len(happened(bare.directory, event="update_arrived", edge=edge))
        for edge in ("good-1", "good-2")
    }
    wait_for(
        lambda: all(
            len(happened(bare.directory, event="update_arrived", edge=edge)) > before[edge]
            for edge in before
        )
    )
    found = bare.end()
    assert found["fidelity"]["wire"]["wire error (bad)"] == 3
    assert found["updates_discarded"] == {"not finite": 1, "wrong length": 1}
    assert {line["edge"] for line in happened(bare.directory, fact="session_ended")} == {"bad"}
    closed = [line["reason"] for line in happened(bare.directory, event="task_closed")]
    assert closed.count("not finite") == closed.count("wrong length") == 1 and len(closed) == 5


@pytest.mark.usefixtures("warm_python")
def test_a_coordinator_that_was_stopped_is_never_faithful(tmp_path: Path) -> None:
    stopped_s, network = 1.0, {"heartbeat_s": 0.2, "liveness_s": 3.0}
    coordinator = Coordinator(tmp_path, SIZE, **BARE | {"network": network})
    try:
        for name in BARE["edges"]["names"]:
            coordinator.echo(name)
        arrived = partial(happened, coordinator.directory, event="update_arrived")
        wait_for(arrived)
        coordinator.process.send_signal(signal.SIGSTOP)
        time.sleep(stopped_s)
        coordinator.process.send_signal(signal.SIGCONT)
        before = len(arrived())
        wait_for(lambda: len(arrived()) > before)
        found = coordinator.end()["fidelity"]
    finally:
        coordinator.process.kill()
    (reason,) = (each for each in found["reasons"] if "stalled" in each)
    told = re.fullmatch(r"the coordinator stalled for (.*) s, from emulated (.*) s on", reason)
    assert found["verdict"] == "strained" and told is not None
    length_s, at_s = map(float, told.groups())
    assert stopped_s - 0.2 <= length_s == found["stalled_s"]
    assert happened(coordinator.directory, fact="stall")[0]["at_s"] == pytest.approx(at_s, abs=1e-3)


# ------------------------------------------------------------------ bytes at the emulated rate
@pytest.mark.usefixtures("warm_python")
def test_bytes_arrive_at_the_emulated_rate(tmp_path: Path) -> None:
    """0.25 MB at 2 Mbit/s take 1 s.

    Bytes are never ahead of the service curve by more than the window and the round trip.
    """
    size, rate_bit_s, allowed_s = (
        62_500,
        2_000_000,
        0.050 + 0.020,
    )  # the window, and the piece in transit
    bare = Coordinator(
        tmp_path,
        size,
        edges={"names": ["a"]},
        links={"up_mbit_s": 2.0, "down_mbit_s": 2.0},
        stop={"versions": 1},
    )
    peer = Peer(bare.port).join("a", bare.digests)
    task = peer.task()
    peer.upload(peer.offer(task, np.ones(size, np.float32)))
    summary = bare.hear().summary
    offered_ns = next(at_ns for at_ns, message, _ in peer.heard if isinstance(message, Offer))
    pieces = [
        ((at_ns - offered_ns) / NS_PER_S, message.offset + len(body))
        for at_ns, message, body in peer.heard
        if isinstance(message, Piece)
    ]
    assert len(pieces) > 40 and pieces[-1][1] == 4 * size
    assert all(at_s >= 8 * received / rate_bit_s - allowed_s for at_s, received in pieces)
    credits = [
        (at_ns / NS_PER_S, message.limit)
        for at_ns, message, _ in peer.heard
        if isinstance(message, Credit)
    ]
    assert all(
        at_s - credits[0][0] >= 8 * (limit - credits[0][1]) / rate_bit_s - allowed_s
        for at_s, limit in credits
    )
    assert summary["fidelity"]["ahead_of_curve"] == 0
    rows = read_csv(bare.directory / "links.csv")
    assert [row["direction"] for row in rows] == ["down", "up"]
    assert all(
        float(row["finished_s"]) >= float(row["scheduled_s"]) >= float(row["offered_s"]) + 1.0
        for row in rows
    )
