"""Events and decisions as plain rows: for events.jsonl, for the journal's fingerprints, and for the story behind a bug."""

from __future__ import annotations

import re
from dataclasses import fields
from typing import Any

import numpy as np
import xxhash

from edgefl.strategies.decisions import Decision
from edgefl.strategies.events import Event

ARRAYS = {"base", "vectors", "weights"}


def snake(name: str) -> str:
    """UpdateArrived -> update_arrived."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


def event_row(event: Event) -> dict[str, Any]:
    """The event without its arrays, its sort first."""
    row: dict[str, Any] = {"event": snake(type(event).__name__)}
    return row | {f.name: getattr(event, f.name) for f in fields(event) if f.name not in ARRAYS}


def decision_row(decision: Decision) -> dict[str, Any]:
    """The decision without its arrays, its sort first."""
    row: dict[str, Any] = {"do": snake(type(decision).__name__)}
    return row | {f.name: getattr(decision, f.name) for f in fields(decision) if f.name not in ARRAYS}


def digest(array: np.ndarray) -> str:
    return xxhash.xxh3_128_hexdigest(np.ascontiguousarray(array).view(np.uint8).data)


def fingerprint(decision: Decision) -> dict[str, Any]:
    """The decision with a digest in each array's place: equal fingerprints mean bit-equal decisions."""
    row = decision_row(decision)
    for name in ("vectors", "weights"):
        value = getattr(decision, name, None)
        if isinstance(value, dict):
            row[name] = {key: digest(array) for key, array in value.items()}
        elif value is not None:
            row[name] = digest(value)
    return row
