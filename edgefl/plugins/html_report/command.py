"""``edgefl report``: the HTML file about runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from edgefl.commands import show
from edgefl.commands.look import Baseline, Target
from edgefl.commands.options import OverwriteFiles, Runs, kept_aside


def report(
    runs: Runs,
    out: Annotated[Path, typer.Option("--out", metavar="FILE.html", help="The report.")] = Path(
        "report.html"
    ),
    baseline: Baseline = None,
    target: Target = None,
    overwrite: OverwriteFiles = False,
) -> None:
    """Write one HTML file about runs that opens without a server: tables, figures, verdicts."""
    from edgefl.plugins.html_report.document import check, write
    from edgefl.results.compare import Question

    check(out)
    with kept_aside([out], overwrite):
        write(runs, out, Question(baseline, target=target))
    size = out.stat().st_size / 1e6
    show.line(f"{out}: {size:.2g} MB; open it in a browser, or send it: it needs no other file")
    show.hint_about("export", runs, "--to", "perfetto")
