"""Accuracy on the data of each runtime class: whether the model has learned that of slow devices.

It is the sum over labels of (share of the class's samples with this label) x (label's accuracy).
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from edgefl.record.files import EDGES, LABELS
from edgefl.results.families import Family
from edgefl.results.figures.base import (
    STEPS,
    Canvas,
    Plot,
    PlotData,
    PlotStyle,
    Points,
    Runs,
    axis_of,
    percents,
    rows_of_series,
)
from edgefl.results.read import number, read_csv

ALL = "all"  # devices without runtime classes
COLUMNS = ("name", "runtime", "emulated_s", "accuracy")
SLOWER = {"short": 1, "medium": 2, "long": 3}  # by the first word of a runtime class


def by_runtime(run: Path) -> dict[str, Points]:
    """Return accuracy over time by runtime class of edges.csv, sorted by name.

    Labels that the test set lacks do not count. {} for a run without evaluation.by_label.
    """
    held: dict[str, np.ndarray] = {}
    for row in read_csv(run / EDGES):
        counts = np.array([int(row[key]) for key in row if key.startswith("label_")], np.float64)
        name = row["runtime"] or ALL
        held[name] = held[name] + counts if name in held else counts
    rows = sorted(read_csv(run / LABELS), key=lambda row: float(row["emulated_s"]))
    if not rows:
        return {}
    return {
        name: [
            (float(row["emulated_s"]), accuracy)
            for row in rows
            if (accuracy := _accuracy(row, counts)) is not None
        ]
        for name, counts in sorted(held.items())
    }


def _accuracy(row: dict[str, str], counts: np.ndarray) -> float | None:
    """None if no sample has a label that was tested."""
    shares = [number(value) for key, value in row.items() if key.startswith("label_")]
    known = [(share, count) for share, count in zip(shares, counts) if share is not None]
    total = sum(count for _, count in known)
    return sum(share * count for share, count in known) / total if total else None


class RuntimesPlot(Plot):
    """Accuracy on the data of each runtime class of devices, over time; one panel per class."""

    OF = "runs with evaluation.by_label = true"
    LOG = ""

    def data(self, runs: Runs, style: PlotStyle) -> PlotData:
        return PlotData(COLUMNS, rows_of_series(runs, lambda run: by_runtime(run.path)))

    def draw(self, data: PlotData, canvas: Canvas) -> None:
        classes = sorted(
            data.by("runtime"), key=lambda name: (SLOWER.get(name.split()[0], 0), name)
        )
        unit, label = axis_of("emulated_s", max(data["emulated_s"]))
        across = min(len(classes), 3)
        panels = canvas.panels(len(classes), across, 2.2, sharey=True)
        strategies = list(data.by("name"))
        for axes, runtime in zip(panels, classes):
            for place, strategy in enumerate(strategies):
                points = data.where(runtime=runtime, name=strategy)
                x = [t / unit for t in points["emulated_s"]]
                canvas.line(axes, place, strategy, x, points["accuracy"], drawstyle=STEPS)
            axes.set_title(f"what {runtime} devices hold", fontsize=7)
            axes.set_xlabel(label)
            axes.set_ylim(0, 1)
            percents(axes)
        for axes in panels[::across] if canvas.is_page else panels:
            axes.set_ylabel("Accuracy by label, weighted")
        canvas.legend(panels[0])


FAMILY = Family(
    "by_label",
    order=50,
    mark=LABELS,
    plots={"runtimes": RuntimesPlot()},
    pictures={"runtimes": "runtimes"},
)
