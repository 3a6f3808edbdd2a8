"""A small run in which every strategy of the catalog can take part."""

from __future__ import annotations

from typing import Any

from edgefl.strategies.base.catalog import load

SMALL = {
    "clients_per_round": 2,
    "concurrency": 2,
    "clients_per_trigger": 2,
    "buffer_size": 2,
    "least_updates": 2,
    "slot_s": 1.0,
    "period_s": 1.0,
    "per_round": 2,
}
LARGE_STEPS = {
    "fadas": {"server_learning_rate": 0.1},
    "fedac": {"server_learning_rate": 0.1},
}  # their own defaults are for hundreds of versions
RUN: dict[str, Any] = {
    "task": "../support/own_task.py:build",
    "stop": {"versions": 5},
    "devices": {"samples_per_s": 100.0, "slowest_ratio": 3.0},
    "training": {"batch_size": 16},
}
PAYLOADS: dict[str, Any] = {"record": {"payloads": True}}


def medium(name: str) -> dict[str, Any]:
    """Options of the medium: slotted strategies need slots, distilling ones need unlabelled
    samples.
    """
    slots = (
        {"medium": {"kind": "tdma", "slot_ms": 100.0, "guard_ms": 10.0, "rate_mbit_s": 1.0}}
        if load(name).schedules_slots
        else {}
    )
    return slots | ({"unlabelled": {"size": 50}} if load(name).needs_unlabelled else {})
