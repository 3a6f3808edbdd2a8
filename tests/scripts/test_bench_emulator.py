"""The arithmetic of the emulator's benchmark, and one small run over real sockets.

No test asserts a speed.
"""

from __future__ import annotations

import importlib
from dataclasses import replace
from types import ModuleType, SimpleNamespace

import pytest
from paths import BENCHMARKS


@pytest.fixture(autouse=True)
def scripts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(BENCHMARKS)


@pytest.fixture
def rows() -> ModuleType:
    return importlib.import_module("emulator_rows")


@pytest.fixture
def slots() -> ModuleType:
    return importlib.import_module("emulator_slots")


@pytest.fixture
def app() -> ModuleType:
    return importlib.import_module("emulator_app")


def test_the_ideal_time_is_bytes_over_rate_and_latency(rows: ModuleType) -> None:
    assert rows.ideal_ms(1_000_000, 10_000_000) == 800
    assert rows.Cell("G1", 2, 250_000, latency_ms=30.0).ideal_ms == 1030


def test_an_early_transfer_is_as_wrong_as_a_late_one(rows: ModuleType) -> None:
    shots = [rows.Shot(800.0 + late, 800.0) for late in (0.0, 4.0, -16.0)]
    found = rows.error_rows("x", shots, rows.Bound("%", 0.1, 1.0))
    assert [(row.value, row.unit, row.passed) for row in found] == [
        (0, "%", True),
        (2, "%", False),
        (0, "ms", None),
        (16, "ms", None),
    ]


def test_a_cell_upwards_judges_no_downlink(app: ModuleType, rows: ModuleType) -> None:
    both = rows.Cell("G3", 10, 1_250_000)
    links = [
        {"direction": way, "bytes": "1250000", "offered_s": "1.0", "finished_s": took}
        for way, took in (("down", "1.01"), ("up", "2.0"))
    ]
    seen = app.Seen(links, [], {}, {}, 0.0, 1.0)
    assert [shot.took_ms for shot in app.shots(both, seen)] == pytest.approx([10.0, 1000.0])
    assert [shot.took_ms for shot in app.shots(replace(both, up_only=True), seen)] == [1000.0]


def test_a_goal_of_offset_and_share_is_in_ms(rows: ModuleType) -> None:
    bound = rows.offset_and_share(80.0, (1.0, 0.2), (3.0, 0.5))
    assert (bound.unit, bound.median, bound.worst) == (
        "ms",
        pytest.approx(1.16),
        pytest.approx(3.4),
    )


def test_slots_are_counted_without_their_guards(slots: ModuleType) -> None:
    table = slots.Slots(10, 1)  # 9 ms of 10 Mbit/s are 11,250 bytes
    assert table.at([3, 5], 11_250) == (3, 39_000_000)
    assert table.at([3, 5], 11_251) == (5, 50_000_800)


def test_devices_overlap_where_one_comes_before_another_has_ended(slots: ModuleType) -> None:
    def piece(edge: str, slot: int, at_ms: int) -> object:
        return slots.Piece(edge, slot, slot, at_ms * 1_000_000)

    assert (
        slots._overlaps([piece("a", 0, 1), piece("a", 0, 9), piece("b", 1, 10), piece("b", 1, 11)])
        == 0
    )
    assert (
        slots._overlaps([piece("a", 0, 1), piece("a", 0, 11), piece("b", 1, 10), piece("b", 1, 12)])
        == 1
    )


def test_an_offer_that_arrives_before_the_slots_is_no_piece(slots: ModuleType) -> None:
    """20,000 bytes, 17 of them in the offer, in slots 5 and 6; the offer comes at once."""
    transfer = {"number": 1, "edge": "a", "meta": 17, "slots": [5, 6]}
    seen = SimpleNamespace(arrivals={1: [(17, 100), (11_250, 55_000_000), (20_000, 65_000_000)]})
    pieces = list(slots._pieces(slots.Slots(10, 1), transfer, seen))
    assert [(piece.last_slot, piece.at_ns) for piece in pieces] == [
        (5, 55_000_000),
        (6, 65_000_000),
    ]


def test_a_slot_given_twice_or_late_is_found(slots: ModuleType) -> None:
    table = slots.Slots(10, 1)
    assert (
        slots._misgranted(
            table, [{"slots": [1, 2], "offered_ns": 10_000_000}, {"slots": [3], "offered_ns": 0}]
        )
        == 0
    )
    assert (
        slots._misgranted(
            table, [{"slots": [1, 2], "offered_ns": 10_000_001}, {"slots": [2], "offered_ns": 0}]
        )
        == 2
    )


@pytest.mark.processes
@pytest.mark.alone
def test_a_run_is_seen_from_both_receivers(app: ModuleType, rows: ModuleType) -> None:
    cell = rows.Cell("G1", 20, 50_000, links=2, repeat=1)
    seen = app.measure(cell)
    assert sorted(row["direction"] for row in seen.links) == ["down", "down", "up", "up"]
    assert [shot.ideal_ms for shot in app.shots(cell, seen)] == pytest.approx([20.0] * 4, abs=0.1)
    for transfer in seen.transfers:
        arrived = seen.arrivals[transfer["number"]]
        assert arrived[-1][0] == transfer["size"] > cell.size and arrived == sorted(arrived)
