"""``edgefl plot``: the figures of runs."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from edgefl.commands import show
from edgefl.commands.aside import Overwrite, kept_aside
from edgefl.errors import UserError, nearest
from edgefl.results.figures.style import FORMATS, WIDTHS, Limits, PlotStyle

SAME = {"time": "emulated_s", "versions": "version", "rounds": "round", "energy": "joules"}
AXES = {"x": "x", "y": "y", "xy": "xy", "yx": "xy", "x,y": "xy", "y,x": "xy"}  # of --log

Out = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="The figure: .svg, .pdf, or .png with a PDF next to it.",
        show_default="KIND.png",
    ),
]
Formats = Annotated[
    list[str] | None,
    typer.Option("--format", metavar="png|pdf|svg", help="In place of --out's; several: png,svg."),
]
Width = Annotated[
    str,
    typer.Option(
        metavar="column|page",
        help=f"For print: {WIDTHS['column']} or {WIDTHS['page']} inches; fonts stay 8 points.",
        show_default="the figure's own",
    ),
]
Title = Annotated[str, typer.Option(metavar="TEXT", help="A title above the figure.")]
Numbers = Annotated[
    Path | None,
    typer.Option("--data", metavar="FILE.csv", help="Also write the numbers behind the figure."),
]


Runs = Annotated[
    list[Path] | None,
    typer.Argument(metavar="DIR...", help="Run directories, or the directory of an experiment."),
]
Kind = Annotated[str, typer.Option(metavar="KIND", help="One of --list.")]
Listing = Annotated[
    bool, typer.Option("--list", help="List the kinds of figures, and which the runs have.")
]
X = Annotated[
    str,
    typer.Option(
        "--x", help="emulated_s, version, round, bytes, joules or wall_s.", show_default="own"
    ),
]
XLimits = Annotated[
    str, typer.Option(metavar="LOW,HIGH", help="In the axis' unit; one may be empty: 10,")
]
YLimits = Annotated[str, typer.Option(metavar="LOW,HIGH", help="The same for the y axis.")]
Log = Annotated[str, typer.Option(metavar="x|y|xy", help="Logarithmic axes.")]
Labels = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME=TEXT", help="Another text for a scheme, or for the axis x or y."),
]
Target = Annotated[
    float | None,
    typer.Option(min=0, max=1, metavar="SHARE", help="In place of the runs' target accuracy."),
]


def plot(
    runs: Runs = None,
    out: Out = None,
    kind: Kind = "accuracy",
    listing: Listing = False,
    formats: Formats = None,
    width: Width = "",
    x: X = "",
    xlim: XLimits = "",
    ylim: YLimits = "",
    log: Log = "",
    title: Title = "",
    label: Labels = None,
    target: Target = None,
    data: Numbers = None,
    overwrite: Overwrite = False,
) -> None:
    """Draw accuracy over emulated time and over bytes sent, or another figure of --list."""
    from edgefl.reports import gallery

    if listing:
        return _list(runs or [])
    if not runs:
        raise UserError("plot: expected DIR, the directory of an experiment or of a run")
    style = PlotStyle(
        width=chosen_width(width),
        x=SAME.get(x, x),
        xlim=limits("--xlim", xlim),
        ylim=limits("--ylim", ylim),
        log=_log(log),
        title=title,
        target=target,
        labels=_labels(label or ()),
    )
    gallery.find(kind)
    out, forms = files(out or Path(f"{kind}.png"), formats)
    with (
        warnings.catch_warnings(record=True) as caught,
        kept_aside(written(out, forms, data), overwrite),
    ):
        paths = gallery.write(kind, runs, out, style, forms, data)
    for text in dict.fromkeys(str(each.message) for each in caught):
        show.warning(text)
    for path in paths:
        show.line(str(path))
    show.hint_about("view", runs)


def files(out: Path, formats: Sequence[str] | None) -> tuple[Path, tuple[str, ...]]:
    """Return the figure's path without a suffix, and its formats; UserError for unknown ones."""
    own = out.suffix.removeprefix(".")
    wanted = [form.strip() for each in formats or () for form in each.split(",")]
    for form in wanted:
        if form not in FORMATS:
            expected = f"expected {', '.join(FORMATS)}"
            raise UserError(f"--format {form}: {expected}{nearest(form, FORMATS)}")
    if out.is_dir() or (own not in FORMATS and not wanted):
        raise UserError(f"--out {out}: expected a file that ends in .png, .pdf or .svg")
    plain = out.with_suffix("") if own in FORMATS else out
    return plain, tuple(wanted) or (("png", "pdf") if own == "png" else (own,))


def written(out: Path, forms: Sequence[str], numbers: Path | None) -> list[Path]:
    """Return the files of a figure: one for each format, and that of its numbers."""
    figures = [out.with_name(f"{out.name}.{form}") for form in forms]
    return figures if numbers is None else [*figures, numbers]


def chosen_width(text: str) -> str:
    """Check the value of ``--width``."""
    if text and text not in WIDTHS:
        expected = f"expected {' or '.join(WIDTHS)}"
        raise UserError(f"--width {text}: {expected}{nearest(text, WIDTHS)}")
    return text


def limits(option: str, text: str) -> Limits | None:
    """Return the limits of an axis; None if there are none."""
    if not text:
        return None
    try:
        low, high = (float(part) if part.strip() else None for part in text.split(","))
    except ValueError:
        low = high = None
    given = [end for end in (low, high) if end is not None]
    if not given or not all(map(math.isfinite, given)) or (len(given) > 1 and given[0] >= given[1]):
        raise UserError(
            f"{option} {text}: expected LOW,HIGH such as 0,10, the lower one first; one may be"
            " empty"
        )
    return low, high


def _log(text: str) -> str:
    if text and text not in AXES:
        raise UserError(f"--log {text}: expected x, y or xy")
    return AXES.get(text, "")


def _labels(texts: Sequence[str]) -> dict[str, str]:
    found = {}
    for each in texts:
        name, equals, text = each.partition("=")
        if not (name and equals):
            raise UserError(f"--label {each}: expected NAME=TEXT, such as fedavg='FedAvg, ours'")
        found[name] = text
    return found


def _list(directories: Sequence[Path]) -> None:
    """Print the kinds of figures; with runs, which they have and why not the others."""
    from edgefl.reports import gallery
    from edgefl.results.figures.base import open_runs

    plots = gallery.plots()
    if not directories:
        show.rows([(kind, plot.about) for kind, plot in plots.items()])
        return show.hint("edgefl plot DIR --list, for the figures that runs have")
    missing = gallery.missing(open_runs(directories))
    there = [kind for kind, reason in missing.items() if not reason]
    show.rows([(kind, plots[kind].about) for kind in there])
    if len(there) < len(missing):
        show.line("")
        show.line("not of these runs:")
        show.rows([(kind, reason) for kind, reason in missing.items() if reason])
    shown = " ".join(map(str, directories))
    example = there[-1] if there else "accuracy"
    return show.hint(f"edgefl plot {shown} --kind {example} --width column")
