"""From rows of measured.csv to busy periods and the numbers of each edge, by hand."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from edgefl.results.families.native import (
    FAMILY,
    SHORT_S,
    Busy,
    Span,
    busy_periods,
    measured,
    numbers,
    of_rows,
)
from edgefl.results.read import TableColumns


def row(what: str, edge: str, began_s: float, ended_s: float, amount: int = 0) -> dict[str, str]:
    columns = ("what", "edge", "number", "began_s", "ended_s", "amount")
    return dict(zip(columns, map(str, (what, edge, "", began_s, ended_s, amount))))


def link(edge: str, offered_s: float, finished_s: float) -> dict[str, str]:
    return {"edge": edge, "offered_s": str(offered_s), "finished_s": str(finished_s)}


# ------------------------------------------------------------------ transfers that share a link
@pytest.mark.parametrize(
    ("stretches", "steps"),
    [
        ([], []),
        # two transfers, one after the other
        ([(0, 1, 100), (2, 4, 600)], [[(0, 1, 100)], [(2, 4, 600)]]),
        # two stretches of one transfer touch: one busy period with two steps
        ([(0, 1, 100), (1, 3, 600)], [[(0, 1, 100), (1, 3, 600)]]),
        # 100 bytes/s, then both (100 + 50 bytes/s), then the second alone
        ([(0, 2, 200), (1, 5, 200)], [[(0, 1, 100), (1, 2, 150), (2, 5, 150)]]),
        # first in, first out: the second one's offer came early and its bytes after the first's
        ([(1, 4, 300), (0, 4, 0), (4, 6, 400)], [[(0, 1, 0), (1, 4, 300), (4, 6, 400)]]),
    ],
)
def test_transfers_of_an_edge_that_overlap_are_one_busy_period(
    stretches: list[Any], steps: list[list[Any]]
) -> None:
    found = busy_periods([Span(*each) for each in stretches])
    assert [list(busy.steps) for busy in found] == [[Span(*one) for one in each] for each in steps]
    assert sum(busy.size_bytes for busy in found) == sum(amount for *_, amount in stretches)


def test_the_goodput_of_a_very_short_period_is_a_lower_limit() -> None:
    assert Busy((Span(0.0, SHORT_S / 10, 1000.0),)).rate_bit_s == 8_000_000


def test_others_are_counted_in_any_run() -> None:
    draw, rows = random.Random(7), []
    for edge in "abcdef":
        at_s = 0.0
        for _ in range(20):
            began_s = at_s + draw.choice((0.125, draw.random()))
            at_s = began_s + draw.choice((0.25, draw.random() + 0.01))
            rows.append(row("up", edge, began_s, at_s, 100))
    found = of_rows(rows, TableColumns())
    for edge, each in found.items():
        theirs = [
            busy for name, other in found.items() if name != edge for busy in other.busy["up"]
        ]
        for busy in each.busy["up"]:
            together_s = sum(
                max(0.0, min(busy.ended_s, one.ended_s) - max(busy.began_s, one.began_s))
                for one in theirs
            )
            assert busy.others == pytest.approx(together_s / busy.seconds, abs=1e-6)


# ------------------------------------------------------------------ round trips
def test_a_heartbeat_that_met_a_transfer_of_its_edge_is_not_idle() -> None:
    rows = [
        row("ping", "a", 0.5, 0.53),
        row("ping", "a", 1.9, 2.1),  # a transfer began meanwhile
        row("ping", "a", 2.5, 2.9),
        row("ping", "a", 3.1, 3.15),
        row("ping", "b", 2.5, 2.51),
    ]
    found = of_rows(rows, TableColumns.of([link("a", 2.0, 3.0)]))
    assert found["a"].rtts_s == pytest.approx([0.03, 0.2, 0.4, 0.05])
    assert found["a"].idle_rtts_s == pytest.approx([0.03, 0.05])
    assert found["b"].idle_rtts_s == pytest.approx([0.01])


# ------------------------------------------------------------------ numbers


def test_the_numbers_of_an_edge() -> None:
    rows = [
        row("up", "a", 0, 1, 250_000),
        row("down", "a", 0, 2, 250_000),
        row("ping", "a", 3, 3.02),
        row("training", "a", 3, 5, 640),
    ]
    (edge,) = of_rows(rows, TableColumns()).values()
    assert {name: each["median"] for name, each in numbers(edge).items()} == pytest.approx(
        {
            "up_mbit_s": 2.0,
            "down_mbit_s": 1.0,
            "rtt_ms": 20.0,
            "idle_rtt_ms": 20.0,
            "samples_per_s": 320.0,
        }
    )


def test_a_run_without_native_parts_has_no_section(tmp_path: Path) -> None:
    assert measured(tmp_path) == {} and FAMILY.section(tmp_path, 0.0) is None
