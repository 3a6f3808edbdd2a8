"""The energy of a run: joules per edge and state, and over time.

It reads energy.csv and summary.json, also of a run that still goes on or was killed. All functions
return None for a run without energy, and count up to the end of the run or to its latest row.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from edgefl.config.scores import Score
from edgefl.record.files import ENERGY, METRICS
from edgefl.record.tables import parts
from edgefl.results.read import number, read_csv
from edgefl.results.run_files import read_summary
from edgefl.results.summary import AXES, evaluations, to_target
from emulator.energy.account import IDLE, STATES

MODELLED, MEASURED = "modelled", "measured"
EdgeJoules = dict[str, float]  # "joules", and by state "idle_j", "compute_j", ...


def joules(run: Path) -> dict[str, EdgeJoules] | None:
    """The modelled joules of each edge: ``joules`` in all, and those of each state.

    ``idle_j`` is the idle power over the whole time. What the other states need comes on top.
    """
    section = _section(run)
    if section is not None:
        return {
            edge: {key: value for key, value in each.items() if not key.endswith("_s")}
            for edge, each in section["by_edge"].items()
        }
    if not (rows := _rows(run)):
        return None
    end_s, by_edge = _end_s(run, rows), dict[str, EdgeJoules]()
    for row in rows:
        if row["state"] == IDLE:
            amount = float(row["watts"]) * max(0.0, end_s - float(row["began_s"]))
        else:
            amount = float(row["joules"])
        empty = {"joules": 0.0, **{f"{state}_j": 0.0 for state in STATES}}
        of_edge = by_edge.setdefault(row["edge"], empty)
        of_edge[f"{row['state']}_j"] += amount
        of_edge["joules"] += amount
    return dict(sorted(by_edge.items()))


def whole_joules(run: Path) -> float | None:
    """The modelled joules of all edges together."""
    if (section := _section(run)) is not None:
        return float(section["joules"])
    by_edge = joules(run)
    return None if by_edge is None else sum(each["joules"] for each in by_edge.values())


def joules_at(run: Path, seconds: Sequence[float]) -> list[float] | None:
    """The modelled joules of all edges at these emulated seconds, such as those of evaluations.

    The energy of a transfer or a training grows evenly from its beginning to its end; after the end
    of the run it stays. None also if old parts of energy.csv were deleted (``record.keep``).
    """
    rows = _rows(run)
    if not rows or min(parts(run / ENERGY), default=1) > 1:
        return None
    end_s = _end_s(run, rows)
    steps: defaultdict[float, float] = defaultdict(float)  # by moment: the change of power (W)
    jumps: defaultdict[float, float] = defaultdict(float)  # by moment: joules all at once
    for row in rows:
        began_s = float(row["began_s"])
        is_idle = row["state"] == IDLE
        ended_s = max(end_s, began_s) if is_idle else float(row["ended_s"])
        if not is_idle and ended_s <= began_s:
            jumps[began_s] += float(row["joules"])
            continue
        watts = float(row["watts"]) if is_idle else float(row["joules"]) / (ended_s - began_s)
        steps[began_s] += watts
        steps[ended_s] -= watts
    moments = np.array(sorted({0.0, *steps}))
    powers = np.cumsum([steps.get(each, 0.0) for each in moments])
    grown = np.concatenate(([0.0], np.cumsum(powers[:-1] * np.diff(moments))))
    at_once_s = np.array(sorted(jumps))
    at_once = np.concatenate(([0.0], np.cumsum([jumps[each] for each in at_once_s])))
    found = np.interp(seconds, moments, np.maximum.accumulate(grown))
    whole: list[float] = (found + at_once[at_once_s.searchsorted(seconds, "right")]).tolist()
    return whole


def joules_to_target(
    metrics_rows: Iterable[Mapping[str, Any]], target: float | None, score: Score
) -> float | None:
    """The modelled joules of the evaluation at which the target was reached.

    ``metrics_rows``: of metrics.csv. A transfer that was under way then is not counted.
    """
    return to_target(evaluations(metrics_rows, score.name, AXES["joules"]), target, score)


def so_far(
    run: Path, metrics_rows: Iterable[Mapping[str, Any]], target: float | None, score: Score
) -> dict[str, Any]:
    """The joules of a run without a summary, as its section of summary.json; {} if it has none."""
    in_all = whole_joules(run)
    if in_all is None:
        return {}
    found = joules_to_target(metrics_rows, target, score)
    return {"kind": MODELLED, "joules": in_all, "joules_to_target": found}


def _section(run: Path) -> dict[str, Any] | None:
    section = read_summary(run).get("energy")
    is_modelled = isinstance(section, dict) and section.get("kind") == MODELLED
    return section if is_modelled else None


def _rows(run: Path) -> list[dict[str, str]]:
    """The rows of energy.csv about states."""
    return [row for row in read_csv(run / ENERGY) if row["state"] in STATES]


def _end_s(run: Path, rows: Sequence[Mapping[str, Any]]) -> float:
    """The end of the run; of one without a summary, its latest moment in energy.csv and metrics."""
    of_run = number(read_summary(run).get("emulated_s"))
    if of_run is not None:
        return of_run
    ends = [float(row["ended_s"] or row["began_s"]) for row in rows]
    ends += [number(row.get("emulated_s")) or 0.0 for row in read_csv(run / METRICS)]
    return max(ends, default=0.0)
