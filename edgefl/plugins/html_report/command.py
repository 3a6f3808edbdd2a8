"""``edgefl report``: the HTML file about runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from edgefl.commands import show
from edgefl.commands.look import Baseline, Target, check_target
from edgefl.commands.options import OverwriteFiles, Runs, kept_aside
from edgefl.errors import UserError

SUFFIXES = (".html", ".htm")


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
    check_target(target)
    if out.suffix not in SUFFIXES or out.is_dir():
        raise UserError(f"--out {out}: expected a file that ends in .html")

    from edgefl.plugins.html_report.document import write
    from edgefl.results.compare import Question

    with kept_aside([out], overwrite):
        write(runs, out, Question(baseline, target=target))
    size = out.stat().st_size / 1e6
    show.line(f"{out}: {size:.2g} MB; open it in a browser, or send it: it needs no other file")
    show.hint_about("export", runs, "--to", "perfetto")
