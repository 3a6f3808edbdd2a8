"""Renamed numbers: rows of old run directories are read with today's names."""

from __future__ import annotations

from typing import Any

# The number of finished epochs after which a device asks for a fresher model. It is renamed only
# next to "draw" (in a task) or "asked" (in an update): a user's strategy may have its own "slot".
OLD, NEW, WITH = "slot", "refresh_point", ("draw", "asked")


def renamed(row: dict[str, Any]) -> dict[str, Any]:
    """Return ``row``, an event or decision, with today's names, also in its decisions."""
    numbers = row.get("numbers")
    if isinstance(numbers, dict) and OLD in numbers and any(name in numbers for name in WITH):
        row["numbers"] = {NEW if name == OLD else name: value for name, value in numbers.items()}
    for decision in row.get("decisions", ()):
        renamed(decision)
    return row
