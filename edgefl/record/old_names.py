"""Facts that have a new name: rows of an old run directory are read as if they had it."""

from __future__ import annotations

from typing import Any

# The epoch before which a device asks for a fresher model. A task says it with "draw", an update
# with "asked": a user's own strategy may call something else "slot".
OLD, NEW, WITH = "slot", "refresh_point", ("draw", "asked")


def renamed(row: dict[str, Any]) -> dict[str, Any]:
    """``row``, an event or a decision, with today's names in its numbers and in those of its
    decisions.
    """
    numbers = row.get("numbers")
    if isinstance(numbers, dict) and OLD in numbers and any(name in numbers for name in WITH):
        row["numbers"] = {NEW if name == OLD else name: value for name, value in numbers.items()}
    for decision in row.get("decisions", ()):
        renamed(decision)
    return row
