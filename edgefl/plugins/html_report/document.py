"""The HTML file of ``edgefl report``: its contents are collected here, and the template lays
them out.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.table import Table

from edgefl import __version__
from edgefl.errors import UserError
from edgefl.plugins.html_report import sections
from edgefl.plugins.html_report.sections import HtmlTable, ReportedRun, of_terminal
from edgefl.results import tables
from edgefl.results.compare import Comparison, Question, answer, with_ages
from edgefl.results.families import drawable, families
from edgefl.results.figures import gallery
from edgefl.results.figures.base import (
    Plot,
    PlotData,
    PlotStyle,
    Runs,
    drawn,
    open_runs,
    rendered,
)
from edgefl.results.run_files import replace_file

if TYPE_CHECKING:
    from jinja2 import Environment
    from matplotlib.figure import Figure

HERE = Path(__file__).parent
SUFFIXES = (".html", ".htm")
WIDTH = 1000  # characters: enough for all columns of the comparison
OWN = Question()  # no baseline, and the target of the runs
FIRST = "accuracy"  # the figure next to the results
NO_FIGURES = "No figures: matplotlib was not installed."


def check(out: Path) -> None:
    """Raise UserError unless a report can have this name."""
    if out.suffix not in SUFFIXES or os.path.isdir(out):  # Path.is_dir may raise PermissionError
        raise UserError(f"--out {out}: expected a file that ends in .html")


def write(paths: Sequence[Path], out: Path, question: Question = OWN) -> None:
    """Write the report about all runs in ``paths`` or below as one HTML file.

    ``question``: a baseline or a target, if there is one. UserError if a path holds no run,
    if a file of a run is damaged, or if ``out`` cannot be written.
    """
    replace_file(out, document(paths, question).encode())


def document(paths: Sequence[Path], question: Question = OWN) -> str:
    """Return the report as HTML that needs no other file: styles and figures are in it.

    All texts are escaped, since names and reasons may come from elsewhere.
    """
    template = templates_in(HERE, autoescape=True).get_template("document.html")
    return template.render(contents(paths, question))


def templates_in(folder: Path, **options: Any) -> Environment:
    """Return the templates in a folder; ``options`` go to jinja2's ``Environment``."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    return Environment(
        loader=FileSystemLoader(folder),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        **options,
    )


def contents(paths: Sequence[Path], question: Question = OWN) -> dict[str, Any]:
    """Return all that the template shows, by name."""
    from markupsafe import Markup

    files = open_runs(paths)  # of the figures and the ages, so that each file is read once
    found = answer(paths, question)
    with suppress(UserError):  # the figure of the ages has the reason
        found = with_ages(found, files)
    runs = sections.of_comparison(found, paths)
    drawn, no_figures = figures(files, question.target) if drawable() else ([], [NO_FIGURES])
    return {
        "title": _title(runs),
        "version": __version__,
        "css": Markup((HERE / "document.css").read_text(encoding="utf-8")),
        "verdicts": tuple(tables.COLOURS),
        "what": sections.what(runs),
        "results": sections.results(found, files),
        "glance": sections.glance(found),
        "tables": _tables(found, paths),
        "first": [figure for figure in drawn if figure["kind"] == FIRST],
        "figures": [figure for figure in drawn if figure["kind"] != FIRST],
        "no_figures": no_figures,
        "strategies": sections.strategies(runs),
        "setups": _setups(runs),
        "differences": sections.differing(found),
        "fidelity": sections.verdicts(runs),
        "energy": sections.energy_of(runs),
        "reasons": sections.reasons(runs),
        "machines": sections.machines(runs),
        "hosts": sections.hosts(runs),
        "again": [
            each | {"download": data_uri(each["config"].encode(), "application/toml")}
            for each in sections.of_experiments(runs)
        ],
    }


def _tables(found: Comparison, paths: Sequence[Path]) -> list[HtmlTable]:
    """Return the tables of ``edgefl compare``."""
    of_families = (family.table(paths) for family in families().values())
    printed = tables.printed(found, WIDTH, of_families)
    return [of_terminal(each) for each in printed if isinstance(each, Table)]


def _title(runs: Sequence[ReportedRun]) -> str:
    names = dict.fromkeys(str(run.config.get("name", run.name)) for run in runs)
    return ", ".join(names)


def _setups(runs: Sequence[ReportedRun]) -> list[dict[str, Any]]:
    """Return what was run, once for all runs that had the same: their titles and the parts."""
    groups: list[tuple[Any, list[str]]] = []
    for run in runs:
        parts = sections.setup(run.config)
        same = next((titles for other, titles in groups if other == parts), None)
        if same is None:
            groups.append((parts, same := []))
        same.append(run.title)
    return [{"runs": ", ".join(titles), "parts": parts} for parts, titles in groups]


MOST_SVG = 1_000_000  # bytes; a larger figure, of very many points, becomes a PNG
MOST_CSV = 1_000_000  # bytes; the numbers behind a figure that has more are left out
KINDS = {"svg": "image/svg+xml", "png": "image/png"}


def figures(runs: Runs, target: float | None) -> tuple[list[dict[str, str]], list[str]]:
    """Draw every figure that these runs have data for.

    ``target``: an accuracy in place of the runs' own.

    Return the figures, and a sentence about each that these runs cannot have.
    """
    own = PlotStyle(target=target)
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


def _embedded(kind: str, plot: Plot, figure: Figure, numbers: bytes) -> dict[str, str]:
    """Return a figure as the template has it. ``image`` and ``numbers`` (a CSV file, "" if it is
    too large) are addresses that hold the data. ``width``: "column" or "page".
    """
    form, image = "svg", rendered(figure, "svg")
    if len(image) > MOST_SVG:
        form, image = "png", rendered(figure, "png")
    return {
        "kind": kind,
        "title": plot.about,
        "width": plot.WIDTH,
        "image": data_uri(image, KINDS[form]),
        "numbers": data_uri(numbers, "text/csv") if numbers else "",
    }


def data_uri(data: bytes, kind: str) -> str:
    """Return ``data`` as an address that holds it."""
    return f"data:{kind};base64,{base64.b64encode(data).decode('ascii')}"
