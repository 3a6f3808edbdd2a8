"""The checker of records finds each broken rule in a record made by hand."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import orjson
import pytest
from exactly_once import check_rows, check_run

Rows = list[dict[str, Any]]


def arrived(edge: str, task: int, version: int, base: int, *decisions: dict[str, Any]) -> Any:
    row = {"event": "update_arrived", "version": version, "edge": edge, "task": task}
    return {"t": 1.0, **row, "base_version": base, "decisions": list(decisions)}


def assign(edges: list[str], tasks: list[int]) -> dict[str, Any]:
    return {"do": "assign", "edges": edges, "tasks": tasks}


def publish(version: int, **more: Any) -> dict[str, Any]:
    return {"do": "publish", "version": version, **more}


# a and b get tasks 0 and 1; both arrive and make version 1; a's task 2 is applied, b is lost
STORY: Rows = [
    {"t": 0.0, "event": "run_started", "version": 0, "decisions": [assign(["a", "b"], [0, 1])]},
    arrived("a", 0, 0, 0),
    arrived("b", 1, 0, 0, publish(1), assign(["a", "b"], [2, 3])),
    arrived("a", 2, 1, 1, publish(2), assign(["a"], [4])),
    {
        "t": 3.0,
        "event": "task_closed",
        "version": 2,
        "edge": "b",
        "task": 3,
        "reason": "edge lost",
        "decisions": [],
    },
    {"t": 4.0, "fact": "discarded", "edge": "b", "task": 3, "reason": "task closed"},
    {"t": 4.5, "fact": "duplicate", "edge": "b", "task": 3},
    arrived("a", 4, 2, 2, {"do": "discard", "edge": "a", "task": 4, "reason": "too old"}),
    {"t": 6.0, "fact": "finished", "reason": "versions"},
]
ACKNOWLEDGED = [("a", 0), ("b", 1), ("a", 2), ("b", 3), ("a", 4)]


def test_a_sound_record_has_no_faults() -> None:
    found = check_rows(STORY, ACKNOWLEDGED)
    assert found.faults == [] and found.finished == "versions"
    assert found.applied == {0: 1, 1: 1, 2: 2} and found.waiting == set()
    assert found.discarded == {3: "task closed", 4: "too old"} and found.arrived == 5


def edited(index: int, **values: Any) -> Callable[[Rows], None]:
    return lambda rows: rows[index].update(values)


def removed(index: int) -> Callable[[Rows], None]:
    return lambda rows: rows.pop(index) and None


def added(index: int, row: Any) -> Callable[[Rows], None]:
    return lambda rows: rows.insert(index, row)


@pytest.mark.parametrize(
    ("spoil", "fault"),
    [
        (added(3, arrived("b", 1, 1, 0)), "task 1 of edge b: arrived, and before: arrived"),
        (edited(3, decisions=[publish(3)]), "version 3 was published after 1"),
        (removed(1), "edge a got task 2 while it had task 0"),
        (removed(3), "an event at version 2, expected 1"),
        (edited(3, base_version=0), "task 2: its update starts from version 0, expected 1"),
        (edited(3, edge="b"), "task 2 of edge a: arrived by edge b"),
        (
            edited(3, decisions=[publish(2, made_of=[2, 0])]),
            "version 2 has the update of task 0: 1",
        ),
        (edited(2, decisions=[publish(1), assign(["a"], [3])]), "task 3 was given, expected"),
        (edited(5, reason=""), "the update of task 3 was discarded without a reason"),
        (edited(5, task=2), "the update of task 2 was discarded, and had a fate before"),
        (removed(5), "edge b: task 3 was acknowledged, and its update lost (closed: edge lost)"),
        (removed(7), "edge a: task 4 was acknowledged, and its update lost (open)"),
        (added(9, arrived("a", 5, 2, 2)), "update_arrived after the end"),
    ],
)
def test_each_broken_rule_is_found(spoil: Callable[[Rows], None], fault: str) -> None:
    rows = deepcopy(STORY)
    spoil(rows)
    found = check_rows(rows, ACKNOWLEDGED)
    assert any(fault in each for each in found.faults), found.faults


def test_a_task_that_an_edge_never_got_cannot_be_acknowledged() -> None:
    (fault,) = check_rows(STORY, [("b", 4)]).faults
    assert fault.endswith("edge b: task 4 was acknowledged, and never given to it")


def test_summary_and_events_count_the_same(tmp_path: Path) -> None:
    lines = b"".join(orjson.dumps(row) + b"\n" for row in STORY)
    (tmp_path / "events.jsonl").write_bytes(lines)
    summary = {
        "versions": 2,
        "updates_received": 5,
        "updates_applied": 3,
        "updates_discarded": {"task closed": 1, "too old": 1},
    }
    (tmp_path / "summary.json").write_bytes(orjson.dumps(summary))
    assert check_run(tmp_path, ACKNOWLEDGED).faults == []
    (tmp_path / "summary.json").write_bytes(orjson.dumps(summary | {"updates_applied": 4}))
    assert check_run(tmp_path).faults == ["summary.json: updates_applied is 4, expected 3"]
