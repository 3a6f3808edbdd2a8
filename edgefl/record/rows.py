"""Events and decisions as plain rows, for events.jsonl, the counters and the journal.

The rows also appear in error reports about a strategy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import Any

import numpy as np
import xxhash

from edgefl.jobs import arrays, plain
from edgefl.snake_case import snake
from edgefl.strategies.base.events_and_decisions import (
    Assign,
    Decision,
    EdgeJoined,
    Evaluated,
    Event,
    Publish,
    Push,
    RunJob,
    SendFresh,
    SetAlarm,
)
from emulator.units import seconds_text

ARRAYS = {"base", "vectors", "weights"}
OPTIONAL = {"broadcast", "slots", "made_of"}  # left out if None


_known: dict[type, tuple[str, tuple[str, ...]]] = {}


def _columns(sort: type[Event] | type[Decision]) -> tuple[str, tuple[str, ...]]:
    """Return a class's name in rows and its fields without arrays.

    Cached per class, because every event of a run is written.
    """
    if sort not in _known:
        names = tuple(f.name for f in fields(sort) if f.name not in ARRAYS)
        _known[sort] = snake(sort.__name__), names
    return _known[sort]


def event_row(event: Event) -> dict[str, Any]:
    """Return the event without its arrays, its type first."""
    sort, names = _columns(type(event))
    row = {"event": sort, **{name: getattr(event, name) for name in names}}
    if isinstance(event, Evaluated):  # a line's "version" is the current one
        row["of_version"] = row.pop("version")
    return row


def decision_row(decision: Decision) -> dict[str, Any]:
    """Return the decision without its arrays, its type first."""
    sort, names = _columns(type(decision))
    row: dict[str, Any] = {"do": sort}
    for name in names:
        value = getattr(decision, name)
        if value is not None or name not in OPTIONAL:
            row[name] = value
    return (
        row | {"job": snake(type(decision.job).__name__)} if isinstance(decision, RunJob) else row
    )


def event_line(
    event: Mapping[str, Any],
    version: int,
    decisions: list[Decision],
    numbers: list[list[int]],
    factors: Sequence[float] = (),
) -> dict[str, Any]:
    """Return the line of events.jsonl for an ``event_row`` at ``version`` and its decisions.

    ``numbers``: the task numbers of each Assign or Push. ``factors``: of the learning rate of each
    Assign, by ``training.decay``; empty without it.
    """
    return {
        "event": event["event"],
        "version": version,
        **event,
        "decisions": _decided(decisions, version, numbers, factors),
    }


def joined_lines(events: Sequence[EdgeJoined], version: int) -> list[dict[str, Any]]:
    """Return the ``event_line`` of each of these events, on which nothing was decided."""
    alike = event_line(event_row(events[0]), version, [], [])
    return [{**alike, "edge": event.edge, "samples": event.samples} for event in events]


def _decided(
    decisions: list[Decision],
    version: int,
    numbers: list[list[int]],
    factors: Sequence[float],
) -> list[dict[str, Any]]:
    """Return decision rows with task numbers and the version that each Publish makes."""
    rows, tasks, decays = [], iter(numbers), iter(factors)
    for decision in decisions:
        row = decision_row(decision)
        if isinstance(decision, Assign):
            row["tasks"] = next(tasks)
            if factors:
                row["decay"] = next(decays)
        elif isinstance(decision, Push):
            row["tasks"] = next(tasks)
            row["version"] = version if decision.version is None else decision.version
        elif isinstance(decision, Publish):
            version += 1
            row["version"] = version
        elif isinstance(decision, SendFresh):
            newer = version if decision.version is None else decision.version
            row["version"] = None if decision.weights is None else newer  # None: no newer model
        elif isinstance(decision, SetAlarm):
            row["at"] = float(seconds_text(row.pop("at_ns")))
        elif isinstance(decision, RunJob):
            row["cost_s"] = float(seconds_text(row.pop("cost_ns")))
        rows.append(row)
    return rows


def digest(array: np.ndarray) -> str:
    return xxhash.xxh3_128_hexdigest(np.ascontiguousarray(array).view(np.uint8).data)


def fingerprint(decision: Decision, digest: Callable[[np.ndarray], str] = digest) -> dict[str, Any]:
    """Return the decision with a digest in place of each array.

    Equal fingerprints mean bit-equal decisions. ``digest``: of an array, maybe from a cache.
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
    """Return the job's class and numbers, and a digest of each array."""
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
