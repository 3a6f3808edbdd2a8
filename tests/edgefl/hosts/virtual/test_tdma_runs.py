"""Whole runs over a TDMA channel: places in a frame, cuts, the log of the slots, and half-duplex
devices.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from builders import S, experiment, small_run
from media import SLOTS, ns, transfers

from edgefl.disk import OwnDisk
from edgefl.errors import UserError
from edgefl.hosts.setup.rundir import written
from edgefl.results.tail import read_csv, read_events

MS = S // 1000


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
