"""What the page shows of one run: its log, and what strategies report."""

from __future__ import annotations

from typing import Any

import pytest

from edgefl.plugins.live.run_model import BAD, GOOD, INFO, WARN, Health, Log, Methods
from edgefl.results.progress import Progress
from edgefl.results.read import TableColumns


def told(*rows: dict[str, Any]) -> list[tuple[str, str]]:
    log = Log()
    return [line for row in rows for line in log.lines({"t": 1.0, **row})]


@pytest.mark.parametrize(
    ("row", "line"),
    [
        (
            {"event": "task_closed", "edge": "a", "task": 3, "reason": "lost"},
            (WARN, "task 3 of a is closed: lost"),
        ),
        ({"fact": "finished", "reason": "launcher gone"}, (WARN, "interrupted: launcher gone")),
        ({"fact": "finished", "reason": "interrupted"}, (WARN, "interrupted")),
        ({"fact": "finished", "reason": "emulated_s"}, (GOOD, "finished: time limit")),
        (
            {"fact": "finished", "reason": "no server gradient"},
            (GOOD, "finished: no server gradient"),
        ),
        ({"fact": "resumed", "outage_s": 2.5}, (INFO, "resumed 2.5 s after the break")),
        (
            {"fact": "fault", "kind": "cut", "edge": "a", "for_s": 2.0},
            (WARN, "injected fault: cut of a: for 2 s"),
        ),
        (
            {"fact": "training_failed", "edge": "a", "task": 1, "reason": "x\ny"},
            (BAD, "training of a failed: x y"),
        ),
        ({"fact": "made up", "key": 1}, (WARN, "made up: key 1")),
    ],
    ids=lambda value: str(value.get("fact", value.get("event"))) if isinstance(value, dict) else "",
)
def test_a_row_in_words(row: dict[str, Any], line: tuple[str, str]) -> None:
    assert told(row) == [line]


def test_what_happens_for_every_task_is_not_told() -> None:
    assert told({"fact": "task_started", "edge": "a", "task": 1}) == []
    arrived = {"event": "update_arrived", "edge": "a", "task": 1, "decisions": []}
    discard = {"do": "discard", "task": 1, "reason": "stale"}
    assert told(arrived) == []
    assert told(arrived | {"decisions": [discard]}) == [(WARN, "update of task 1 not used: stale")]


PLACES = {"a": 0, "b": 1}


def arrived(t: float, edge: str, *decisions: dict[str, Any], **numbers: float) -> dict[str, Any]:
    return {
        "t": t,
        "event": "update_arrived",
        "edge": edge,
        "task": int(t),
        "numbers": numbers,
        "decisions": list(decisions),
    }


def asked(t: float, edge: str, *versions: int | None, until_ns: int = 0) -> list[dict[str, Any]]:
    """A request of the task that ``arrived(t, edge)`` ends, and the answers, later."""
    row = {"t": t - 0.5, "edge": edge, "task": int(t)}
    request = {"event": "fresh_requested", **row, "until_ns": until_ns, "decisions": []}
    answers = [
        {"do": "send_fresh", "edge": edge, "task": int(t), "version": each} for each in versions
    ]
    return [request, {"t": t - 0.25, "event": "alarm_rang", "name": "x", "decisions": answers}]


def report(**values: float) -> dict[str, Any]:
    return {"do": "report", "values": values, "edge": None}


def points(found: Methods) -> dict[str, list[Any]]:
    return {name: series.since(0) for name, series in found.learned.items()}


def test_the_outcome_of_each_request_for_a_fresher_model() -> None:
    """A rule need not report its merges, and the answer may come long after the request."""
    found = Methods()
    rows = [
        *asked(1.0, "b", 3, until_ns=900_000_000),
        arrived(1.0, "b", refresh_point=2.0),
        *asked(2.0, "b", 4, until_ns=1_900_000_000),
        arrived(2.0, "b", too_late=1.0),
        *asked(3.0, "b", None),
        arrived(3.0, "b"),
        *asked(4.0, "b", until_ns=3_900_000_000),
        arrived(4.0, "b", too_late=1.0),
        *asked(5.0, "b", 6),
        {"t": 5.0, "event": "task_closed", "edge": "b", "task": 5, "decisions": []},
        arrived(9.0, "a"),
    ]
    for row in rows:
        found.take(row, PLACES, None)
    assert [row[1:] for row in found.refresh.since(0)] == [
        [1, 2.0, "merged"],
        [1, None, "too late"],
        [1, None, "nothing newer"],
        [1, None, "unanswered"],
    ]


def test_rounds_and_slots_of_a_channel() -> None:
    found, round_ = Methods(), {"end_slot": 8.0, "uploads": 2.0}
    grant = {"do": "grant", "edge": "b", "task": 1, "slots": [3, 4]}
    broadcast = {"do": "assign", "edges": ["a", "b"], "tasks": [0, 1], "broadcast": [7]}
    found.take(arrived(1.0, "a", report(**round_), grant, broadcast), PLACES, 0.1)
    assert found.rounds.since(0) == [round_] and points(found) == {}
    assert found.slots.since(0) == [
        [0.3, 0.5, 1, "up", "granted"],
        [0.7, 0.8, -1, "down", "granted"],
    ]
    row = {"begins_s": "0.3", "ends_s": "0.4", "edge": "b", "direction": "up", "kind": "update"}
    rows = [row, row | {"edge": "*"}, row | {"ends_s": ""}]
    found.take_slots(TableColumns.of(rows), PLACES)
    assert found.slots.since(2) == [[0.3, 0.4, 1, "up", "update"], [0.3, 0.4, -1, "up", "update"]]
    found.take(arrived(1.0, "a", grant), PLACES, None)  # no channel
    assert found.slots.total == 4


def test_how_late_transfers_are() -> None:
    health, row = Health(), {"edge": "e0", "direction": "up", "bytes": "1", "offered_s": "0"}
    ends = [*["1.002"] * 98, "1.1", "0.9"]  # the last two: 100 ms, and not late
    rows = [row | {"scheduled_s": "1.0", "finished_s": end} for end in ends]
    assert health.whole(Progress())["transfer_lag_ms"] is None
    health.take_links(TableColumns.of(rows))
    lag = health.whole(Progress())["transfer_lag_ms"]
    assert lag["p50"] == pytest.approx(2, rel=0.01) and lag["max"] == 100.0
