"""The reports about distillation: the numbers that a distilling server reports per round."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from edgefl.reports.distillation.figures import DistillationPlot
from edgefl.reports.family import Family, draw, pictures
from edgefl.results.figures.base import Plot


class Distillation(Family):
    """A figure of the numbers reported per round."""

    ORDER = 40
    MARK = "teachers"
    FILES = pictures("distillation")

    def plots(self) -> Mapping[str, Plot]:
        return {"distillation": DistillationPlot()}

    def leave(self, directories: Sequence[Path], folder: Path) -> list[str]:
        return draw(self, directories, folder, {"distillation": "distillation"})


FAMILY = Distillation()
