"""Faults under the virtual clock: their schedule, and the effect of each kind, exact to the ns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from builders import EXAMPLES, S, experiment, small_run
from hypothesis import given
from hypothesis import strategies as st

from edgefl.config.file import check_names
from edgefl.config.section import Source
from edgefl.errors import UserError
from edgefl.results.read import read_events
from emulator.compute import Rate
from emulator.errors import BadValue
from emulator.faults import (
    KINDS,
    LASTING,
    Fault,
    Schedule,
    Slowed,
    Timeline,
)
from emulator.units import FOREVER, to_ns

FAULTS = st.lists(
    st.builds(
        Fault,
        st.integers(0, 60),
        st.just("a"),
        st.just("slow"),
        st.integers(1, 20),
        st.sampled_from([0.25, 0.5, 1.0]),
    ),
    max_size=8,
)


def in_order(faults: list[Fault]) -> list[Fault]:
    return sorted(faults, key=lambda fault: fault.at_ns)


# ------------------------------------------------------------------ schedules
@given(FAULTS, FAULTS, st.lists(st.integers(0, 100), max_size=10))
def test_a_schedule_gives_every_fault_once_and_in_order(
    one: list[Fault], other: list[Fault], asked: list[int]
) -> None:
    schedule = Schedule(in_order(one), iter(in_order(other)))
    popped: list[Fault] = []
    for now in [*sorted(asked), 100]:
        announced = schedule.next_due() <= now
        due = schedule.pop_due(now)
        assert announced == bool(due)
        popped += due
    assert schedule.next_due() == FOREVER and popped == in_order(one + other)


@pytest.mark.parametrize("kind", [*KINDS, "cutt"])
def test_a_fault_has_a_length_if_it_lasts(kind: str) -> None:
    with pytest.raises(BadValue, match="expected"):
        Fault(0, "a", kind, 0 if kind in LASTING else 5)


@given(FAULTS, st.lists(st.integers(0, 100), min_size=1), st.booleans())
def test_a_timeline_tells_what_is_on_whatever_is_asked_first(
    faults: list[Fault], moments: list[int], lazily: bool
) -> None:
    timeline = Timeline(iter(in_order(faults)) if lazily else in_order(faults))
    for t_ns in moments:
        on, until_ns = timeline.at(t_ns)
        assert sorted(on, key=repr) == sorted(
            (fault for fault in faults if fault.at_ns <= t_ns < fault.until_ns), key=repr
        )
        borders = [
            border for fault in faults for border in (fault.at_ns, fault.until_ns) if border > t_ns
        ]
        assert until_ns == min(borders, default=FOREVER)


def test_a_slow_device_works_on_at_the_product_of_the_factors() -> None:
    faults = [
        Fault(S, "a", "slow", 2 * S, 0.5),
        Fault(2 * S, "a", "slow", 2 * S, 0.5),
        Fault(5 * S, "a", "freeze", S),
    ]
    device = Slowed(Rate(1.0), Timeline(faults))
    assert device.duration_ns(1.0) == S
    assert device.duration_ns(1.5) == 2 * S, "half the speed from 1 to 2"
    assert device.duration_ns(1.75) == 3 * S, "a quarter from 2 to 3"
    assert device.duration_ns(3.25) == 5 * S and device.duration_ns(3.5) == 6 * S + S // 4, (
        "half from 3 to 4, none from 5 to 6"
    )
    assert device.duration_ns(1.0, 10 * S) == S


# ------------------------------------------------ whole runs: one edge, 200 samples at 100 a second
ALONE: dict[str, Any] = {
    "edges": {"names": ["a"]},
    "devices": {"samples_per_s": 100.0},
    "stop": {"versions": 1},
}
BEGUN, READY, HERE = (
    17_800_000,
    2_017_800_000,
    2_095_800_000,
)  # the model is on the edge, trained, back


def story(folder: Path, *faults: dict[str, Any], **sections: Any) -> list[tuple[str, int]]:
    """(event, moment in ns) of everything except joining at 0 and the end."""
    _, directory = small_run(folder, **ALONE | {"faults": faults} | sections)
    events = read_events(directory / "events.jsonl")
    return [
        (event.get("event") or event["fact"], to_ns(event["t"]))
        for event in events
        if event["t"] > 0 and event.get("fact") != "finished"
    ]


def usual(begun: int = BEGUN, ready: int = READY, here: int = HERE) -> list[tuple[str, int]]:
    return [("task_started", begun), ("update_ready", ready), ("update_arrived", here)]


def without_faults(lines: list[tuple[str, int]]) -> list[tuple[str, int]]:
    return [line for line in lines if line[0] != "fault"]


@pytest.mark.parametrize(
    ("kind", "at_s", "moments"),
    [
        ("cut", 2.05, usual(here=HERE + 2 * S)),
        ("cut_up", 2.05, usual(here=HERE + 2 * S)),
        ("cut_down", 2.05, usual()),
        ("cut", 0.005, usual(BEGUN + 2 * S, READY + 2 * S, HERE + 2 * S)),
        ("cut_down", 0.005, usual(BEGUN + 2 * S, READY + 2 * S, HERE + 2 * S)),
        ("cut_up", 0.005, usual()),
        ("cut", 1.0, usual(here=HERE + 3 * S - READY)),
    ],
)
def test_a_cut_holds_up_what_is_on_its_way_by_its_length(
    tmp_path: Path, kind: str, at_s: float, moments: list[tuple[str, int]]
) -> None:
    assert without_faults(story(tmp_path, {"kind": kind, "at_s": at_s, "for_s": 2.0})) == moments


def test_who_is_frozen_for_too_long_is_lost_and_comes_back_with_its_task(tmp_path: Path) -> None:
    moments = without_faults(story(tmp_path, {"kind": "freeze", "at_s": 1.0, "for_s": 6.0}))
    assert moments == [
        ("task_started", BEGUN),
        ("edge_lost", 5 * S),
        ("edge_joined", 7 * S),
        ("update_ready", READY + 6 * S),
        ("update_arrived", HERE + 6 * S),
    ]


@pytest.mark.parametrize("at_s", [0.005, 1.0, 2.05], ids=["coming", "training", "sending"])
def test_who_is_killed_loses_everything_and_begins_anew(tmp_path: Path, at_s: float) -> None:
    moments = without_faults(story(tmp_path, {"kind": "kill", "at_s": at_s, "for_s": 10.0}))
    again_ns, lost_ns = to_ns(at_s + 10), to_ns(at_s + 4)
    came = [line for line in usual() if line[1] < to_ns(at_s)]
    assert moments == [
        *came,
        ("edge_lost", lost_ns),
        ("task_closed", again_ns),
        ("edge_joined", again_ns),
        *usual(again_ns + BEGUN, again_ns + READY, again_ns + HERE),
    ]


def test_a_damaged_update_is_carried_again_from_its_first_byte(tmp_path: Path) -> None:
    moments = without_faults(story(tmp_path, {"kind": "corrupt", "at_s": 1.0}))
    again = [
        ("edge_lost", HERE),
        ("edge_joined", HERE),
        ("update_ready", HERE),
        ("update_arrived", 2 * HERE - READY),
    ]
    assert moments == [("task_started", BEGUN), ("update_ready", READY), *again]


def test_when_all_are_dead_for_good_the_run_ends(tmp_path: Path) -> None:
    given = [
        {"kind": "kill", "at_s": 1.0},
        {"kind": "slow", "every_s": 1.0, "for_s": 1.0, "factor": 0.5},
    ]
    summary, directory = small_run(tmp_path, **ALONE | {"faults": given})
    assert summary["finished"] == "nothing left to do" and summary["versions"] == 0
    lost = [
        event["t"]
        for event in read_events(directory / "events.jsonl")
        if event.get("event") == "edge_lost"
    ]
    assert lost == [5.0]


@pytest.mark.parametrize(
    "alarms",
    [
        {"strategies": [{"strategy": "fedasync", "dispatch": "periodic"}]},
        {"evaluation": {"every_s": 5.0}},
    ],
)
def test_alarms_that_repeat_keep_no_run_of_the_dead_going(
    tmp_path: Path, alarms: dict[str, Any]
) -> None:
    """An edge is lost 4 s after its death, and its task is closed 10 s later.

    Then only a trigger or an evaluation every few seconds is left.
    """

    def impatient(now: int, run: Any) -> None:
        assert now < 100 * S, "it goes on for ever"

    summary, _ = small_run(
        tmp_path, impatient, **ALONE | {"faults": [{"kind": "kill", "at_s": 1.0}]} | alarms
    )
    assert summary["finished"] == "nothing left to do" and 15.0 <= summary["emulated_s"] <= 20.0
    ended, _ = small_run(
        tmp_path / "moment",
        **ALONE
        | {"faults": [{"kind": "kill", "at_s": 1.0}], "stop": {"emulated_s": 60.0}}
        | alarms,
    )
    assert (ended["finished"], ended["emulated_s"]) == ("emulated_s", 60.0)


# ------------------------------------------------------------------ the config
@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        ({"kind": "cut", "for_s": 1.0}, "expected one of at_s"),
        ({"kind": "cut", "for_s": 1.0, "at_s": 1.0, "every_s": 1.0}, "expected one of at_s"),
        ({"kind": "cut", "at_s": 1.0}, "for_s: missing"),
        ({"kind": "restart", "at_s": 1.0, "for_s": 1.0}, "has no length"),
        ({"kind": "slow", "at_s": 1.0, "for_s": 1.0}, "factor: expected"),
        ({"kind": "cut", "at_s": 1.0, "for_s": 1.0, "factor": 0.5}, "factor: expected"),
        ({"kind": "cut", "at_s": 1.0, "for_s": 1.0, "for_random": True}, "for_random: expected"),
    ],
)
def test_a_wrong_entry_is_refused(entry: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        experiment(faults=[entry])


def test_an_unknown_edge_is_refused_with_the_nearest() -> None:
    given = experiment(
        edges={"names": ["pi-1", "pi-2"]},
        faults=[{"kind": "kill", "at_s": 1.0, "edges": ["pi-1", "pj-2"]}],
    )
    with pytest.raises(UserError, match=r"faults\[0\].edges: no edge 'pj-2' \(nearest: 'pi-2'\)"):
        check_names(given, Source("f"), EXAMPLES)
