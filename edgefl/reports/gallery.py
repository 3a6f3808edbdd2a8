"""All kinds of figures: those of every run (``edgefl.results.figures``) and those of families."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from edgefl import catalog
from edgefl.errors import UserError, listed, nearest, undamaged
from edgefl.reports.family import families
from edgefl.results.axes import AXES
from edgefl.results.compare import replace_file
from edgefl.results.figures.base import LEFT, Plot, PlotData, Runs, drawn, left, open_runs, save
from edgefl.results.figures.style import PlotStyle

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PACKAGE = "edgefl.results.figures"
OWN = PlotStyle()  # the figure's own choices


def plots() -> dict[str, Plot]:
    """Return all kinds of figures by name: first those of every run, then those of families."""
    found = {
        name.replace("_", "-"): import_module(f"{PACKAGE}.{name}").PLOT
        for name in catalog.names(PACKAGE, "PLOT")
    }
    return found | {
        name: plot for family in families().values() for name, plot in family.plots().items()
    }


def find(kind: str) -> Plot:
    """Return a kind of figure by its name; UserError if there is none."""
    found = plots()
    if kind not in found:
        raise UserError(f"--kind {kind}: no such figure{nearest(kind, found)}")
    return found[kind]


def missing(runs: Runs) -> dict[str, str]:
    """Return for each kind why ``runs`` do not have it; "" if they have it."""
    return {name: _reason(plot, runs) for name, plot in plots().items()}


def available(directories: Sequence[Path]) -> list[str]:
    """Return the kinds of figures that the runs in ``directories`` have."""
    return [name for name, reason in missing(open_runs(directories)).items() if not reason]


def data(kind: str, runs: Runs, style: PlotStyle = OWN) -> PlotData:
    """Return the numbers behind a figure; UserError if these runs do not have it."""
    plot = find(kind)
    _check(kind, plot, style)
    found = _numbers(plot, runs, style)
    if not found.rows:
        axis = AXES.get(style.x)
        of = plot.OF if axis is None else f"{plot.OF} (--x {axis.name}: {axis.missing})"
        raise UserError(f"--kind {kind}: nothing to draw in {listed([*runs])}; it is of {of}")
    return found


def draw(kind: str, runs: Runs, style: PlotStyle = OWN) -> Figure:
    """Return a figure of ``runs``; UserError if they do not have it."""
    return drawn(find(kind), data(kind, runs, style), style)


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


def leave(directories: Sequence[Path], names: Mapping[str, Path]) -> list[Path]:
    """Write those figures that the runs have, PNG and PDF; return the PNG files.

    ``names``: kind -> path without a suffix.
    """
    runs, found = open_runs(directories), plots()
    return [path for kind, out in names.items() for path in left(found[kind], runs, out)]


def _reason(plot: Plot, runs: Runs) -> str:
    try:
        return "" if _numbers(plot, runs, OWN).rows else f"of {plot.OF}"
    except UserError as error:
        return str(error)


def _numbers(plot: Plot, runs: Runs, style: PlotStyle) -> PlotData:
    paths = [str(run.path) for of_scheme in runs.values() for run in of_scheme]
    with undamaged(Path(", ".join(paths))):
        return plot.data(runs, style)


def _check(kind: str, plot: Plot, style: PlotStyle) -> None:
    """Refuse options that mean nothing for this figure."""
    if style.x and style.x not in plot.X:
        choices = f"expected one of {', '.join(plot.X)}{nearest(style.x, plot.X)}"
        instead = choices if plot.X else "this figure has no choice of x"
        raise UserError(f"--x {style.x}: {instead} (--kind {kind})")
    for axis, limits in (("x", style.xlim), ("y", style.ylim)):
        if limits is not None and axis not in plot.LIMITS:
            raise UserError(f"--{axis}lim: no limits for the {axis} axis of --kind {kind}")
        if limits is not None and axis in style.log and limits[0] is not None and limits[0] <= 0:
            raise UserError(f"--{axis}lim: a logarithmic axis begins above 0, found {limits[0]:g}")
    for axis in style.log:
        if axis not in plot.LOG:
            raise UserError(f"--log {axis}: the {axis} axis of --kind {kind} is always linear")
