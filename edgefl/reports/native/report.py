"""The reports about native links and devices: a row per edge, and native.csv."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgefl.record.files import MEASURED
from edgefl.reports.family import Family
from edgefl.results import measured

if TYPE_CHECKING:
    from rich.table import Table


class NativeReport(Family):
    """A table and a CSV file of goodput, round trips and training speed by edge."""

    ORDER = 60
    MARK = MEASURED
    FILES = ("native.csv",)

    def section(self, run: Path, emulated_s: float) -> dict[str, Any] | None:
        return measured.section(measured.measured(run))

    def table(self, directories: Sequence[Path]) -> Table | None:
        from edgefl.reports.native import edge_table

        found = edge_table.load(directories)
        return edge_table.table(found) if found else None

    def leave(self, directories: Sequence[Path], folder: Path) -> list[str]:
        from edgefl.reports.native import edge_table

        found = edge_table.load(directories)
        if not found:
            return []
        edge_table.write_csv(found, folder / self.FILES[0])
        return [
            f"native links and devices by edge: {folder / self.FILES[0]}",
            f"the same with emulated ones: edgefl profile {directories[0]}",
        ]


FAMILY = NativeReport()
