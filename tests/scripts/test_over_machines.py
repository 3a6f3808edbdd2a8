"""The judge of schemes over machines, by hand-checked rows and packets."""

from __future__ import annotations

import importlib
import struct
from types import ModuleType

import pytest
from paths import BENCHMARKS

GUARD_S = 0.02
A, B = (1, 5001), (2, 5002)  # address and port of two connections
COLUMNS = ("edge", "direction", "kind", "offered_s", "finished_s")


@pytest.fixture(autouse=True)
def scripts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(BENCHMARKS)


@pytest.fixture
def judge() -> ModuleType:
    return importlib.import_module("machines_judge")


@pytest.fixture
def watch() -> ModuleType:
    return importlib.import_module("packet_watch")


def link(*values: object) -> dict[str, str]:
    return dict(zip(COLUMNS, map(str, values)))


def slot(edge: str, begins_s: float, direction: str = "up") -> dict[str, str]:
    ends_s = begins_s + 0.1 - GUARD_S
    return {
        "edge": edge,
        "direction": direction,
        "begins_s": f"{begins_s:.9f}",
        "ends_s": f"{ends_s:.9f}",
    }


# ------------------------------------------------------------------ the downlink
def test_an_answer_alone_on_its_downlink_is_idle_and_delays_none(judge: ModuleType) -> None:
    found = judge.answers(
        [
            link("a", "down", "task", 0.0, 0.5),
            link("a", "down", "fresh", 0.5, 1.0),  # begins when the other has ended
            link("a", "up", "update", 0.5, 2.0),  # the other direction
            link("b", "down", "task", 0.6, 1.2),  # another edge
        ]
    )
    assert (found.sent, found.idle, found.delayed, found.assignments) == (1, 1, 0, 2)
    assert found.spread_ms == pytest.approx(100)


def test_an_answer_that_shares_its_downlink_is_found(judge: ModuleType) -> None:
    found = judge.answers(
        [
            link("a", "down", "fresh", 0.0, 1.0),
            link("a", "down", "task", 0.9, 1.9),
            link("b", "down", "dropped", 0.0, 1.0),
        ]
    )
    assert (found.sent, found.stopped, found.idle, found.delayed) == (2, 1, 1, 1)


def test_a_run_without_downloads_has_no_spread(judge: ModuleType) -> None:
    assert judge.answers([]) == judge.Answers(0, 0, 0, 0, 0, None)


# ------------------------------------------------------------------ the slots
def packets(watch: ModuleType, up: bool, *passed: tuple[tuple[int, int], float]) -> list[object]:
    """Packets of 1000 bytes in a run that began at 1000 s, at speed 2 (emulated s)."""
    return [watch.Packet(round((1000 + at_s / 2) * 1e9), up, *peer, 1000) for peer, at_s in passed]


def up(judge: ModuleType, watch: ModuleType, *passed: tuple[tuple[int, int], float]) -> object:
    rows = [slot("a", 0.8), slot("b", 0.9), slot("a", 1.0), slot("*", 1.1, "down")]
    times = judge.RunTimes(1000.0, 2.0, 5.0)
    return judge.pieces_up(
        packets(watch, True, *passed), judge.slots_of(rows, "up", GUARD_S), times
    )


def test_pieces_in_the_slots_of_their_edges(judge: ModuleType, watch: ModuleType) -> None:
    found = up(judge, watch, (A, 0.83), (A, 0.89), (B, 0.95), (A, 1.04))
    assert (found.pieces, found.outside, found.in_guard, found.edges) == (4, 0, 1, 2)
    assert found.margin_ms == pytest.approx(10) and found.lead_ms == pytest.approx(30)


def test_a_piece_in_the_slot_of_another_edge_is_outside(
    judge: ModuleType, watch: ModuleType
) -> None:
    found = up(judge, watch, (A, 0.83), (A, 0.85), (A, 0.93), (B, 0.95))
    assert (found.pieces, found.outside) == (4, 1)
    assert found.margin_ms == pytest.approx(-30)  # after its own slot, nearer than before the next


def test_a_piece_before_its_slot_has_a_negative_lead(judge: ModuleType, watch: ModuleType) -> None:
    found = up(judge, watch, (A, 0.85), (A, 0.99), (B, 0.95))
    assert found.outside == 1 and found.lead_ms == pytest.approx(-10)


