"""Accuracy on the data of each runtime class: whether the model has learned that of slow devices.

It is the sum over labels of (share of the class's samples with this label) x (label's accuracy).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from edgefl.record.files import EDGES, LABELS
from edgefl.reports.family import Family, draw, pictures
from edgefl.results.figures.base import Plot, PlotData, Runs, rows_of_series
from edgefl.results.figures.curves import STEPS
from edgefl.results.figures.style import PlotStyle
from edgefl.results.rundirs import runs_of
from edgefl.results.summary import number
from edgefl.results.tail import read_csv

if TYPE_CHECKING:
    from edgefl.results.figures.canvas import Canvas

ALL = "all"  # devices without runtime classes

Points = list[tuple[float, float]]  # (emulated s, accuracy)


def by_runtime(run: Path) -> dict[str, Points]:
    """Return accuracy over time by runtime class of edges.csv, sorted by name.

    {} for a run without evaluation.by_label.
    """
    held: dict[str, np.ndarray] = {}
    for row in read_csv(run / EDGES):
        counts = np.array(
            [int(value) for key, value in row.items() if key.startswith("label_")], dtype=np.float64
        )
        name = row["runtime"] or ALL
        held[name] = held[name] + counts if name in held else counts
    rows = sorted(read_csv(run / LABELS), key=lambda row: float(row["emulated_s"]))
    return (
        {
            name: [(float(row["emulated_s"]), _accuracy(row, counts)) for row in rows]
            for name, counts in sorted(held.items())
        }
        if rows
        else {}
    )


def _accuracy(row: dict[str, str], counts: np.ndarray) -> float:
    """Return the weighted accuracy over the labels that the test set has."""
    known = [number(value) for key, value in row.items() if key.startswith("label_")]
    pairs = [(share, count) for share, count in zip(known, counts) if share is not None]
    return sum(share * count for share, count in pairs) / max(sum(count for _, count in pairs), 1.0)


COLUMNS = ("name", "runtime", "emulated_s", "accuracy")
# order of the panels, by the first word of a runtime class
SLOWER = {"short": 1, "medium": 2, "long": 3}


class RuntimesPlot(Plot):
    """Accuracy on the data of each runtime class of devices, over time; one panel per class."""

    OF = "runs with evaluation.by_label = true"
    LOG = ""

    def data(self, runs: Runs, style: PlotStyle) -> PlotData:
        return PlotData(COLUMNS, rows_of_series(runs, lambda run: by_runtime(run.path)))

    def draw(self, data: PlotData, canvas: Canvas) -> None:
        from matplotlib.ticker import PercentFormatter

        from edgefl.results.figures.canvas import axis_of, marked

        classes = sorted(data.by("runtime"), key=_slowness)
        unit, label = axis_of("emulated_s", max(data["emulated_s"]))
        across = min(len(classes), 3)
        panels = canvas.panels(len(classes), across, 2.2, sharey=True)
        schemes = list(data.by("name"))
        for axes, runtime in zip(panels, classes):
            of_class = data.where(runtime=runtime)
            for place, scheme in enumerate(schemes):
                points = of_class.where(name=scheme)
                x = [t / unit for t in points["emulated_s"]]
                text = canvas.text(scheme)
                axes.plot(x, points["accuracy"], label=text, drawstyle=STEPS, **marked(place))
            axes.set_title(f"what {runtime} devices hold", fontsize=7)
            axes.set_xlabel(label)
            axes.set_ylim(0, 1)
            axes.yaxis.set_major_formatter(PercentFormatter(1.0))
        for axes in panels[::across] if canvas.is_page else panels:
            axes.set_ylabel("Accuracy by label, weighted")
        canvas.legend(panels[0])


def _slowness(runtime: str) -> tuple[int, str]:
    return SLOWER.get(runtime.split()[0], 0), runtime


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
