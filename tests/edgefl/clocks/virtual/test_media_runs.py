"""Whole runs over shared media, profiles and traces: closed forms under the virtual clock, and the
same moments over real sockets.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from builders import S, experiment, small_run
from media import ALONE, PAIR, transfers

from edgefl.clocks.setup.devices import devices
from edgefl.loading.file import base_of, load
from edgefl.results.read import read_events
from emulator.units import to_ns

MS = S // 1000


def carried_ns(size: int, bit_s: int) -> int:
    return -(-size * 8 * S // bit_s)


# ------------------------------------------------------------------ a bottleneck, a cell
@pytest.mark.parametrize("kind", ["bottleneck", "cell"])
def test_two_edges_at_a_bottleneck_take_twice_as_long(tmp_path: Path, kind: str) -> None:
    medium = {"kind": kind, "up_mbit_s": 0.01, "down_mbit_s": 0.04}
    links = {"latency_ms": 10.0}
    for sections, times in ((ALONE, 1), (PAIR, 2)):
        _, directory = small_run(
            tmp_path / f"{kind}{times}", **sections, medium=medium, links=links
        )
        for direction, bit_s in (("up", 10_000), ("down", 40_000)):
            rows = transfers(directory, direction=direction)
            assert len(rows) == 2 * times
            for row in rows:  # both are offered at one moment: equal data and equal devices
                assert (
                    row["due_ns"]
                    == row["offered_ns"] + carried_ns(times * row["size"], bit_s) + 10 * MS
                )


def test_the_cap_of_one_leaves_more_to_the_other(tmp_path: Path) -> None:
    """Of 40 kbit/s, a slow link takes its 8, the other link the remaining 32."""
    groups = [
        {"name": "slow", "count": 1, "links": {"down_mbit_s": 0.008}},
        {"name": "fast", "count": 1},
    ]
    _, directory = small_run(
        tmp_path,
        **PAIR,
        medium={"kind": "cell", "down_mbit_s": 0.04},
        groups=groups,
        links={"down_mbit_s": 1.0},
    )
    slow, fast = (transfers(directory, edge=edge, direction="down")[0] for edge in "ab")
    assert fast["due_ns"] == carried_ns(fast["size"], 32_000) and slow["due_ns"] == carried_ns(
        slow["size"], 8_000
    )


# ------------------------------------------------------------------ TDMA


# ------------------------------------------------------------------ profiles, traces
def test_groups_have_the_times_of_their_profiles(tmp_path: Path) -> None:
    groups = [
        {
            "name": name,
            "count": 1,
            "links": {"profile": name, "jitter_ms": 0.0},
            "devices": {"profile": device},
        }
        for name, device in (("lte", "pi4"), ("dsl", "laptop"))
    ]
    sections = PAIR | {"groups": groups}
    _, directory = small_run(tmp_path, **sections)
    wanted = {
        "a": {"up": (7_600_000, 10_500_000), "down": (29_500_000, 10_500_000)},
        "b": {"up": (1_000_000, 25 * MS), "down": (8_400_000, 25 * MS)},
    }
    for row in transfers(directory):
        bit_s, latency_ns = wanted[row["edge"]][row["direction"]]
        assert row["due_ns"] == row["offered_ns"] + carried_ns(row["size"], bit_s) + latency_ns
    for edge, rate in (("a", 1800), ("b", 6600)):
        down, up = transfers(directory, edge=edge)[:2]
        assert (
            up["offered_ns"]
            == down["due_ns"] + round(100 / rate * S)
            == down["due_ns"] + (devices(experiment(**sections))[edge].duration_ns(100) or 0)
        )


TUNNEL = "0,80\n1,0\n2,8000\n60,\n"  # ten bytes, a second of silence, then one byte per ms


@pytest.mark.parametrize("start", ["run", "first_byte"])
def test_a_trace_is_followed_from_the_runs_begin_or_the_first_byte(
    tmp_path: Path, start: str
) -> None:
    trace = tmp_path / "tunnel.csv"
    trace.write_text(TUNNEL)
    links = {
        "trace_down": str(trace),
        "trace_up": str(trace),
        "trace_start": start,
        "latency_ms": 5.0,
    }
    _, directory = small_run(tmp_path, **ALONE | {"stop": {"versions": 1}}, links=links)
    down, up = transfers(directory)
    assert (down["offered_ns"], down["due_ns"]) == (0, 2 * S + (down["size"] - 10) * MS + 5 * MS)
    slow_ns = 2 * S - 10 * MS if start == "first_byte" else 0
    assert (
        up["offered_ns"] == down["due_ns"] + 2 * S
        and up["due_ns"] == up["offered_ns"] + slow_ns + up["size"] * MS + 5 * MS
    )


def test_a_request_for_a_fresher_model_is_charged_its_own_edges_latency(tmp_path: Path) -> None:
    groups = [{"name": "x", "count": 1, "links": {"profile": "dsl"}}]
    fresher = [{"strategy": "../support/own_strategies.py:Fresher"}]
    _, directory = small_run(
        tmp_path, **ALONE | {"stop": {"versions": 1}}, groups=groups, strategies=fresher
    )
    at = {
        event.get("event") or event["fact"]: to_ns(event["t"])
        for event in read_events(directory / "events.jsonl")
    }
    assert at["fresh_requested"] == at["task_started"] + 96 * S // 100 + 25 * MS


# ------------------------------------------------------------------ over real sockets
WALL = """
name = "shared"
seed = 3
model = {name = "mlp", hidden = [16]}
edges = {count = 3}
training = {epochs = 1, batch_size = 32}
devices = {samples_per_s = 1200.0, slowest_ratio = 2.0}
stop = {versions = 2}
MEDIUM
[links]
latency_ms = 5.0
[[groups]]
name = "train"
count = 1
links = {trace_up = "train.csv", trace_start = "first_byte"}
[[groups]]
name = "others"
count = 2
[[strategies]]
strategy = "fedavg"
"""
CELL = 'medium = {kind = "cell", up_mbit_s = 0.4, down_mbit_s = 0.8}'


@pytest.mark.alone
@pytest.mark.usefixtures("warm_python")
def test_real_bytes_keep_to_a_shared_medium_and_a_trace(tmp_path: Path) -> None:
    """Every transfer is scheduled as under the virtual clock.

    The bytes arrive at most as much later as a busy machine is late.
    """
    from edgefl.clocks.setup.learning import learning
    from edgefl.clocks.virtual.run import run_virtual
    from edgefl.clocks.wall.launcher import LaunchOptions, WallRun

    (tmp_path / "train.csv").write_text("0,100000\n0.2,0\n0.4,300000\n1,\n")
    config = tmp_path / "shared.toml"
    config.write_text(WALL.replace("MEDIUM", CELL))
    loaded = load(config)
    run_virtual(learning(loaded, base_of(config)), 0, tmp_path / "virtual" / "fedavg")
    (summary,) = WallRun(loaded, LaunchOptions(tmp_path / "wall", tmp_path), lambda text: None).run(
        lambda index, directory, port: None
    )
    assert summary["versions"] == 2
    wanted, found = (
        by_round(transfers(tmp_path / clock / "fedavg")) for clock in ("virtual", "wall")
    )
    assert wanted.keys() == found.keys() and len(wanted) == 12
    assert {name: found[name]["size"] for name in found} == {
        name: row["size"] for name, row in wanted.items()
    }
    late = {
        name: off_ns
        for name, row in wanted.items()
        if (off_ns := abs(found[name]["due_ns"] - row["due_ns"])) >= 100 * MS
    }
    if late and summary["fidelity"]["verdict"] == "strained":
        pytest.skip("this machine was too busy to train in time")  # the run reports this itself
    assert not late


def by_round(rows: list[dict[str, Any]]) -> dict[tuple[str, str, int], dict[str, Any]]:
    """(edge, direction, round) -> row; an edge has one transfer per direction in a round."""
    found: dict[tuple[str, str, int], dict[str, Any]] = {}
    for row in rows:
        of_link = sum(
            (edge, direction) == (row["edge"], row["direction"]) for edge, direction, _ in found
        )
        found[row["edge"], row["direction"], of_link] = row
    return found
