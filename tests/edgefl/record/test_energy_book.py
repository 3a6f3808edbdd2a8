"""The rows of a run become energy: which rows begin and end computing, and what a pause costs."""

from __future__ import annotations

from typing import Any

import pytest

from edgefl.record.energy import EnergyBook
from emulator.energy.power import EdgePower
from emulator.links.link import Completion, Transfer

S = 1_000_000_000
W = 1_000_000
POWER = EdgePower(0, 1 * W, 1 * W, 1 * W, latency_ns=1 * S)


def opened(*edges: str) -> EnergyBook:
    book = EnergyBook.of(dict.fromkeys(edges, POWER), None)
    for edge in edges:
        assert len(book.take(0, {"event": "edge_joined", "edge": edge})) == 1
    return book


def began(book: EnergyBook, edge: str = "a", task: int = 0, now: int = 0) -> None:
    assert book.take(now, {"fact": "task_started", "edge": edge, "task": task}) == []


def spans(rows: list[Any]) -> list[tuple[str, str, float, float]]:
    return [(row[0], row[1], float(row[2]), float(row[3])) for row in rows]


def arrived(
    book: EnergyBook, edge: str, way: str, kind: str, started: int, due: int, **more: Any
) -> list[tuple[str, str, float, float]]:
    transfer = Transfer(0, edge, way, 1000, kind)
    return spans(book.link(Completion(transfer, 0, started * S, due * S, **more), due * S))


def test_the_round_of_the_how_to_page_costs_what_it_says() -> None:
    """docs/how-to/energy.md, "By hand"."""
    power = EdgePower(2 * W, 3 * W, 1 * W, W // 2)
    book = EnergyBook.of(dict.fromkeys("abc", power), None)
    for edge in "abc":
        book.take(0, {"event": "edge_joined", "edge": edge})
    for edge, train_s in zip("abc", (10, 20, 30)):
        arrived(book, edge, "down", "task", 0, 1)
        began(book, edge, now=1 * S)
        book.take((1 + train_s) * S, {"fact": "update_ready", "edge": edge, "task": 0})
        arrived(book, edge, "up", "update", 1 + train_s, 3 + train_s)
    book.take(33 * S, {"fact": "finished", "reason": "versions"})
    found = book.section(33 * S)
    assert found["joules"] == 385.5
    by_edge = {edge: each["joules"] for edge, each in found["by_edge"].items()}
    assert by_edge == {"a": 66 + 30 + 2.5, "b": 66 + 60 + 2.5, "c": 66 + 90 + 2.5}


@pytest.mark.parametrize(
    "row",
    [
        {"fact": "update_ready", "edge": "a", "task": 0},
        {"event": "update_ready", "edge": "a", "task": 0},
        {"fact": "training_failed", "edge": "a", "task": 0, "reason": "no"},
        {"fact": "task_timed_out", "edge": "a", "task": 0},
        {"event": "task_closed", "edge": "a", "task": 0, "reason": "edge lost"},
        {"fact": "fault", "edge": "a", "kind": "kill"},
        {"event": "alarm_rang", "decisions": [{"do": "cancel", "edge": "a", "task": 0}]},
        {"fact": "finished", "reason": "versions"},
    ],
    ids=lambda row: f"{row.get('event', row.get('fact'))}",
)
def test_computing_ends(row: dict[str, Any]) -> None:
    book = opened("a")
    began(book)
    assert spans(book.take(5 * S, row)) == [("a", "compute", 0.0, 5.0)]
    assert book.take(6 * S, row) == []


def test_an_edge_that_waits_for_an_answer_is_idle() -> None:
    book = opened("a")
    began(book)
    asked = {"event": "fresh_requested", "edge": "a", "task": 0, "until_ns": 0}
    assert spans(book.take(4 * S, asked)) == [("a", "compute", 0.0, 3.0)], "1 s of travel"
    assert arrived(book, "a", "down", "fresh", 4, 8) == [("a", "receive", 5.0, 8.0)]
    ready = {"fact": "update_ready", "edge": "a", "task": 0}
    assert spans(book.take(10 * S, ready)) == [("a", "compute", 8.0, 10.0)]


def test_an_edge_whose_answer_is_a_note_goes_on_when_it_hears_it() -> None:
    book = opened("a")
    began(book)
    send = {"do": "send_fresh", "edge": "a", "task": 0, "version": None}
    asked = {"event": "fresh_requested", "edge": "a", "task": 0, "until_ns": 0, "decisions": [send]}
    assert spans(book.take(4 * S, asked)) == [("a", "compute", 0.0, 3.0)]
    ready = {"fact": "update_ready", "edge": "a", "task": 0}
    assert spans(book.take(10 * S, ready)) == [("a", "compute", 5.0, 10.0)]


def test_the_radio_is_on_while_bytes_are_sent_not_while_they_travel() -> None:
    book = opened("a")
    assert arrived(book, "a", "up", "update", 2, 6) == [("a", "send", 2.0, 5.0)]
    assert arrived(book, "a", "down", "task", 2, 6) == [("a", "receive", 3.0, 6.0)]
    short = arrived(book, "a", "up", "update", 6, 6)
    assert short == [], "no longer than the latency: no time of its own"


def test_the_target_is_due_when_it_will_be_used_up() -> None:
    book = EnergyBook.of({"a": EdgePower(2 * W, 3 * W)}, 20.0)
    book.take(0, {"event": "edge_joined", "edge": "a"})
    assert book.next_due() == 10 * S
    began(book, now=5 * S)
    assert book.next_due() == 7 * S and not book.reached(6 * S) and book.reached(7 * S)
    book.take(7 * S, {"fact": "finished", "reason": "target_joules"})
    assert book.next_due() > 10**18
