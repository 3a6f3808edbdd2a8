"""Renamed numbers: rows of old run directories are read with today's names."""

from __future__ import annotations

from typing import Any

# The number of finished epochs after which a device asks for a fresher model. It is renamed only
# next to "draw" (in a task) or "asked" (in an update): a user's strategy may have its own "slot".
OLD, NEW, WITH = "slot", "refresh_point", ("draw", "asked")


def renamed(row: dict[str, Any]) -> dict[str, Any]:
    """Return ``row``, an event or decision, with today's names, also in its decisions."""
    numbers = row.get("numbers")
    if isinstance(numbers, dict):
        row["numbers"] = dict(zip(renamed_keys(tuple(numbers)), numbers.values()))
    for decision in row.get("decisions", ()):
        renamed(decision)
    return row


def renamed_keys(keys: tuple[str, ...]) -> tuple[str, ...]:
    """Return the keys of such numbers with today's names."""
    if OLD in keys and any(name in keys for name in WITH):
        return tuple(NEW if key == OLD else key for key in keys)
    return keys
