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
from tdma_rounds import play, rounds, slotted

from edgefl.clocks.setup.plan import strategy
from edgefl.config.file import check_names
from edgefl.config.section import Source
from edgefl.errors import UserError
from edgefl.results.read import read_csv, read_events
from edgefl.vectors import Layout, LayoutEntry, aligned


def slots(directory: Path) -> list[tuple[int, int, str, str]]:
    return [
        (ns(row["begins_s"]), ns(row["ends_s"]), row["edge"], row["direction"])
        for row in read_csv(directory / "slots.csv")
    ]


@pytest.mark.parametrize("strategy", ["fedasync", "../support/own_strategies.py:Fresher"])
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


# ------------------------------------------------------------------ slotted strategies when someth
SLOTS_TDMA_FAULTS: dict[str, Any] = {
    "kind": "tdma",
    "slot_ms": 100.0,
    "guard_ms": 10.0,
    "rate_mbit_s": 1.0,
}


def with_faults(
    folder: Path, faults: list[dict[str, Any]], slots: int = 60, **options: Any
) -> tuple[dict[str, Any], Path]:
    """Six devices that take 2 slots, two per round.

    e000 sends in slot 2, e001 in slot 3, and the broadcast is in slot 4.
    """
    given = slotted(6, 2, slots=slots, per_round=2, **options).model_copy(
        update={"faults": experiment(faults=faults, edges={"count": 6}).faults}
    )
    summary, _ = play(folder, given)
    return summary, folder / given.strategies[0].name


def reports(directory: Path) -> list[dict[str, float]]:
    found = [
        each
        for event in read_events(directory / "events.jsonl")
        for each in event.get("decisions", [])
    ]
    return [each["values"] for each in found if each["do"] == "report"]


def test_a_device_that_dies_in_its_slot_costs_that_slot(tmp_path: Path) -> None:
    """The round continues without it: one update, the broadcast in its planned slots, and no other
    device is late.
    """
    _, directory = with_faults(tmp_path, [{"kind": "kill", "edges": ["e001"], "at_s": 3.5}])
    first, second, *_ = reports(directory)
    assert (first["uploads"], first["lost"], first["end_slot"]) == (1, 1, 5)
    assert (second["uploads"], second["lost"], second["end_slot"]) == (2, 0, 8)
    assert sum(each["lost"] for each in reports(directory)) == 1
    assert all(edge != 1 for done in rounds(directory)[1:] for edge, _, _ in done.uploads)


@pytest.mark.parametrize("per_round", [1, 2])
@pytest.mark.parametrize("on_lost", ["skip", "wait"])
def test_an_update_that_comes_damaged_costs_its_slot_and_gets_another(
    tmp_path: Path, per_round: int, on_lost: str
) -> None:
    """Its device offers it again, after all updates that were ready before.

    No device gets two models at once, and the rounds continue with S updates each.
    """
    given = slotted(6, 2, slots=60, per_round=per_round, on_lost=on_lost)
    faults = [{"kind": "corrupt", "edges": ["e001"], "at_s": 2.5}]
    play(
        tmp_path,
        given.model_copy(update={"faults": experiment(faults=faults, edges={"count": 6}).faults}),
    )
    told, played = reports(tmp_path / "tdma-fl"), rounds(tmp_path / "tdma-fl")
    assert [each["lost"] for each in told].count(1) == 1 and {each["uploads"] for each in told} == {
        per_round
    }
    hit = next(number for number, each in enumerate(told) if each["lost"])
    assert (
        played[hit].end_slot - played[hit - 1].end_slot == per_round + 2
        if hit
        else played[0].end_slot == 2 + per_round + 2
    )
    again = [
        number
        for number, done in enumerate(played)
        if any(edge == 1 for edge, _, _ in done.uploads)
    ]
    assert again[0] == hit + 4 // per_round and len(again) > 3, "after e002 to e005"


def test_latency_beyond_the_guard_wastes_a_slot_a_round(tmp_path: Path) -> None:
    """The last upload of each round arrives only in the slot after its own, which no device can
    use.

    2 + 1 wasted slots at first, then 1 per round.
    """
    given = slotted(6, 2, slots=40, per_round=2)
    play(
        tmp_path,
        given.model_copy(
            update={"links": experiment(links={"latency_ms": 300.0}, edges={"count": 6}).links}
        ),
    )
    told = reports(tmp_path / "tdma-fl")
    assert [each["end_slot"] for each in told[:3]] == [6, 10, 14] and [
        each["wasted_slots"] for each in told[:3]
    ] == [3, 1, 1]
    assert all(each["uploads"] == 2 for each in told)


# ------------------------------------------------------------------ known to be away
SOON = {"heartbeat_s": 0.1, "liveness_s": 1.0, "grace_s": 12.0}


