"""What each kind of figure derives from: its numbers, the runs' files, and the files of a figure.

No file of this folder imports matplotlib at its top, since a base install has none.
"""

from __future__ import annotations

import csv
import io
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgefl.errors import needs
from edgefl.results import rundirs
from edgefl.results.compare import replace_file
from edgefl.results.figures.style import PlotStyle
from edgefl.results.run_files import RunFiles

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from edgefl.results.figures.canvas import Canvas

ROWS_AT_ONCE = 5000


@dataclass(frozen=True, slots=True)
class PlotData:
    """The numbers behind a figure, as a table; a figure is drawn from nothing else.

    A cell is a text, a number or None. Times are in emulated seconds, sizes in bytes, shares from 0
    to 1.
    """

    columns: tuple[str, ...]
    rows: list[tuple[Any, ...]]

    def __getitem__(self, column: str) -> list[Any]:
        """Return the values of a column."""
        place = self.columns.index(column)
        return [row[place] for row in self.rows]

    def by(self, column: str) -> dict[Any, PlotData]:
        """Return the rows of each value of a column, in the order of their first rows."""
        place = self.columns.index(column)
        found: dict[Any, list[tuple[Any, ...]]] = {}
        for row in self.rows:
            if (rows := found.get(row[place])) is None:
                rows = found[row[place]] = []
            rows.append(row)
        return {value: PlotData(self.columns, rows) for value, rows in found.items()}

    def where(self, **values: Any) -> PlotData:
        """Return the rows that have these values."""
        wanted = [(self.columns.index(column), value) for column, value in values.items()]
        rows = [row for row in self.rows if all(row[at] == value for at, value in wanted)]
        return PlotData(self.columns, rows)

    def csv(self) -> str:
        """Return the table as CSV with a header; None is an empty field."""
        return "".join(self.csv_pieces())

    def csv_pieces(self) -> Iterator[str]:
        """Yield what ``csv`` returns, so that who finds it too long can stop."""
        for first in range(0, len(self.rows) or 1, ROWS_AT_ONCE):
            text = io.StringIO()
            writer = csv.writer(text, lineterminator="\n")
            if not first:
                writer.writerow(self.columns)
            writer.writerows(self.rows[first : first + ROWS_AT_ONCE])
            yield text.getvalue()


Runs = Mapping[str, Sequence[RunFiles]]  # of each scheme, by seed


def open_runs(directories: Sequence[Path]) -> Runs:
    """Return the runs of each scheme in ``directories`` by display name; see ``rundirs.find``."""
    found = rundirs.find(directories)
    return {name: [RunFiles(path) for path in paths] for name, paths in found.items()}


def first_seeds(runs: Runs) -> Iterator[tuple[str, RunFiles]]:
    """Yield the name and the first run of each scheme."""
    return ((name, of_scheme[0]) for name, of_scheme in runs.items())


Points = list[tuple[float, float]]  # (emulated s, value)


def rows_of_series(
    runs: Runs, series: Callable[[RunFiles], Mapping[str, Points]]
) -> list[tuple[str, str, float, float]]:
    """Return (scheme, series, emulated s, value) of the named series of each scheme's first run."""
    return [
        (name, one, t, value)
        for name, run in first_seeds(runs)
        for one, points in series(run).items()
        for t, value in points
    ]


class Plot(ABC):
    """A kind of figure; derive a class and bind an instance to ``PLOT``.

    The first line of the class's docstring is shown by ``edgefl plot --list``.
    """

    OF = "every run"  # which runs have it, for messages
    X: tuple[str, ...] = ()  # choices of ``PlotStyle.x``
    LIMITS = "xy"  # axes with numbers, which can have limits
    LOG = "xy"  # axes that can be logarithmic
    WIDTH = "page"  # unless the user chooses another one

    @abstractmethod
    def data(self, runs: Runs, style: PlotStyle) -> PlotData:
        """Return the numbers behind the figure, without rows if no run has any.

        UserError with the reason if these runs cannot have it together.
        """

    @abstractmethod
    def draw(self, data: PlotData, canvas: Canvas) -> None:
        """Draw ``data``, which has rows, on the empty ``canvas``."""

    @property
    def about(self) -> str:
        """One line about the figure."""
        return (type(self).__doc__ or "").partition("\n")[0]


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
