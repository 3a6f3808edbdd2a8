"""The reports by label: whether the model has learned the data of slow devices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from edgefl.record.files import LABELS
from edgefl.reports.by_label.section import by_runtime
from edgefl.reports.family import Draw, Family, draw, pictures
from edgefl.results.rundirs import runs_of


class ByLabel(Family):
    """A figure of the accuracy on the data of each runtime class of devices."""

    ORDER = 50
    MARK = LABELS
    FILES = pictures("runtimes")
    KINDS = ("runtimes",)
    OF = "runs with evaluation.by_label = true"

    def figures(self) -> Mapping[str, Draw]:
        from edgefl.reports.by_label.figures import runtimes

        return {"runtimes": runtimes}

    def leave(self, directories: Sequence[Path], folder: Path) -> list[str]:
        if not any(by_runtime(runs[0]) for each in directories if (runs := runs_of(each))):
            return []
        return draw(self, directories, folder, {"runtimes": "runtimes"})


FAMILY = ByLabel()
