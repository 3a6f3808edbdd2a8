"""Mean and sample standard deviation over the seeds of a scheme, and comparison_seeds.csv."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from edgefl.results.compare import UNFINISHED, Row, is_told, schemes, write_table
from edgefl.results.summary import DIVERGED, FAILED, INTERRUPTED, STRAINED

QUANTITIES = (
    "final_accuracy",
    "convergence_accuracy",
    "best_accuracy",
    "stability",
    "time_to_target_s",
    "versions",
    "updates_received",
    "updates_applied",
    "updates_discarded",
    "bytes_up",
    "bytes_down",
    "staleness_mean",
    "emulated_s",
    "wall_s",
    "joules",
    "joules_to_target",
)


@dataclass(frozen=True, slots=True)
class Spread:
    """The spread of a quantity that ``n`` of ``of`` runs have.

    ``mean`` is None unless all have it (survivorship bias). ``deviation`` is
    sqrt(sum (x - mean)^2 / (n - 1)), None for a single run.
    """

    n: int
    of: int
    mean: float | None
    deviation: float | None


def spread(values: Sequence[float | None]) -> Spread:
    """Return the spread of ``values``; None stands for a run without the number.

    For example, a run that never reaches the target has no time to it.
    """
    there = [value for value in values if value is not None]
    if not there or len(there) < len(values):
        return Spread(len(there), len(values), None, None)
    mean = math.fsum(there) / len(there)
    squares = math.fsum((value - mean) ** 2 for value in there)
    return Spread(
        len(there),
        len(values),
        mean,
        math.sqrt(squares / (len(there) - 1)) if len(there) > 1 else None,
    )


def of_rows(rows: Sequence[Row], quantity: str) -> Spread:
    """Return the spread of a field of ``Row`` over a scheme's runs."""
    return spread([getattr(row, quantity) for row in rows])


def verdict(rows: Sequence[Row]) -> str:
    """Return the worst mark of a scheme's runs, since a mean is no better than its runs."""
    found = {row.mark for row in rows}
    worse = (FAILED, DIVERGED, UNFINISHED, INTERRUPTED, STRAINED)
    return next((bad for bad in worse if bad in found), rows[0].mark)


def write_csv(rows: Sequence[Row], path: Path) -> None:
    """Write comparison_seeds.csv, one row per scheme.

    Every quantity has its mean, its sample standard deviation, and the number of runs that have it.
    """
    quantities = [quantity for quantity in QUANTITIES if is_told(quantity, rows)]
    columns = [f"{quantity}_{part}" for quantity in quantities for part in ("mean", "std", "n")]
    lines = []
    for name, of_scheme in schemes(rows).items():
        spreads = [of_rows(of_scheme, quantity) for quantity in quantities]
        numbers = [value for each in spreads for value in (each.mean, each.deviation, each.n)]
        lines.append(
            [
                name,
                of_scheme[0].strategy,
                of_scheme[0].clock,
                len(of_scheme),
                *numbers,
                verdict(of_scheme),
            ]
        )
    write_table(path, ["name", "strategy", "clock", "runs", *columns, "verdict"], lines)
