"""The figures of a report, each as an image that is part of the file."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from edgefl.errors import UserError
from edgefl.reports import gallery
from edgefl.results.figures.base import Plot, PlotData, open_runs
from edgefl.results.figures.output import drawn, rendered
from edgefl.results.figures.style import PlotStyle

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_SVG = 1_000_000  # bytes; a larger figure, of very many points, becomes a PNG
MOST_CSV = 1_000_000  # bytes; the numbers behind a figure that has more are left out
KINDS = {"svg": "image/svg+xml", "png": "image/png"}


@dataclass(frozen=True, slots=True)
class EmbeddedFigure:
    """``image`` and ``numbers`` (a CSV file, "" if it is too large) are addresses that hold the
    data. ``width``: "column" or "page".
    """

    kind: str
    title: str
    width: str
    image: str
    numbers: str


def figures(paths: Sequence[Path], target: float | None) -> tuple[list[EmbeddedFigure], list[str]]:
    """Draw every figure that the runs in ``paths`` have data for.

    ``target``: an accuracy in place of the runs' own.

    Return the figures, and a sentence about each that these runs cannot have.
    """
    runs, own = open_runs(paths), PlotStyle(target=target)
    found, left_out = [], []
    for kind, plot in gallery.plots().items():
        try:
            numbers = plot.data(runs, own)
        except UserError as error:
            left_out.append(f"{kind}: {error}")
            continue
        if numbers.rows:
            figure = drawn(plot, numbers, own)
            found.append(_embedded(kind, plot, figure, _numbers(numbers)))
    return found, left_out


def _numbers(data: PlotData) -> bytes:
    """The numbers as CSV; b"" if that is too large."""
    found = b""
    for piece in data.csv_pieces():
        found += piece.encode()
        if len(found) > MOST_CSV:
            return b""
    return found


def _embedded(kind: str, plot: Plot, figure: Figure, numbers: bytes) -> EmbeddedFigure:
    form, image = "svg", rendered(figure, "svg")
    if len(image) > MOST_SVG:
        form, image = "png", rendered(figure, "png")
    return EmbeddedFigure(
        kind=kind,
        title=plot.about,
        width=plot.WIDTH,
        image=data_uri(image, KINDS[form]),
        numbers=data_uri(numbers, "text/csv") if numbers else "",
    )


def data_uri(data: bytes, kind: str) -> str:
    """Return ``data`` as an address that holds it."""
    return f"data:{kind};base64,{base64.b64encode(data).decode('ascii')}"
