"""Events and decisions as plain rows: for events.jsonl, for the journal's fingerprints, and for
the story behind a bug.
"""

from __future__ import annotations

import re
from dataclasses import fields
from functools import cache
from typing import Any

import numpy as np
import xxhash

from edgefl.jobs import arrays, plain
from edgefl.strategies.base.decisions import Decision, RunJob
from edgefl.strategies.base.events import Event

ARRAYS = {"base", "vectors", "weights"}
SLOTS = {"broadcast", "slots"}  # left out where there are none


def snake(name: str) -> str:
    """UpdateArrived -> update_arrived."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


@cache
def _columns(sort: type) -> tuple[str, tuple[str, ...]]:
    """(its name as a row has it, its fields without arrays): looked up once a class, since every
    event of a run is written down.
    """
    return snake(sort.__name__), tuple(f.name for f in fields(sort) if f.name not in ARRAYS)


def event_row(event: Event) -> dict[str, Any]:
    """The event without its arrays, its sort first."""
    sort, names = _columns(type(event))
    return {"event": sort, **{name: getattr(event, name) for name in names}}


def decision_row(decision: Decision) -> dict[str, Any]:
    """The decision without its arrays, its sort first."""
    sort, names = _columns(type(decision))
    row: dict[str, Any] = {"do": sort}
    for name in names:
        value = getattr(decision, name)
        if value is not None or name not in SLOTS:
            row[name] = value
    return (
        row | {"job": snake(type(decision.job).__name__)} if isinstance(decision, RunJob) else row
    )


def digest(array: np.ndarray) -> str:
    return xxhash.xxh3_128_hexdigest(np.ascontiguousarray(array).view(np.uint8).data)


def fingerprint(decision: Decision) -> dict[str, Any]:
    """The decision with a digest in each array's place: equal fingerprints mean bit-equal
    decisions.
    """
    row = decision_row(decision)
    for name in ("vectors", "weights"):
        value = getattr(decision, name, None)
        if isinstance(value, dict):
            row[name] = {key: digest(array) for key, array in value.items()}
        elif value is not None:
            row[name] = digest(value)
    return row | {"job": _job(decision.job)} if isinstance(decision, RunJob) else row


def _job(job: Any) -> dict[str, Any]:
    """Its class and numbers, and a digest of each array."""
    row = {
        name: value
        for name, value in plain(job)[2].items()
        if not isinstance(value, (np.ndarray, dict))
    }
    return {
        "kind": snake(type(job).__name__),
        **row,
        **{name: digest(array) for name, array in arrays(job)},
    }
