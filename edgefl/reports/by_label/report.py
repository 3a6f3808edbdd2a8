"""The reports by label: whether the model has learned the data of slow devices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from edgefl.record.files import LABELS
from edgefl.reports.by_label.figures import RuntimesPlot
from edgefl.reports.by_label.section import by_runtime
from edgefl.reports.family import Family, draw, pictures
from edgefl.results.figures.base import Plot
from edgefl.results.rundirs import runs_of


class ByLabel(Family):
    """A figure of the accuracy on the data of each runtime class of devices."""

    ORDER = 50
    MARK = LABELS
    FILES = pictures("runtimes")

    def plots(self) -> Mapping[str, Plot]:
        return {"runtimes": RuntimesPlot()}

    def leave(self, directories: Sequence[Path], folder: Path) -> list[str]:
        if not any(by_runtime(runs[0]) for each in directories if (runs := runs_of(each))):
            return []
        return draw(self, directories, folder, {"runtimes": "runtimes"})


FAMILY = ByLabel()