def away(folder: Path, fault: dict[str, Any], per_round: int, **options: Any) -> Path:
    """Five devices that take 2 slots.

    A device is lost one slot after its last message, and its task is closed 12 slots later.
    """
    sections = experiment(faults=[fault], network=SOON, edges={"count": 5})
    given = slotted(5, 2, slots=40, per_round=per_round, **options).model_copy(
        update={"faults": sections.faults, "network": sections.network}
    )
    play(folder, given)
    return folder / given.strategies[0].name


def granted(directory: Path) -> list[tuple[int, int]]:
    """(edge's number, slot) of each grant."""
    found = [
        each
        for event in read_events(directory / "events.jsonl")
        for each in event.get("decisions", [])
    ]
    return [(int(each["edge"][1:]), each["slots"][0]) for each in found if each["do"] == "grant"]


def test_a_device_that_is_known_to_be_lost_gets_no_slot(tmp_path: Path) -> None:
    """e003 is ready at slot 2, dies, and is lost from 3.5 on: e004 gets its slot 8."""
    directory = away(tmp_path, {"kind": "kill", "edges": ["e003"], "at_s": 2.5}, 1)
    assert [each["lost"] for each in reports(directory)] == [0] * 19
    assert {slot - 2 * number for number, (_, slot) in enumerate(granted(directory))} == {2}
    assert granted(directory)[3] == (4, 8) and 3 not in {edge for edge, _ in granted(directory)}


@pytest.mark.parametrize(("on_lost", "ends"), [("skip", [7, 14]), ("wait", [16, 23])])
def test_a_round_ends_without_it_or_waits_until_its_grace_ends(
    tmp_path: Path, on_lost: str, ends: list[int]
) -> None:
    """All five send in a round; e004 dies while it computes and is lost at 2.5.

    Round 0 ends after four uploads, or it waits until the task is closed, at 14.5.
    """
    directory = away(tmp_path, {"kind": "kill", "edges": ["e004"], "at_s": 1.5}, 5, on_lost=on_lost)
    told = reports(directory)
    assert [each["uploads"] for each in told[:2]] == [4, 4] and sum(x["lost"] for x in told) == 0
    assert [each["end_slot"] for each in told[:2]] == ends


# ------------------------------------------------------------------ bad input
@pytest.mark.parametrize(
    ("sections", "line"),
    [
        (
            {"strategies": [{"strategy": "tdma-fl", "per_round": 4}]},
            r"strategies\[0\].per_round: expected at most the number of edges \(3\), found 4",
        ),
        (
            {"strategies": [{"strategy": "idfl", "per_round": 1, "alpha": 3}]},
            r"strategies\[0\].alpha: expected 0 to 2 rounds, less than the 3 groups, found 3",
        ),
        (
            {"medium": {"kind": "none"}},
            r'strategies\[0\].strategy: .*expected medium.kind = "tdma"',
        ),
        ({"medium": SLOTS_TDMA_FAULTS | {"frame_slots": 4}}, r"without frame_slots"),
        (
            {"links": {"kind": "native"}},
            r"links.kind: tdma-fl assigns slots: expected emulated links",
        ),
        (
            {
                "medium": {"kind": "none"},
                "devices": {"samples_per_slot": 2.0},
                "strategies": [{"strategy": "fedavg"}],
            },
            r'devices.samples_per_slot: expected medium.kind = "tdma"',
        ),
    ],
)
def test_configs_that_cannot_work(sections: dict[str, Any], line: str) -> None:
    given = experiment(
        **{"medium": SLOTS_TDMA_FAULTS, "strategies": [{"strategy": "tdma-fl"}]} | sections
    )
    with pytest.raises(UserError, match=line):
        check_names(given, Source("here.toml"), None)


def made(size: int, **sections: Any) -> Any:
    given = experiment(
        **{"medium": SLOTS_TDMA_FAULTS, "strategies": [{"strategy": "tdma-fl"}]} | sections
    )
    return strategy(
        given,
        given.strategies[0],
        None,
        aligned(size),
        Layout((LayoutEntry("w", (size,), 0, "parameter", ""),)),
    )


def test_a_model_that_does_not_fit_says_how_many_slots_it_needs() -> None:
    """90 usable ms at 1 Mbit/s carry 11,250 bytes: 40,256 of them take 4 slots."""
    with pytest.raises(
        UserError,
        match=(
            r"medium.slots_per_transfer: a model of 40256 bytes needs 4 slots of 100 ms at 1"
            r" Mbit/s, found 3"
        ),
    ):
        made(10_000, medium=SLOTS_TDMA_FAULTS | {"slots_per_transfer": 3})
    assert (
        made(10_000).timetable.transfer_slots == 4
        and made(
            10_000, medium=SLOTS_TDMA_FAULTS | {"slots_per_transfer": 5}
        ).timetable.transfer_slots
        == 5
    )
