"""All kinds of figures: those of every run (this folder) and those of families of strategies.

A module of this folder, or a family, that binds ``PLOTS`` adds figures.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING

from edgefl.errors import UserError, listed, nearest, undamaged
from edgefl.results import figures
from edgefl.results.families import families
from edgefl.results.figures.base import (
    LEFT,
    Plot,
    PlotData,
    PlotStyle,
    Runs,
    drawn,
    drawn_on,
    left,
    open_runs,
    save,
)
from edgefl.results.run_files import replace_file
from edgefl.results.summary import AXES

if TYPE_CHECKING:
    from matplotlib.axes import Axes

OWN = PlotStyle()  # the figure's own choices


def _of_runs() -> Iterator[tuple[str, Plot]]:
    """Yield the figures of every run; a module is imported when it is reached."""
    for module in pkgutil.iter_modules(figures.__path__):
        found = import_module(f"{figures.__name__}.{module.name}")
        yield from getattr(found, "PLOTS", {}).items()


def plots() -> dict[str, Plot]:
    """Return all kinds of figures by name: first those of every run, then those of families."""
    of_families = {name: plot for each in families().values() for name, plot in each.plots.items()}
    return dict(sorted(_of_runs(), key=itemgetter(0))) | of_families


def find(kind: str) -> Plot:
    """Return a kind of figure by its name; UserError if there is none."""
    for name, plot in _of_runs():
        if name == kind:
            return plot
    known = plots()
    if kind not in known:
        raise UserError(f"kind {kind}: no such figure{nearest(kind, known)}")
    return known[kind]


def missing(runs: Runs) -> dict[str, str]:
    """Return for each kind why ``runs`` do not have it; "" if they have it."""
    return {name: _reason(plot, runs) for name, plot in plots().items()}


def data(kind: str, runs: Runs, style: PlotStyle = OWN) -> PlotData:
    """Return the numbers behind a figure; UserError if these runs do not have it."""
    plot = find(kind)
    _check(kind, plot, style)
    numbers = _numbers(plot, runs, style)
    if not numbers.rows:
        axis = AXES.get(style.x)
        of = plot.OF if axis is None else f"{plot.OF} (--x {axis.name}: {axis.missing})"
        raise UserError(f"kind {kind}: nothing to draw in {listed([*runs])}; it is of {of}")
    return numbers


def write(
    kind: str,
    directories: Sequence[Path],
    out: Path,
    style: PlotStyle = OWN,
    forms: Sequence[str] = LEFT,
    numbers: Path | None = None,
) -> list[Path]:
    """Write a figure as ``out`` with the suffix of each format; return the files.

    ``numbers``: a CSV file for its numbers. UserError if the runs in ``directories`` do not have
    the figure.
    """
    found = data(kind, open_runs(directories), style)
    paths = [] if numbers is None else [numbers]
    if numbers is not None:
        replace_file(numbers, found.csv().encode())
    return save(drawn(find(kind), found, style), out, forms) + paths


def axes(kind: str, runs: Runs, style: PlotStyle = OWN, given: Sequence[Axes] = ()) -> list[Axes]:
    """Draw a figure with pyplot, or on the ``given`` axes; return the axes of its panels.

    UserError if the runs do not have the figure, or if it has another number of panels.
    """
    return drawn_on(find(kind), data(kind, runs, style), style, given)


def leave(directories: Sequence[Path], names: Mapping[str, Path]) -> list[Path]:
    """Write those figures that the runs have, PNG and PDF; return the PNG files.

    ``names``: kind -> path without a suffix.
    """
    runs, known = open_runs(directories), plots()
    return [path for kind, out in names.items() for path in left(known[kind], runs, out)]


def _reason(plot: Plot, runs: Runs) -> str:
    try:
        return "" if _numbers(plot, runs, OWN).rows else f"of {plot.OF}"
    except UserError as error:
        return str(error)


def _numbers(plot: Plot, runs: Runs, style: PlotStyle) -> PlotData:
    paths = [str(run.path) for of_strategy in runs.values() for run in of_strategy]
    with undamaged(Path(", ".join(paths))):
        return plot.data(runs, style)


def _check(kind: str, plot: Plot, style: PlotStyle) -> None:
    """Refuse options that mean nothing for this figure."""
    if style.x and style.x not in plot.X:
        choices = f"no such x{nearest(style.x, plot.X)}"
        instead = choices if plot.X else "this figure has no choice of x"
        raise UserError(f"--x {style.x}: {instead} (kind {kind})")
    for axis, limits in (("x", style.xlim), ("y", style.ylim)):
        if limits is not None and axis not in plot.LIMITS:
            raise UserError(f"--{axis}lim: no limits for the {axis} axis of kind {kind}")
        if limits is not None and axis in style.log and limits[0] is not None and limits[0] <= 0:
            raise UserError(f"--{axis}lim: a logarithmic axis begins above 0, found {limits[0]:g}")
    for axis in style.log:
        if axis not in plot.LOG:
            raise UserError(f"--log {axis}: the {axis} axis of kind {kind} is always linear")