def test_notes_and_what_is_not_of_the_run_are_no_pieces(
    judge: ModuleType, watch: ModuleType
) -> None:
    found = up(judge, watch, (A, -1.0), (A, 0.85), (A, 5.5))
    assert (found.pieces, found.outside) == (1, 0)
    small = watch.Packet(round(1000.2 * 1e9), True, *A, 100)
    times = judge.RunTimes(1000.0, 2.0, 5.0)
    assert judge.pieces_up([small], {}, times).pieces == 0


def test_broadcasts_are_for_all_and_the_first_model_takes_no_slot(
    judge: ModuleType, watch: ModuleType
) -> None:
    slots = judge.slots_of([slot("*", 1.0, "down"), slot("*", 2.0, "down")], "down", GUARD_S)
    passed = packets(watch, False, (A, 0.01), (A, 1.05), (B, 1.06), (A, 2.2))
    found = judge.pieces_down(passed, slots, judge.RunTimes(1000.0, 2.0, 5.0))
    assert (found.pieces, found.outside, found.edges) == (3, 1, 2)
    assert found.margin_ms == pytest.approx(-100)


def test_overlapping_slots_are_counted(judge: ModuleType) -> None:
    assert judge.overlaps([slot("a", 0.1), slot("b", 0.0)]) == 0
    assert judge.overlaps([slot("a", 0.0), slot("b", 0.05)]) == 1


def test_staleness_counts_each_update(judge: ModuleType) -> None:
    assert judge.staleness({"staleness": {"0": 3, "4": 1}}) == (1.0, 0.0)
    assert judge.staleness({"staleness": {}}) == (None, None)


# ------------------------------------------------------------------ packets
def headers(source_port: int, target_port: int, payload: int, options: int = 0) -> bytes:
    """IPv4 and TCP headers from 10.0.0.1 to 10.0.0.2."""
    total = 20 + 20 + options + payload
    ip = struct.pack("!BBHHHBBH4s4s", 0x45, 0, total, 0, 0, 64, 6, 0, b"\x0a\0\0\1", b"\x0a\0\0\2")
    offset = (20 + options) // 4 << 4
    return ip + struct.pack("!HHIIBBHHH", source_port, target_port, 0, 0, offset, 0, 0, 0, 0)


def test_packets_to_and_from_the_port(watch: ModuleType) -> None:
    up = watch.parsed(headers(5001, 7700, 900, options=12), 7700, 7)
    assert up == watch.Packet(7, True, 0x0A000001, 5001, 900)
    down = watch.parsed(headers(7700, 5001, 10), 7700, 8)
    assert down == watch.Packet(8, False, 0x0A000002, 5001, 10)


def test_other_packets_are_left_out(watch: ModuleType) -> None:
    assert watch.parsed(headers(5001, 7700, 0), 7700, 0) is None  # an acknowledgement
    assert watch.parsed(headers(5001, 7701, 9), 7700, 0) is None
    assert watch.parsed(headers(5001, 7700, 9)[:30], 7700, 0) is None


# ------------------------------------------------------------------ the page
def test_the_page_has_all_runs_and_the_reasons_of_strained_ones(judge: ModuleType) -> None:
    pages = importlib.import_module("machines_page")
    lag = {"p50": 0.0, "p99": 8.0, "max": 9.0}
    fidelity = {"transfers": 7, "transfer_lag_ms": lag, "tasks": 3, "compute_overruns": 1}
    summary = {
        "versions": 12,
        "final_accuracy": 0.5,
        "target_accuracy": 0.7,
        "time_to_target_s": None,
        "emulated_s": 40.0,
        "speed": 0.5,
        "fidelity": fidelity | {"verdict": "strained", "reasons": ["host busy"]},
    }
    results = [
        pages.Result(
            *("tdma", "idfl-s3", place, summary, (2.0, 2.0), None, None),
            *(judge.Pieces(100, 1, 2, -3.0, 0.5, 70.0, 4), None, 0),
        )
        for place in ("virtual", "loopback", "hosts")
    ]
    facts = pages.Facts(
        "2 cores; load", True, {"tdma": 4}, {"tdma": 300.0}, {"tdma": 12}, {"tdma": None}
    )
    lines = pages.page(facts, results).splitlines()
    assert "| `idfl-s3` | hosts | 12 | 2 | 2 | 0.5 |  |" in lines
    assert "| `idfl-s3` | hosts | up | 100 | 1 | 2 | 0.5 | -3 | 70 |" in lines
    assert "| `idfl-s3` | loopback | strained | 7 | 8 | 9 | 3 | 1 |" in lines
    assert "- `idfl-s3`, hosts: host busy" in lines
    assert not any("virtual" in line and "strained" in line for line in lines)
    assert any("TDMA: 0.5." in line for line in lines)
