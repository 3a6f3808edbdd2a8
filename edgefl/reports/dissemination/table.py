"""The dissemination table for the terminal, one line per scheme, and dissemination.csv."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import orjson
from rich.table import Table
from rich.text import Text

from edgefl.reports.dissemination.section import negligible
from edgefl.results import rundirs
from edgefl.results.compare import byte_unit, write_table
from edgefl.results.plain_table import plain_table

FILE = "dissemination.csv"
STALENESS = ("staleness_before", "staleness_after")
NUMBERS = (
    "requests",
    "newer",
    "merges",
    "too_late",
    "unanswered",
    "waiting_total_s",
    "waiting_mean_s",
    "extra_bytes_down",
    "extra_bytes_up",
    "use_up",
    "use_down",
    "beta_median",
)
COLUMNS = (
    "name",
    "seed",
    *NUMBERS,
    *(f"{key}_{of}" for key in STALENESS for of in ("mean", "median")),
    "refresh_points",
    "note",
)


@dataclass(frozen=True, slots=True)
class Cost:
    """One run's "dissemination" section, its scheme's name and all its downlink bytes."""

    name: str
    seed: int | None
    bytes_down: int
    section: dict[str, Any]

    def value(self, key: str) -> float | None:
        """Return a number of the section; "A_mean" is the "mean" of its subsection A."""
        if key in self.section:
            return self.section[key]
        outer, _, inner = key.rpartition("_")
        return (self.section.get(outer) or {}).get(inner)

    @property
    def more_down(self) -> float:
        """Extra downlink bytes, as a share of the bytes that go down without requests."""
        extra = self.section["extra_bytes_down"]
        return extra / max(1, self.bytes_down - extra)


def load(paths: Sequence[Path]) -> list[Cost]:
    """Load the finished runs in ``paths`` or below in which a device asked.

    UserError if a path holds no run.
    """
    return [
        cost
        for name, runs in rundirs.find(paths).items()
        for run in runs
        if (cost := _load_run(name, run)) is not None
    ]


def _load_run(name: str, run: Path) -> Cost | None:
    try:
        facts = orjson.loads((run / "summary.json").read_bytes())
    except (FileNotFoundError, orjson.JSONDecodeError):
        return None
    section = facts.get("dissemination") if isinstance(facts, dict) else None
    if not isinstance(section, dict) or not section:
        return None
    if "slots" in section:  # the old name of refresh points in summary.json
        section["refresh_points"] = section.pop("slots")
    return Cost(name, facts.get("seed"), facts.get("bytes_down", 0), section)


def write_csv(costs: Sequence[Cost], path: Path) -> None:
    """Write one row per run; ``refresh_points`` is like "1:4 2:17", point:requests."""
    write_table(path, COLUMNS, [[_field(cost, column) for column in COLUMNS] for cost in costs])


def _field(cost: Cost, column: str) -> Any:
    if column in ("name", "seed"):
        return getattr(cost, column)
    return _refresh_points([cost]) if column == "refresh_points" else cost.value(column)


def table(costs: Sequence[Cost]) -> Table:
    """Return a table for 80 columns with the means over the seeds of each scheme.

    Requests without an answer have a column if there are any. Lines below the table list the
    refresh points, models that came too late, and negligible merging.
    """
    schemes: dict[str, list[Cost]] = {}
    for cost in costs:
        schemes.setdefault(cost.name, []).append(cost)
    notes = [
        f"{name}: {note}"
        for name, runs in schemes.items()
        if (note := negligible(mean(runs, "beta_median")))
    ]
    late = [
        f"{name}: {count:.4g} fresher models came too late to be merged"
        for name, runs in schemes.items()
        if (count := mean(runs, "too_late"))
    ]
    points = [
        Text(
            f"{name}, requests by refresh point (finished epochs): {_refresh_points(runs)}",
            style="dim",
        )
        for name, runs in schemes.items()
        if _refresh_points(runs)
    ]
    shown = plain_table("Dissemination")
    shown.caption = Text("\n").join(
        [*(Text(note, style="yellow") for note in notes), *map(Text, late), *points]
    )
    columns = _columns(schemes)
    shown.add_column("strategy\n", overflow="fold", min_width=min(12, max(map(len, schemes))))
    for heading in columns:
        shown.add_column(heading, justify="right", no_wrap=True)
    for name, *cells in zip(schemes, *columns.values()):
        shown.add_row(Text(name), *cells)
    return shown


def _columns(schemes: dict[str, list[Cost]]) -> dict[str, list[str]]:
    """Return for each heading the cells, one per scheme."""
    size, unit = byte_unit(
        max(cost.section["extra_bytes_down"] for runs in schemes.values() for cost in runs)
    )

    def cells(key: str, form: Callable[[float], str]) -> list[str]:
        return [_form(mean(runs, key), form) for runs in schemes.values()]

    def pairs(before: str, after: str, form: Callable[[float], str]) -> list[str]:
        return [f"{old}/{new}" for old, new in zip(cells(before, form), cells(after, form))]

    unanswered = {"no\nreply": cells("unanswered", "{:.4g}".format)}
    return {
        "asked\n": cells("requests", "{:.4g}".format),
        "newer\n": cells("newer", "{:.4g}".format),
        "merged\n": cells("merges", "{:.4g}".format),
        **(unanswered if any(mean(runs, "unanswered") for runs in schemes.values()) else {}),
        "wait\nmean s": cells("waiting_mean_s", "{:.3g}".format),
        f"extra\ndown {unit}": cells("extra_bytes_down", lambda value: f"{value / size:.3g}"),
        "which\nis": [
            f"+{100 * fmean(cost.more_down for cost in runs):.0f}%" for runs in schemes.values()
        ],
        "use %\nup/down": pairs("use_up", "use_down", _percent),
        "stale\nfrom/to": pairs("staleness_before_mean", "staleness_after_mean", "{:.1f}".format),
        "beta\nmed.": cells("beta_median", "{:.2g}".format),
    }


def mean(runs: Sequence[Cost], key: str) -> float | None:
    """Return the mean over the runs that have the number; None if none has."""
    values = [value for cost in runs if (value := cost.value(key)) is not None]
    return fmean(values) if values else None


def _refresh_points(runs: Sequence[Cost]) -> str:
    counts: Counter[str] = Counter()
    for cost in runs:
        counts.update(cost.section["refresh_points"])
    return " ".join(f"{point}:{counts[point]}" for point in sorted(counts, key=int))


def _form(value: float | None, form: Callable[[float], str]) -> str:
    return "-" if value is None else form(value)


def _percent(share: float) -> str:
    """Format a share as percent with two digits: 17, 10, 9.9."""
    if share < 0.001:
        return "<0.1" if share else "0"
    rounded = f"{100 * share:.1f}"
    return rounded if float(rounded) < 10 else f"{100 * share:.0f}"
