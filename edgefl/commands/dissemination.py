"""What timely dissemination cost and gave, behind the comparison: only where a scheme asked for
fresher models.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from edgefl.commands import show


def tell(console: Console, paths: Sequence[Path], folder: Path | None = None) -> None:
    """Print the table of the runs in ``paths``; with ``folder``, write dissemination.csv and
    figures/controls.png there.
    """
    from edgefl.reports.dissemination import figures as controls_plot
    from edgefl.reports.dissemination import table as dissemination_table

    costs = dissemination_table.load(paths)
    if costs:
        console.print()
        console.print(dissemination_table.table(costs))
    if folder is None:
        return
    if costs:
        dissemination_table.write_csv(costs, folder / dissemination_table.FILE)
    for path in controls_plot.controls(paths, folder / "figures" / "controls.png")[:1]:
        show.line(f"figure: {path}")
