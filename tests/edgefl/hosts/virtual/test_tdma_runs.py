"""Whole runs over a TDMA channel: places in a frame, cuts, the log of the slots, and half-duplex
devices.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from builders import S, experiment, small_run
from media import ALONE, SLOTS, ns, transfers

from edgefl.disk import OwnDisk
from edgefl.errors import UserError
from edgefl.hosts.setup.network import network
from edgefl.hosts.setup.written import written
from edgefl.results.tail import read_csv, read_events
from emulator.tdma.channel import ChannelLink

MS = S // 1000
FAULTS = [
    {"kind": "cut_up", "edges": ["a"], "at_s": 3.0, "for_s": 2.0},
    {"kind": "freeze", "edges": ["b"], "at_s": 6.0, "for_s": 1.0},
]


def slots(directory: Path) -> list[tuple[int, int, str, str]]:
    return [
        (ns(row["begins_s"]), ns(row["ends_s"]), row["edge"], row["direction"])
        for row in read_csv(directory / "slots.csv")
    ]


def test_the_log_of_the_slots_shows_that_no_two_overlap(tmp_path: Path) -> None:
    speeds = {"samples_per_s": 100.0, "slowest_ratio": 2.0}
    _, directory = small_run(
        tmp_path,
        medium=SLOTS,
        devices=speeds,
        stop={"updates": 12},
        strategies=[{"strategy": "fedasync", "concurrency": 3}],
    )
    rows, whole = sorted(slots(directory)), transfers(directory)
    assert len(rows) == len(whole) >= 24, "one slot holds a model"
    assert all(first[1] <= second[0] for first, second in pairwise(rows))
    assert all(
        end_ns - begin_ns == 90 * MS and begin_ns % (100 * MS) == 0
        for begin_ns, end_ns, _, _ in rows
    ), "without their guards"
    assert {(row["edge"], row["direction"], row["due_ns"] // (100 * MS)) for row in whole} == {
        (edge, way, at // (100 * MS)) for at, _, edge, way in rows
    }
    assert "slots.csv" in written(directory, OwnDisk()), "so that a rerun removes it"


def test_without_slots_there_is_no_log_of_them(tmp_path: Path) -> None:
    _, directory = small_run(tmp_path, **ALONE | {"stop": {"versions": 1}})
    assert not (directory / "slots.csv").exists()


def test_in_frames_each_edge_keeps_to_its_place_both_ways(tmp_path: Path) -> None:
    _, directory = small_run(tmp_path, medium=SLOTS | {"frame_slots": 4}, stop={"versions": 2})
    rows = slots(directory)
    assert len(rows) == 12 and {
        (edge, begin_ns // (100 * MS) % 4) for begin_ns, _, edge, _ in rows
    } == {("a", 0), ("b", 1), ("c", 2)}
    assert min(begin_ns for begin_ns, _, edge, _ in rows if edge == "c") == 200 * MS


def test_more_edges_than_places_share_them() -> None:
    links = network(experiment(edges={"count": 5}, medium=SLOTS | {"frame_slots": 2}), None)
    found = [links.link(f"e00{number}", "up") for number in range(5)]
    assert [link.places for link in found if isinstance(link, ChannelLink)] == [
        (0,),
        (1,),
        (0,),
        (1,),
        (0,),
    ]


@pytest.mark.parametrize(
    ("medium", "line"),
    [
        ({"frame_slots": 0}, "greater than or equal to 1"),
        (
            {"kind": "cell", "up_mbit_s": 1.0, "frame_slots": 2},
            'frame_slots: expected kind = "tdma"',
        ),
    ],
)
def test_frames_are_of_slots(medium: dict[str, Any], line: str) -> None:
    with pytest.raises((UserError, ValueError), match=line):
        experiment(medium=(SLOTS if "kind" not in medium else {}) | medium)


def test_an_edge_that_is_cut_off_gets_no_slot_meanwhile(tmp_path: Path) -> None:
    """The uplink of a is cut from 3 to 5 s, b is frozen from 6 to 7 s; the others continue."""
    _, directory = small_run(
        tmp_path,
        medium=SLOTS,
        faults=FAULTS,
        devices={"samples_per_s": 400.0},
        stop={"emulated_s": 10.0},
        strategies=[{"strategy": "fedasync", "concurrency": 3}],
    )
    rows = slots(directory)

    def within(edge: str, way: str | None, from_s: int, to_s: int) -> int:
        return sum(
            who == edge and way in (None, direction) and end_ns > from_s * S and begin_ns < to_s * S
            for begin_ns, end_ns, who, direction in rows
        )

    assert within("a", "up", 3, 5) == within("b", None, 6, 7) == 0
    assert (
        within("a", "up", 5, 10)
        and within("b", None, 7, 10)
        and within("c", None, 3, 5)
        and within("a", None, 6, 7)
    )


@pytest.mark.parametrize("strategy", ["fedavg", "fedasync", "../support/own_strategies.py:Fresher"])
@pytest.mark.parametrize("medium", [{"kind": "none"}, SLOTS])
def test_an_edge_never_computes_while_it_sends_or_receives(
    tmp_path: Path, strategy: str, medium: dict[str, Any]
) -> None:
    """Why half-duplex needs no config key: an edge has one task at a time, and training pauses
    while it waits for a fresher model.
    """
    speeds = {"samples_per_s": 100.0, "slowest_ratio": 2.0}
    _, directory = small_run(
        tmp_path,
        medium=medium,
        devices=speeds,
        stop={"versions": 3},
        strategies=[{"strategy": strategy}],
    )
    busy: list[tuple[str, int, int, str]] = [
        (row["edge"], row["offered_ns"], row["due_ns"], row["direction"])
        for row in transfers(directory)
    ]
    since: dict[str, int] = {}
    for event in read_events(directory / "events.jsonl"):
        match event.get("event") or event["fact"], event.get("edge", ""):
            case "task_started", edge:
                since[edge] = round(event["t"] * S)
            case (("fresh_requested" | "update_ready"), edge) if edge in since:
                busy.append((edge, since.pop(edge), round(event["t"] * S), "computes"))
    assert {what for *_, what in busy} == {"up", "down", "computes"}
    for first, second in pairwise(sorted(busy)):
        assert first[0] != second[0] or first[2] <= second[1], (first, second)
