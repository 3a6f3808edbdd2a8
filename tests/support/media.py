"""Small runs over a shared medium, and their transfers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from builders import S

from edgefl.results.read import read_csv

PAIR: dict[str, Any] = {
    "edges": {"names": ["a", "b"]},
    "stop": {"versions": 2},
    "devices": {"samples_per_s": 100.0},
}
ALONE: dict[str, Any] = PAIR | {"edges": {"names": ["a"]}}


def transfers(directory: Path, **only: str) -> list[dict[str, Any]]:
    """Return the rows of links.csv with these values; bytes, offered_ns and due_ns are numbers."""
    rows = [
        row
        for row in read_csv(directory / "links.csv")
        if all(row[key] == value for key, value in only.items())
    ]
    return [
        row
        | {
            "size": int(row["bytes"]),
            "offered_ns": ns(row["offered_s"]),
            "due_ns": ns(row["scheduled_s"]),
        }
        for row in rows
    ]


def ns(text: str) -> int:
    whole, _, parts = text.partition(".")
    return int(whole) * S + int(parts.ljust(9, "0"))


SLOTS = {"kind": "tdma", "slot_ms": 100.0, "guard_ms": 10.0, "rate_mbit_s": 0.01}
