"""The reports about distillation: what a server that distils predictions reports of each round."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from edgefl.reports.family import Draw, Family, draw, pictures


class Distillation(Family):
    """A figure of what the rounds reported."""

    ORDER = 40
    MARK = "teachers"
    FILES = pictures("distillation")
    KINDS = ("distillation",)
    OF = "strategies that distil, as fedecho does"

    def figures(self) -> Mapping[str, Draw]:
        from edgefl.reports.distillation.figures import distillation

        return {"distillation": distillation}

    def leave(self, directories: Sequence[Path], folder: Path) -> list[str]:
        return draw(self, directories, folder, {"distillation": "distillation"})


FAMILY = Distillation()
