"""The reports about aggregation: how server steps weighed their K gradients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgefl.record.files import EDGES, EVENTS
from edgefl.reports.aggregation import section as steps
from edgefl.reports.aggregation.figures import AggregationPlot
from edgefl.reports.family import Family, draw, pictures
from edgefl.results.figures.base import Plot
from edgefl.results.tail import read_csv, read_events

if TYPE_CHECKING:
    from rich.table import Table


class Aggregation(Family):
    """A table, a CSV file and a figure about the weights of gradients."""

    ORDER = 20
    MARK = steps.MARK
    FILES = ("aggregation.csv", *pictures("aggregation"))

    def section(self, run: Path, emulated_s: float) -> dict[str, Any] | None:
        events = read_events(run / EVENTS)
        found, shares = steps.section(steps.steps(events)), steps.shares(events)
        if found is None:
            return None
        held = steps.labels_held(read_csv(run / EDGES)) if shares else {}
        return {**found, **steps.of_shares(shares, held)}

    def table(self, directories: Sequence[Path]) -> Table | None:
        from edgefl.reports.aggregation import table

        found = table.load(directories)
        return table.table(found) if found else None

    def plots(self) -> Mapping[str, Plot]:
        return {"aggregation": AggregationPlot()}

    def leave(self, directories: Sequence[Path], folder: Path) -> list[str]:
        from edgefl.reports.aggregation import table

        found = table.load(directories)
        if not found:
            return []
        table.write_csv(found, folder / table.FILE)
        return draw(self, directories, folder, {"aggregation": "aggregation"})


FAMILY = Aggregation()
