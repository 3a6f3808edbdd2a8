"""The end of every run: the table, CSV files and figure of the runs with results."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from edgefl.commands import show
from edgefl.commands.resume import go_on
from edgefl.config.experiment import Experiment

if TYPE_CHECKING:
    from edgefl.results.compare import Row


def conclude(experiment: Experiment, folder: Path) -> list[Row]:
    """Compare the strategies of the experiment that have results, and return their runs."""
    from edgefl.reports import gallery
    from edgefl.reports.family import drawable, families
    from edgefl.results import compare, rundirs, table

    schemes = [
        scheme for entry in experiment.strategies if rundirs.runs_of(scheme := folder / entry.name)
    ]
    rows = compare.load(*schemes)
    again = go_on(folder, experiment)
    if not rows:
        if again:  # all runs were killed early
            show.hint(again)
        return []
    console = Console()
    console.print(table.table(rows, console.width))
    compare.write_csv(rows, folder / "comparison.csv")
    if len(experiment.by_seed()) > 1:
        compare.write_seeds_csv(rows, folder / "comparison_seeds.csv")
    if drawable():
        for path in gallery.leave(schemes, {"accuracy": folder / "figures" / "accuracy"}):
            show.line(f"figure: {path}")
    else:
        show.line("no figures: matplotlib is not installed: pip install 'edgefl[lab]'")
    for family in families().values():
        show.table(console, family.table(schemes))
        for line in family.leave(schemes, folder):
            show.line(line)
    if again:
        show.hint(again)
    else:
        show.hint_about("compare", [folder])
    return rows
