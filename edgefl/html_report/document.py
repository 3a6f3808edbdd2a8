"""The HTML file of ``edgefl report``: its contents are collected here, and the template lays
them out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from edgefl import __version__
from edgefl.html_report import again, reported_runs, sections
from edgefl.html_report.embedded_figures import data_uri, figures
from edgefl.html_report.html_tables import HtmlTable, of_terminal
from edgefl.html_report.reported_runs import ReportedRun
from edgefl.reports.family import drawable
from edgefl.reports.registry import families
from edgefl.results import comparison_table, grid, table
from edgefl.results.compare import replace_file
from edgefl.results.comparison import Comparison, Question, answer

HERE = Path(__file__).parent
WIDTH = 1000  # characters: enough for all columns of the comparison
OWN = Question()  # no baseline, and the target of the runs
NO_FIGURES = "No figures: matplotlib was not installed (pip install 'edgefl[lab]')."


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
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(HERE),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("document.html").render(contents(paths, question))


def contents(paths: Sequence[Path], question: Question = OWN) -> dict[str, Any]:
    """Return all that the template shows, by name."""
    from markupsafe import Markup

    found = answer(paths, question)
    runs = reported_runs.of_comparison(found, paths)
    drawn, no_figures = figures(paths, question.target) if drawable() else ([], [NO_FIGURES])
    return {
        "title": _title(runs),
        "version": __version__,
        "css": Markup((HERE / "document.css").read_text(encoding="utf-8")),
        "verdicts": tuple(table.COLOURS),
        "glance": sections.glance(found),
        "tables": _tables(found, paths),
        "figures": drawn,
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
            asdict(each) | {"download": data_uri(each.config.encode(), "application/toml")}
            for each in again.of_experiments(runs)
        ],
    }


def _tables(found: Comparison, paths: Sequence[Path]) -> list[HtmlTable]:
    """Return the tables of ``edgefl compare``."""
    shown = [of_terminal(table.table(found.rows, WIDTH))]
    if found.is_more_than_rows:
        over_seeds = of_terminal(comparison_table.table(found))
        shown.append(replace(over_seeds, notes=tuple(grid.notes(found))))
    of_families = (family.table(paths) for family in families().values())
    return shown + [of_terminal(each) for each in of_families if each is not None]


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
