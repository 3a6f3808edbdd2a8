"""Names of classes in messages and in rows of a record."""

from __future__ import annotations

import re


def snake(name: str) -> str:
    """Convert CamelCase to snake_case: UpdateArrived -> update_arrived."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()
