"""The second table of ``edgefl compare``: intervals over seeds, and effects over the baseline."""

from __future__ import annotations

from rich.table import Table
from rich.text import Text

from edgefl.results.comparison import Comparison
from edgefl.results.grid import MISSING, grid
from edgefl.results.plain_table import plain_table

# (column of the grid, those whose cells stand below it, and what is written before them)
STACKS = (
    ("accuracy", (("accuracy_interval", ""),)),
    ("gain", (("gain_interval", ""), ("gain_p", "p "))),
    ("to_target", (("to_target_interval", ""),)),
    ("speed_up", (("speed_up_interval", ""), ("speed_up_p", "p "))),
)
NARROWEST_NAME = 8


def table(comparison: Comparison) -> Table:
    """Return one line per scheme: number, interval and p stand one below the other."""
    found = grid(comparison).columns
    baseline = comparison.baseline
    shown = plain_table("Over seeds" if baseline is None else f"Against {baseline}", gap=1)
    shown.add_column("strategy\n", overflow="fold", min_width=NARROWEST_NAME)
    columns = [found["name"].cells]
    if "seeds" in found:
        shown.add_column("seeds\n", justify="right")
        columns.append(found["seeds"].cells)
    for key, below in STACKS:
        if key not in found:
            continue
        heading = found[key].heading.replace(", ", "\n").replace(" vs ", "\nvs ")
        shown.add_column(heading if "\n" in heading else f"{heading}\n", justify="right")
        stacks = [(before, found[each].cells) for each, before in below if each in found]
        columns.append(
            tuple(
                "\n".join([cell, *_below([(before, cells[place]) for before, cells in stacks])])
                for place, cell in enumerate(found[key].cells)
            )
        )
    for cells in zip(*columns):
        shown.add_row(*map(Text, cells))
    return shown


def _below(cells: list[tuple[str, str]]) -> list[str]:
    return [f"{before}{cell}" for before, cell in cells if cell != MISSING]
