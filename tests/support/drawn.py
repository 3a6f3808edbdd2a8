"""Figures of hand-made numbers, for tests that look at their axes."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from edgefl.reports import gallery
from edgefl.results.figures.base import PlotData, drawn, open_runs
from edgefl.results.figures.style import PlotStyle


def of_rows(kind: str, columns: Iterable[str], rows: Iterable[Any], **style: Any) -> Figure:
    """Return the figure of a kind from these numbers."""
    numbers = PlotData(tuple(columns), [tuple(row) for row in rows])
    return drawn(gallery.find(kind), numbers, PlotStyle(**style))


def of_runs(kind: str, *folders: Path, **style: Any) -> Figure:
    """Return the figure of a kind from the runs in these folders."""
    return gallery.draw(kind, open_runs(folders), PlotStyle(**style))
