"""A recorded run, given again to a fresh strategy: the decisions must be the same and the
weights bit-equal.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

from edgefl.errors import UserError
from edgefl.record.journal import JournalEntry, read
from edgefl.record.rows import fingerprint, snake
from edgefl.strategies.base import decisions as do
from edgefl.strategies.base import events as ev
from edgefl.strategies.base.strategy import Strategy

EVENTS = {snake(kind.__name__): kind for kind in ev.Event.__args__}


@dataclass(slots=True)
class Replay:
    """What the replay found: events given, versions made, the last weights."""

    weights: np.ndarray
    events: int = 0
    version: int = 0


def replay(directory: Path, strategy: Strategy) -> Replay:
    """Drive ``strategy`` with the journal in ``directory``; UserError names the first event
    whose decisions differ.
    """
    result = Replay(strategy.weights)
    strategy.weights.flags.writeable = False  # as in the run
    bases: dict[int, np.ndarray] = {}  # of the open tasks
    numbers = count()
    for entry in read(directory):
        result.events += 1
        decisions = do.up_to_finish(strategy.handle(_event(entry, bases), entry.now))
        found = _plain([fingerprint(decision) for decision in decisions])
        if found != entry.decisions:
            raise UserError(
                f"{directory}: event {result.events} ({entry.row['event']}) decided {found}, the"
                f" journal has {entry.decisions}"
            )
        for decision in decisions:
            match decision:
                case do.Assign():
                    bases |= {next(numbers): decision.vectors["weights"] for _ in decision.edges}
                case do.Cancel():
                    del bases[decision.task]
                case do.Publish():
                    result.version, result.weights = result.version + 1, decision.weights
                    decision.weights.flags.writeable = False
    return result


def _event(entry: JournalEntry, bases: dict[int, np.ndarray]) -> ev.Event:
    """The event with its arrays; with it the task of an update or a closing is over."""
    kind = EVENTS[entry.row["event"]]
    values: dict[str, Any] = {
        f.name: entry.row[f.name] for f in fields(kind) if f.name in entry.row
    }
    if kind in (ev.UpdateArrived, ev.TaskClosed):
        base = bases.pop(values["task"])
    if kind is ev.UpdateArrived:
        values |= {"base": base}
    if kind in (ev.UpdateArrived, ev.JobDone):
        values |= {"vectors": entry.arrays}
    made: ev.Event = kind(**values)
    return made


def _plain(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """As JSON gives it back: tuples become lists."""
    return [
        {key: list(value) if isinstance(value, tuple) else value for key, value in row.items()}
        for row in rows
    ]
