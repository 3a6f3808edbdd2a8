"""How steps made of K gradients weighed them, behind the comparison: only where a scheme makes
such steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from edgefl.commands import show


def tell(console: Console, paths: Sequence[Path], folder: Path | None = None) -> None:
    """Print the table of the runs in ``paths``; with ``folder``, write aggregation.csv and
    figures/aggregation.png there.
    """
    from edgefl.reports.aggregation import figures as aggregation_plot
    from edgefl.reports.aggregation import table as aggregation_table

    found = aggregation_table.load(paths)
    if not found:
        return
    console.print()
    console.print(aggregation_table.table(found))
    if folder is None:
        return
    aggregation_table.write_csv(found, folder / aggregation_table.FILE)
    for path in aggregation_plot.aggregation(paths, folder / "figures" / "aggregation.png")[:1]:
        show.line(f"figure: {path}")
