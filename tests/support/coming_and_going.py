"""Small experiments of which half of the edges is away at any time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from edgefl.strategies.base.catalog import load

IDS = [f"e{number}" for number in range(6)]
TIMES = {"e0": (0, 2), "e1": (2, 4), "e2": (1, 3)}  # the others: when these are away
SMALL = {"clients_per_round": 2, "concurrency": 3, "clients_per_trigger": 2, "buffer_size": 2}
SMALL |= {"least_updates": 2, "slot_s": 1.0, "period_s": 1.0, "per_round": 2}
RUN: dict[str, Any] = {
    "task": "../support/own_task.py:build",
    "devices": {"samples_per_s": 100.0, "slowest_ratio": 3.0},
    "training": {"batch_size": 17},
    "network": {"grace_s": 1.5},
}


def halves(folder: Path) -> Path:
    """A file with three of six edges at any time; each edge stays for 2 s."""
    rows = []
    for index, edge in enumerate(IDS):
        begin, end = TIMES[f"e{index % 3}"]
        if index < 3:
            rows.append((edge, begin, end))
        else:
            rows += [(edge, a, b) for a, b in ((0, begin), (end, 4)) if a < b]
    path = folder / "halves.csv"
    path.write_text("".join(f"{edge},{begin},{end}\n" for edge, begin, end in rows))
    return path


def sections(folder: Path, name: str, **availability: Any) -> dict[str, Any]:
    kind, small = load(name), {}
    for key in SMALL:
        if key in kind.Options.model_fields:
            small[key] = SMALL[key]
    slots = {"kind": "tdma", "slot_ms": 100.0, "guard_ms": 10.0, "rate_mbit_s": 1.0}
    where = {"kind": "file", "file": str(halves(folder)), "period_s": 4.0} | availability
    return RUN | {
        "edges": {"names": IDS, "availability": where},
        "stop": {"emulated_s": 16.0},
        "strategies": [{"strategy": name, **small}],
        **({"medium": slots} if kind.schedules_slots else {}),
        **({"unlabelled": {"size": 50}} if kind.needs_unlabelled else {}),
    }
