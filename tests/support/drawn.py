"""Figures of hand-made numbers, for tests that look at their axes."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from edgefl.results.figures import gallery
from edgefl.results.figures.base import PlotData, PlotStyle, drawn, open_runs


def of_rows(kind: str, columns: Iterable[str], rows: Iterable[Any], **style: Any) -> Figure:
    """Return the figure of a kind from these numbers."""
    numbers = PlotData(tuple(columns), [tuple(row) for row in rows])
    return drawn(gallery.find(kind), numbers, PlotStyle(**style))


def of_runs(kind: str, *folders: Path, **style: Any) -> Figure:
    """Return the figure of a kind from the runs in these folders."""
    own = PlotStyle(**style)
    return drawn(gallery.find(kind), gallery.data(kind, open_runs(folders), own), own)


def available(folder: Path) -> list[str]:
    """Return the kinds of figures that the runs in a folder have."""
    return [kind for kind, reason in gallery.missing(open_runs([folder])).items() if not reason]
