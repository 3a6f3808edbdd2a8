"""``--list``: a table of all entries, and how much of each is done."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from rich.console import Console

from edgefl.results.forms import plain_table
from reproduction.entry import Entry, Scale
from reproduction.papers import PAPERS
from reproduction.results import RESULT
from reproduction.tables import Tables

FOLDED = ("source", "title", "needs")  # columns of long texts
WIDTH = 160  # of a table in a file or a pipe


def show(entries: Iterable[Entry], data: Path) -> None:
    """Print the entries: expected CPU-hours, and done runs of all runs of their tables."""
    table = plain_table(gap=1)
    for name in ("entry", "paper", "source", "title", "scale", "CPU-h", "runs", "needs"):
        table.add_column(
            name,
            justify="right" if name in ("CPU-h", "runs") else "left",
            overflow="fold",
            no_wrap=name not in FOLDED,
        )
    for entry in entries:
        tables = Tables(data, entry)
        page = PAPERS[entry.paper].page
        for scale in Scale:
            first = scale is Scale.small
            head = (entry.name, page, entry.source, entry.title) if first else ("",) * 4
            needs = ", ".join(entry.data) if first else entry.needs
            table.add_row(*head, str(scale), *_of_scale(tables, scale), needs)
    console = Console()
    if not console.is_terminal:
        console.width = WIDTH
    console.print(table)


def _of_scale(tables: Tables, scale: Scale) -> tuple[str, str]:
    """Return (expected CPU-hours, "done/all runs of the table")."""
    entry = tables.entry
    hours = entry.hours.get(scale)
    done = sum(row.scale is scale and row.role == RESULT for row in tables.rows)
    parts = [part for part in entry.parts if scale in part.scales]
    runs = sum(len(part.methods) * len(part.seeds_at(scale)) for part in parts)
    return "" if hours is None else f"{hours:g}", f"{done}/{runs}"
