"""Replay of a recorded run: a fresh strategy must make the same decisions, bit for bit."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

from edgefl.errors import UserError, own_place, told, users_place
from edgefl.record.journal import JournalEvent, read
from edgefl.record.rows import fingerprint
from edgefl.snake_case import snake
from edgefl.strategies.base import events_and_decisions as do
from edgefl.strategies.base import events_and_decisions as ev
from edgefl.strategies.base.strategy import Strategy
from edgefl.vectors import read_only

EVENTS = {snake(kind.__name__): kind for kind in ev.Event.__args__}


@dataclass(slots=True)
class Replay:
    """The result of a replay: number of events, last version, last weights."""

    weights: np.ndarray
    events: int = 0
    version: int = 0


def replay(
    directory: Path,
    strategy: Strategy,
    say: Callable[[str], None] = lambda line: None,
    received: Callable[[np.ndarray, int], np.ndarray] = lambda model, version: model,
    until: int | None = None,
) -> Replay:
    """Give ``strategy`` the events of the journal in ``directory``.

    ``say`` gets a line if the end of the journal is torn. ``received``: the model that an edge gets
    of a model that is sent as a version. ``until``: the replay ends with this version. UserError
    names the first event whose decisions differ from the journal.
    """
    result = Replay(strategy.weights)
    read_only([strategy.weights])  # as in the run, also below
    bases: dict[int, np.ndarray] = {}  # of the open tasks
    numbers = count()
    if until == 0:
        return result
    for event in (event for entry in read(directory, say=say) for event in entry.events):
        result.events += 1
        made = _event(event, bases)
        try:
            decisions = do.up_to_finish(strategy.handle(made, event.now))
        except (UserError, KeyboardInterrupt):
            raise
        except BaseException as error:  # also SystemExit
            module = type(strategy).__module__
            place = own_place(error, module) or users_place(error)
            raise UserError(
                f"{directory}: event {result.events} ({event.row['event']}):"
                f" {type(strategy).__name__} failed: {told(error, module)}{place}"
            ) from error
        found = _plain([fingerprint(decision) for decision in decisions])
        if found != event.decisions:
            raise UserError(
                f"{directory}: event {result.events} ({event.row['event']}) decided {found}, the"
                f" journal has {event.decisions}"
            )
        for decision in decisions:
            match decision:
                case do.Assign():
                    model = received(decision.vectors["weights"], result.version)
                    read_only([model, *decision.vectors.values()])
                    bases |= {next(numbers): model for _ in decision.edges}
                case do.Cancel():
                    del bases[decision.task]
                case do.Publish():
                    result.version, result.weights = result.version + 1, decision.weights
                    read_only([decision.weights])
                    if result.version == until:
                        return result
    return result


def _event(event: JournalEvent, bases: dict[int, np.ndarray]) -> ev.Event:
    """Return the event with its arrays; an update or a closing ends its task in ``bases``."""
    kind = EVENTS[event.row["event"]]
    values: dict[str, Any] = {
        f.name: event.row[f.name] for f in fields(kind) if f.name in event.row
    }
    if kind in (ev.UpdateArrived, ev.TaskClosed):
        base = bases.pop(values["task"])
    if kind is ev.UpdateArrived:
        values |= {"base": base}
    if kind in (ev.UpdateArrived, ev.JobDone):
        read_only(event.arrays.values())
        values |= {"vectors": event.arrays}
    if kind is ev.Evaluated:
        values["version"] = event.row["of_version"]
        scores = values["scores"].items()  # JSON has no nan
        values["scores"] = {name: math.nan if n is None else n for name, n in scores}
    made: ev.Event = kind(**values)
    return made


def _plain(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return ``rows`` as JSON would return them: tuples become lists."""
    return [
        {key: list(value) if isinstance(value, tuple) else value for key, value in row.items()}
        for row in rows
    ]
