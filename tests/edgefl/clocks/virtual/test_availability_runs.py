"""Whole runs with edges that come and go, under the virtual clock."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from builders import experiment, small_run
from coming_and_going import IDS, RUN, sections

from edgefl.clocks.setup.network import (
    MOST_SENT_BYTES,
    RandomAbsence,
    RecordedAbsence,
    absence,
    devices,
    with_patterns,
)
from edgefl.config.file import from_json, to_json
from edgefl.errors import UserError
from edgefl.results.read import read_csv, read_events


def comings(directory: Path) -> list[tuple[float, str, str]]:
    return [
        (event["t"], event["event"], event["edge"])
        for event in read_events(directory / "events.jsonl")
        if event.get("event") in ("edge_joined", "edge_lost")
    ]


# of several base classes, and those that send slots, jobs or fresh models
NAMES = ["fedavg", "fedasync", "k-async", "idfl", "fedasmu", "fedecho"]


@pytest.mark.parametrize("on_leave", ["keep", "lose"])
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.slow
def test_a_run_with_half_of_the_edges_away_ends_cleanly(
    name: str, on_leave: str, tmp_path: Path
) -> None:
    summary, directory = small_run(tmp_path, **sections(tmp_path, name, on_leave=on_leave))
    assert summary["finished"] == "emulated_s" and summary["updates_received"] > 0
    assert "edges_lost" not in summary, "they are away as the config says"
    there: set[str] = set()
    for t, event, edge in comings(directory):
        there = there | {edge} if event == "edge_joined" else there - {edge}
        assert len(there) <= 4 and t <= 16, "at a change, one may come before another leaves"
    assert len(there) == 3
    for row in read_csv(directory / "links.csv"):
        assert row["kind"], "each transfer is whole or was ended"


def test_the_strategy_sees_the_times_of_the_file(tmp_path: Path) -> None:
    _, directory = small_run(tmp_path, **sections(tmp_path, "fedasync"))
    of_e1 = [(t, event) for t, event, edge in comings(directory) if edge == "e1"]
    assert (
        of_e1
        == [
            (t, event)
            for lap in range(4)
            for t, event in ((4 * lap + 2, "edge_joined"), (4 * lap + 4, "edge_lost"))
        ][:-1]
    ), "the run ends before the last alarm"
    scaled = sections(tmp_path, "fedasync", scale=2.0)
    _, directory = small_run(tmp_path / "scaled", **scaled)
    of_e1 = [(t, event) for t, event, edge in comings(directory) if edge == "e1"]
    assert of_e1[:2] == [(4, "edge_joined"), (8, "edge_lost")]


def test_training_pauses_to_the_nanosecond(tmp_path: Path) -> None:
    """The only edge leaves in its training and is back 1.5 s later: all that follows is that much
    later.
    """

    def arrival(where: dict[str, Any] | None) -> float:
        edges: dict[str, Any] = {"names": ["a"]} | ({"availability": where} if where else {})
        given = RUN | {"edges": edges, "stop": {"emulated_s": 10.0, "updates": 1}}
        given |= {"network": {"grace_s": 5.0}, "devices": {"samples_per_s": 50.0}}
        given |= {"strategies": [{"strategy": "fedavg", "clients_per_round": 1}]}
        folder = tmp_path / str(bool(where))
        folder.mkdir()
        _, directory = small_run(folder, **given)
        events = read_events(directory / "events.jsonl")
        return next(e["t"] for e in events if e.get("event") == "update_arrived")

    (tmp_path / "a.csv").write_text("a,0,0.7\na,2.2,100\n")
    without = arrival(None)
    assert 1 < without < 5
    kept = arrival({"kind": "file", "file": str(tmp_path / "a.csv"), "period_s": 100.0})
    assert kept == pytest.approx(without + 1.5, abs=2e-9)


def test_slow_devices_are_away_longer_if_the_config_says_so(tmp_path: Path) -> None:

    where = {"kind": "exponential", "there_s": 2.0, "away_s": 1.0, "speed_exponent": 2.0}
    given = experiment(**RUN | {"edges": {"names": IDS, "availability": where}})
    away = absence(given, None)
    assert isinstance(away, RandomAbsence)
    means = away.away_ns
    assert means.keys() == set(IDS)
    assert max(means.values()) / min(means.values()) == pytest.approx(3.0**2, rel=1e-6)
    made = devices(given)
    order = sorted(IDS, key=lambda edge: made[edge].duration_ns(100) or 0)
    assert sorted(IDS, key=means.__getitem__) == order, "the slowest device is away longest"


def test_speeds_per_slot_count_as_those_per_second() -> None:
    where = {"kind": "exponential", "there_s": 2.0, "away_s": 1.0, "speed_exponent": 1.0}
    groups = [
        {"name": name, "count": 1, "devices": {"samples_per_slot": rate}}
        for name, rate in (("fast", 40.0), ("slow", 10.0))
    ]
    medium = {"kind": "tdma", "slot_ms": 100.0, "rate_mbit_s": 1.0}
    edges = {"names": ["fast", "slow"], "availability": where}
    away = absence(experiment(edges=edges, groups=groups, medium=medium), None)
    assert isinstance(away, RandomAbsence)
    assert away.away_ns["slow"] / away.away_ns["fast"] == pytest.approx(4.0)


def test_the_patterns_of_a_file_travel_to_edges_that_do_not_have_it(tmp_path: Path) -> None:
    clients = {
        str(n): {"active": [n, n + 3.25], "inactive": [n + 1, n + 4], "finish_time": 10}
        for n in range(4)
    }
    (tmp_path / "phones.json").write_text(json.dumps(clients))
    where = {"kind": "file", "file": "phones.json", "draw": True, "scale": 0.3, "on_leave": "lose"}
    given = experiment(
        edges={"names": IDS, "availability": where}, stop={"emulated_s": 9.0, "versions": 3}
    )
    carried = with_patterns(given, tmp_path)
    got = from_json(to_json(carried, carried.strategies[0]))
    assert got.edges == carried.edges and got.edges.availability is not None
    assert got.edges.availability.on_leave == "lose" and got.edges.availability.file is None
    here, there = absence(given, tmp_path), absence(got, None)
    assert isinstance(here, RecordedAbsence) and isinstance(there, RecordedAbsence)
    assert here.patterns == there.patterns
    assert with_patterns(got, None) is got, "they are in it already"


def test_patterns_that_are_too_many_for_a_message(tmp_path: Path) -> None:
    count = MOST_SENT_BYTES // 20
    rows = "".join(f"e0,{2 * n},{2 * n + 1}\n" for n in range(count))
    (tmp_path / "long.csv").write_text(rows)
    given = experiment(
        edges={"names": ["e0"], "availability": {"kind": "file", "file": "long.csv"}}
    )
    with pytest.raises(UserError, match="its intervals take .* kB, expected at most 400 kB"):
        with_patterns(given, tmp_path)
