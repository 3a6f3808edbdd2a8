"""The reports about distillation: the numbers that a distilling server reports per round."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from edgefl.reports.family import Draw, Family, draw, pictures


class Distillation(Family):
    """A figure of the numbers reported per round."""

    ORDER = 40
    MARK = "teachers"
    FILES = pictures("distillation")
    KINDS = ("distillation",)
    OF = "strategies that distil, such as fedecho"

    def figures(self) -> Mapping[str, Draw]:
        from edgefl.reports.distillation.figures import distillation

        return {"distillation": distillation}

    def leave(self, directories: Sequence[Path], folder: Path) -> list[str]:
        return draw(self, directories, folder, {"distillation": "distillation"})


FAMILY = Distillation()
