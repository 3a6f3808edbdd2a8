from __future__ import annotations

from typing import Any

import pytest

from edgefl.live.run_model import BAD, GOOD, INFO, WARN, Log


def told(*rows: dict[str, Any]) -> list[tuple[str, str]]:
    log = Log()
    return [line for row in rows for line in log.lines({"t": 1.0, **row})]


def joined(edge: str) -> dict[str, Any]:
    return {"event": "edge_joined", "edge": edge, "samples": 12, "decisions": []}


STARTED = {"event": "run_started", "version": 0, "decisions": []}


def test_edges_that_join_before_the_start_are_one_line() -> None:
    assert told(joined("a"), joined("b"), STARTED, joined("c")) == [
        (INFO, "the run begins with 2 edges"),
        (GOOD, "c joined, with 12 samples"),
    ]


@pytest.mark.parametrize(
    ("row", "line"),
    [
        ({"event": "edge_lost", "edge": "a"}, (BAD, "a is lost")),
        (
            {"event": "task_closed", "edge": "a", "task": 3, "reason": "lost"},
            (WARN, "task 3 of a is closed: lost"),
        ),
        ({"fact": "finished", "reason": "versions"}, (GOOD, "finished: versions")),
        ({"fact": "finished", "reason": "launcher gone"}, (WARN, "interrupted: launcher gone")),
        ({"fact": "resumed", "outage_s": 2.5}, (INFO, "resumed 2.5 s after the break")),
        (
            {"fact": "fault", "kind": "cut", "edge": "a", "for_s": 2.0},
            (WARN, "injected fault: cut of a: for_s 2.0"),
        ),
        ({"fact": "host_slept", "for_s": 3.0}, (WARN, "host slept: for_s 3.0")),
        (
            {"fact": "training_failed", "edge": "a", "task": 1, "reason": "x\ny"},
            (BAD, "training of a failed: x y"),
        ),
        (
            {"fact": "edges_missing", "edges": ["a", "b"]},
            (WARN, "did not join before the start: a, b"),
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


def test_a_long_line_is_cut_and_printable() -> None:
    ((_, text),) = told({"fact": "training_failed", "edge": "a", "reason": "\x1b[31m" + "x" * 500})
    assert len(text) == 300 and "\x1b" not in text
