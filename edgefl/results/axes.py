"""What a result can be measured over: emulated time, versions, bytes, joules or real time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgefl.config.scores import Score
from edgefl.errors import UserError, nearest
from edgefl.results.summary import number
from edgefl.results.tail import read_csv

Evaluations = Sequence[tuple[float, float]]  # (x, score), in order of emulated time

NO_JOULES = "their configs have no [devices.energy] or [links.radio]"


@dataclass(frozen=True, slots=True)
class Axis:
    """An x that each evaluation of a run has: the sum of some columns of metrics.csv.

    ``unit``: "" for a count. ``missing``: why runs may not have it.
    """

    name: str
    columns: tuple[str, ...]
    unit: str
    label: str
    missing: str = "they are of an older version"

    def value(self, row: Mapping[str, Any]) -> float | None:
        """Return x of a row of metrics.csv; None if a column is missing or not a number."""
        values = [number(row.get(column)) for column in self.columns]
        there = [value for value in values if value is not None]
        return sum(there) if len(there) == len(values) else None


AXES = {
    axis.name: axis
    for axis in (
        Axis("emulated_s", ("emulated_s",), "s", "emulated seconds"),
        Axis("wall_s", ("wall_s",), "s", "wall-clock seconds"),
        Axis("version", ("version",), "", "versions"),
        Axis("bytes", ("bytes_up", "bytes_down"), "B", "bytes sent, up and down"),
        Axis("joules", ("joules",), "J", "joules", NO_JOULES),
    )
}
ALIASES = {"round": "version", "rounds": "version", "time": "emulated_s", "energy": "joules"}


def named(name: str) -> Axis:
    """Return an axis by its name or alias. UserError for an unknown one."""
    found = AXES.get(ALIASES.get(name, name))
    if found is None:
        raise UserError(f"--x {name}: there is no such x{nearest(name, AXES)}")
    return found


def evaluations(run: Path, axis: Axis, score: Score) -> Evaluations:
    """Return what a run, finished or not, has evaluated; [] if it has no such x."""
    rows = [
        (t, row, value)
        for row in read_csv(run / "metrics.csv")
        if (t := number(row.get("emulated_s"))) is not None
        and (value := number(row.get(score.name))) is not None
    ]
    rows.sort(key=lambda each: each[0])
    return [(x, value) for _, row, value in rows if (x := axis.value(row)) is not None]


def to_target(evaluated: Evaluations, target: float, score: Score) -> float | None:
    """Return x of the first model that reaches ``target``; None if there is none."""
    return next((x for x, value in evaluated if score.reaches(value, target)), None)
