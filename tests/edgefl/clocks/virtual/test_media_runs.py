"""Whole runs over shared media, profiles and traces: closed forms under the virtual clock, and the
same moments over real sockets.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from builders import S, small_run
from media import ALONE, PAIR, transfers

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
