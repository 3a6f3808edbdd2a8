"""A comparison as rows of numbers, for CSV and Parquet files."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from edgefl.errors import needs
from edgefl.results import spread
from edgefl.results.compare import Row, is_told, replace_file, write_table
from edgefl.results.comparison import ComparedScheme, Comparison, SeedEstimate
from edgefl.results.differences import told
from edgefl.results.effects import PairedEffect

Record = Mapping[str, Any]


def of_schemes(comparison: Comparison) -> list[Record]:
    """Return a row per scheme: what comparison_seeds.csv has, then the answer, unrounded.

    ``_low`` and ``_high`` are the 95 % interval. ``gain``: the difference of accuracies. ``bound``:
    the speed-up is larger (">") or smaller ("<") than the number.
    """
    return [_of_scheme(comparison, scheme) for scheme in comparison.schemes]


def _of_scheme(comparison: Comparison, scheme: ComparedScheme) -> Record:
    numbers: dict[str, Any] = {}
    for quantity in spread.QUANTITIES:
        if is_told(quantity, comparison.rows):
            over = spread.of_rows(scheme.rows, quantity)
            numbers |= {
                f"{quantity}_mean": over.mean,
                f"{quantity}_std": over.deviation,
                f"{quantity}_n": over.n,
            }
    return {
        "name": scheme.name,
        "strategy": scheme.rows[0].strategy,
        "clock": scheme.rows[0].clock,
        "runs": len(scheme.rows),
        **numbers,
        "accuracy": comparison.question.accuracy,
        **_of_estimate("accuracy", scheme.accuracy),
        "x": comparison.axis.name,
        "target": comparison.target,
        **_of_estimate("to_target", scheme.to_target),
        "baseline": comparison.baseline,
        **_of_effect("gain", scheme.gain),
        **_of_effect("speed_up", scheme.speed_up),
        "bound": scheme.speed_up.bound if scheme.speed_up else "",
        "differs": told(scheme.differs),
        "verdict": scheme.verdict,
    }


def _of_estimate(name: str, estimate: SeedEstimate) -> Record:
    found = estimate.interval
    return {
        f"{name}_mean": estimate.spread.mean,
        f"{name}_std": estimate.spread.deviation,
        f"{name}_n": estimate.spread.n,
        f"{name}_low": None if found is None else found.low,
        f"{name}_high": None if found is None else found.high,
        f"{name}_method": None if found is None else found.method,
    }


def _of_effect(name: str, effect: PairedEffect | None) -> Record:
    found = PairedEffect(0, 0) if effect is None else effect
    return {
        name: found.size,
        f"{name}_low": None if found.interval is None else found.interval.low,
        f"{name}_high": None if found.interval is None else found.interval.high,
        f"{name}_p": None if found.test is None else found.test.p,
        f"{name}_p_adjusted": found.adjusted,
        f"{name}_pairs": found.pairs,
        f"{name}_test": None if found.test is None else found.test.method,
    }


def of_runs(comparison: Comparison) -> list[Record]:
    """Return a row per run: what comparison.csv has, then x at the target."""
    return [
        {
            **{
                field.name: getattr(row, field.name)
                for field in fields(Row)
                if is_told(field.name, comparison.rows)
            },
            "x": comparison.axis.name,
            "target": comparison.target,
            "to_target": reached.x,
            "differs": told(scheme.differs),
        }
        for scheme in comparison.schemes
        for row, reached in zip(scheme.rows, scheme.reached)
    ]


def write_csv(records: Sequence[Record], path: Path) -> None:
    """Write a CSV file; None is an empty field."""
    write_table(path, list(records[0]), ([*record.values()] for record in records))


def write_parquet(records: Sequence[Record], path: Path) -> None:
    """Write a Parquet file; a column of whole numbers with gaps keeps them whole."""
    with needs("export", "--parquet"):
        import pyarrow
        import pyarrow.parquet

    columns = {name: pyarrow.array([record[name] for record in records]) for name in records[0]}
    for name, column in columns.items():
        if pyarrow.types.is_null(column.type):  # no run has the number: still a number
            columns[name] = column.cast(pyarrow.float64())
    data = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.table(columns), data)
    replace_file(path, data.getvalue())
