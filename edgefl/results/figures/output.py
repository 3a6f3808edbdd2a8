"""From a figure's numbers to its files."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from edgefl.errors import needs
from edgefl.results.compare import replace_file
from edgefl.results.figures.base import Plot, PlotData, Runs
from edgefl.results.figures.style import PlotStyle

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LEFT = ("png", "pdf")  # the formats that a run leaves
DATES = {"png": "Software", "pdf": "CreationDate", "svg": "Date"}  # left out of the files


def drawn(plot: Plot, numbers: PlotData, style: PlotStyle) -> Figure:
    """Return the figure of these numbers, which ``plot.data`` has returned and which has rows."""
    with needs("lab", "a figure"):
        import matplotlib

        from edgefl.results.figures.canvas import STYLE, Canvas
    with matplotlib.rc_context(STYLE):
        canvas = Canvas(style, plot.WIDTH)
        plot.draw(numbers, canvas)
        return canvas.finish()


def rendered(figure: Figure, form: str) -> bytes:
    """Return the figure as "png", "pdf" or "svg", without a date: the same bytes each time."""
    import matplotlib

    from edgefl.results.figures.canvas import STYLE

    content = io.BytesIO()
    with matplotlib.rc_context(STYLE):
        figure.savefig(content, format=form, metadata={DATES[form]: None})
    return content.getvalue()


def save(figure: Figure, out: Path, forms: Sequence[str]) -> list[Path]:
    """Write a figure as ``out`` with the suffix of each format added; return the files."""
    paths = [out.with_name(f"{out.name}.{form}") for form in forms]
    for path, form in zip(paths, forms):
        replace_file(path, rendered(figure, form))
    return paths


def left(plot: Plot, runs: Runs, out: Path) -> list[Path]:
    """Write the figure as a run leaves it; return the PNG file, or [] if no run has it."""
    own = PlotStyle()
    numbers = plot.data(runs, own)
    return save(drawn(plot, numbers, own), out, LEFT)[:1] if numbers.rows else []
