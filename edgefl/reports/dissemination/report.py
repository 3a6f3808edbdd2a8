"""The reports about dissemination: cost and effect of asking for fresher models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgefl.record.files import EVENTS, LINKS
from edgefl.reports.dissemination import section as costs
from edgefl.reports.dissemination.figures import ControlsPlot, RefreshPointsPlot
from edgefl.reports.family import Family, draw, pictures
from edgefl.results.figures.base import Plot
from edgefl.results.tail import read_csv, read_events

if TYPE_CHECKING:
    from rich.table import Table


class Dissemination(Family):
    """A table and a CSV file of the costs, and a figure of the learned parameters."""

    ORDER = 10
    MARK = costs.MARK
    FILES = ("dissemination.csv", *pictures("controls"))

    def section(self, run: Path, emulated_s: float) -> dict[str, Any] | None:
        return costs.section(read_events(run / EVENTS), read_csv(run / LINKS), emulated_s)

    def table(self, directories: Sequence[Path]) -> Table | None:
        from edgefl.reports.dissemination import table

        found = table.load(directories)
        return table.table(found) if found else None

    def plots(self) -> Mapping[str, Plot]:
        return {"controls": ControlsPlot(), "refresh-points": RefreshPointsPlot()}

    def leave(self, directories: Sequence[Path], folder: Path) -> list[str]:
        from edgefl.reports.dissemination import table

        if found := table.load(directories):
            table.write_csv(found, folder / table.FILE)
        return draw(self, directories, folder, {"controls": "controls"})


FAMILY = Dissemination()
