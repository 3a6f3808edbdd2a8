"""Check TDMA over real sockets: whether bytes arrive in the slots of their device.

Both receivers record the moments of arrival.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from emulator_app import Seen, measure
from emulator_rows import FIFO, Cell, Extent, busy_cores, priorities, wake_rows
from table import Row

RATE_MBIT_S = 10
COMPLETION_GOAL, INSIDE_GOAL, NONE_GOAL = "<= 1", ">= 99", "<= 0"
IDLE_MS, BUSY_FIFO_MS, BUSY_NORMAL_MS = 1, 10, 20  # a piece may arrive so late after its slot
NS_PER_MS = 1_000_000


@dataclass(frozen=True, slots=True)
class Slots:
    """The slot table: slot i begins at i * ``slot_ms``; no bytes in its last ``guard_ms``."""

    slot_ms: int
    guard_ms: int

    def at(self, held: list[int], size_bytes: int) -> tuple[int, int]:
        """Return (the slot that serves byte ``size_bytes``, the moment when it is served).

        This is the closed form over the slots that a transfer holds.
        """
        work_ns = -(-size_bytes * 8000 // RATE_MBIT_S)
        index, rest_ns = divmod(work_ns - 1, (self.slot_ms - self.guard_ms) * NS_PER_MS)
        return held[index], self.begins(held[index]) + rest_ns + 1

    def begins(self, slot: int) -> int:
        return slot * self.slot_ms * NS_PER_MS


@dataclass(frozen=True, slots=True)
class Piece:
    """A piece that arrived at ``at_ns`` with bytes of ``first_slot`` to ``last_slot``.

    It must not leave before ``last_slot`` begins.
    """

    edge: str
    first_slot: int
    last_slot: int
    at_ns: int


def rows(extent: Extent) -> Iterator[Row]:
    """G6 on an idle host."""
    links, repeat = {Extent.TINY: (2, 1), Extent.QUICK: (10, 2), Extent.FULL: (10, 5)}[extent]
    cell = Cell("G6", RATE_MBIT_S, 50_000, links=links, repeat=repeat)
    yield from _rows("idle", Slots(10, 1), cell, IDLE_MS)


def busy_rows(extent: Extent) -> Iterator[Row]:
    """G6 with both cores busy, and with longer slots and guards."""
    size, links, repeat = {
        Extent.TINY: (50_000, 1, 1),
        Extent.QUICK: (300_000, 3, 1),
        Extent.FULL: (300_000, 5, 3),
    }[extent]
    with busy_cores(extent):
        for priority in priorities(extent):
            name = f"cores busy, {FIFO if priority else 'normal priority'}"
            cell = Cell("G6", RATE_MBIT_S, size, links=links, repeat=repeat)
            yield from _rows(
                name, Slots(100, 10), cell, BUSY_FIFO_MS if priority else BUSY_NORMAL_MS, priority
            )


def _rows(when: str, slots: Slots, cell: Cell, late_ms: int, priority: bool = True) -> list[Row]:
    medium = {
        "kind": "tdma",
        "slot_ms": float(slots.slot_ms),
        "guard_ms": float(slots.guard_ms),
        "rate_mbit_s": float(RATE_MBIT_S),
    }
    seen = measure(cell, priority, {"medium": medium})
    name = f"G6 TDMA, {when}, slots of {slots.slot_ms} ms, guard {slots.guard_ms} ms"
    pieces = [piece for transfer in seen.transfers for piece in _pieces(slots, transfer, seen)]
    early = sum(piece.at_ns < slots.begins(piece.last_slot) for piece in pieces)
    inside = sum(
        slots.begins(piece.last_slot)
        <= piece.at_ns
        <= slots.begins(piece.last_slot + 1) + late_ms * NS_PER_MS
        for piece in pieces
    )
    across = sum(piece.first_slot != piece.last_slot for piece in pieces)
    errors_ms = [
        abs(transfer["finished_ns"] - slots.at(transfer["slots"], transfer["size"])[1]) / NS_PER_MS
        for transfer in seen.transfers
    ]
    return [
        Row(
            f"{name}: completion against the table, worst of {len(errors_ms)}",
            max(errors_ms),
            "ms",
            COMPLETION_GOAL,
        ),
        Row(
            f"{name}: pieces inside their slot + {late_ms} ms ({len(pieces)})",
            100 * inside / len(pieces),
            "%",
            INSIDE_GOAL,
        ),
        Row(f"{name}: pieces before their slot", early, "", NONE_GOAL),
        Row(
            f"{name}: pieces that bring bytes of an earlier slot, too",
            100 * across / len(pieces),
            "%",
        ),
        Row(
            f"{name}: slots given twice, or granted after they began",
            _misgranted(slots, seen.transfers),
            "",
            NONE_GOAL,
        ),
        Row(f"{name}: times that two devices overlapped", _overlaps(pieces), "", NONE_GOAL),
        *wake_rows(name, seen.fidelity["wake_lag_ms"]),
    ]


def _pieces(slots: Slots, transfer: dict[str, Any], seen: Seen) -> Iterator[Piece]:
    before = transfer["meta"]  # these bytes travel in the offer
    for size, at_ns in seen.arrivals[transfer["number"]]:
        if size == before:
            continue  # the offer itself, which no slot carries
        yield Piece(
            transfer["edge"],
            slots.at(transfer["slots"], before + 1)[0],
            slots.at(transfer["slots"], size)[0],
            at_ns,
        )
        before = size


def _overlaps(pieces: list[Piece]) -> int:
    """Count how often a device uses the channel before another device has finished.

    A use lasts from the first to the last arrival of one device in one slot.
    """
    stays: dict[tuple[str, int], tuple[int, int]] = {}
    for piece in pieces:
        first_ns, last_ns = stays.get((piece.edge, piece.last_slot), (piece.at_ns, piece.at_ns))
        stays[piece.edge, piece.last_slot] = (min(first_ns, piece.at_ns), max(last_ns, piece.at_ns))
    ordered = sorted((first_ns, last_ns, edge) for (edge, _), (first_ns, last_ns) in stays.items())
    return sum(
        later[0] < earlier[1] and later[2] != earlier[2] for earlier, later in pairwise(ordered)
    )


def _misgranted(slots: Slots, transfers: list[dict[str, Any]]) -> int:
    held = [slot for transfer in transfers for slot in transfer["slots"]]
    begun = sum(
        slots.begins(slot) < transfer["offered_ns"]
        for transfer in transfers
        for slot in transfer["slots"]
    )
    return len(held) - len(set(held)) + begun
