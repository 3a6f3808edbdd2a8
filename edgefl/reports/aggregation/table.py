"""The aggregation table for the terminal, one line per scheme, and aggregation.csv."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
from rich.table import Table
from rich.text import Text

from edgefl.results import rundirs
from edgefl.results.compare import write_table
from edgefl.results.plain_table import plain_table
from edgefl.results.spread import spread

FILE = "aggregation.csv"
NUMBERS = (
    "convergence_accuracy",
    "stability",
    "steps",
    "tau_ave",
    "n_ave",
    "selected_ave",
    "clipped_share",
    "stage_two_version",
)
COLUMNS = ("name", "seed", *NUMBERS, "predominant")
OF_SHARES = ("effective_ave", "largest_label_ave")  # only of runs with ``report_shares``


@dataclass(frozen=True, slots=True)
class AggregationRow:
    """The summary.json (``facts``) of a run that has an "aggregation" section."""

    name: str
    seed: int | None
    facts: dict[str, Any]

    def value(self, key: str) -> Any:
        return self.facts.get(key, self.facts["aggregation"].get(key))


def load(paths: Sequence[Path]) -> list[AggregationRow]:
    """Load the finished runs in ``paths`` or below that have an "aggregation".

    UserError if a path holds no run.
    """
    return [
        found
        for name, runs in rundirs.find(paths).items()
        for run in runs
        if (found := _load_run(name, run)) is not None
    ]


def _load_run(name: str, run: Path) -> AggregationRow | None:
    try:
        facts = orjson.loads((run / "summary.json").read_bytes())
    except (FileNotFoundError, orjson.JSONDecodeError):
        return None
    if not isinstance(facts, dict):
        return None
    return (
        AggregationRow(name, facts.get("seed"), facts)
        if isinstance(facts.get("aggregation"), dict)
        else None
    )


def write_csv(found: Sequence[AggregationRow], path: Path) -> None:
    """Write one row per run; ``predominant`` is like "1:40 2:17", gradients:steps.

    OF_SHARES are columns only if a run has them.
    """
    more = OF_SHARES if any(OF_SHARES[0] in each.facts["aggregation"] for each in found) else ()
    rows = [
        [
            each.name,
            each.seed,
            *(each.value(key) for key in NUMBERS),
            _histogram(each.value("predominant")),
            *(each.value(key) for key in more),
        ]
        for each in found
    ]
    write_table(path, (*COLUMNS, *more), rows)


def table(found: Sequence[AggregationRow]) -> Table:
    """Return a table for 80 columns: mean and deviation over the seeds of each scheme."""
    schemes: dict[str, list[AggregationRow]] = {}
    for each in found:
        schemes.setdefault(each.name, []).append(each)
    shown = plain_table("Aggregation")
    shown.add_column("strategy\n", overflow="fold", min_width=min(12, max(map(len, schemes))))
    columns = _columns(schemes)
    for heading in columns:
        shown.add_column(heading, justify="right", no_wrap=True)
    for name, *cells in zip(schemes, *columns.values()):
        shown.add_row(Text(name), *cells)
    return shown


def _columns(schemes: dict[str, list[AggregationRow]]) -> dict[str, list[str]]:
    """Return for each heading the cells, one per scheme."""

    def cells(key: str, form: Callable[[float], str]) -> list[str]:
        return [_cell([each.value(key) for each in runs], form) for runs in schemes.values()]

    return {
        "acc.\nlast 10 %": cells("convergence_accuracy", "{:.3f}".format),
        "stability\nlast 10": cells("stability", "{:.4f}".format),
        "steps\n": cells("steps", "{:.0f}".format),
        "tau\nave": cells("tau_ave", "{:.1f}".format),
        "N\nave": cells("n_ave", "{:.1f}".format),
        "selected\nave": cells("selected_ave", "{:.1f}".format),
        "clipped\n%": cells("clipped_share", lambda share: f"{100 * share:.0f}"),
        "stage 2\nversion": cells("stage_two_version", "{:.0f}".format),
    }


def _cell(values: Sequence[float | None], form: Callable[[float], str]) -> str:
    """Return the mean above its deviation, or "N of M" if not all runs have the number."""
    over = spread(values)
    if over.mean is None:
        return f"{over.n} of {over.of}" if over.n else "-"
    return (
        form(over.mean) if over.deviation is None else f"{form(over.mean)}\n±{form(over.deviation)}"
    )


def _histogram(counts: dict[str, int]) -> str:
    return " ".join(f"{count}:{steps}" for count, steps in counts.items())
