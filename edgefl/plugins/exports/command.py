"""``edgefl export``: runs in the format of another tool."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from edgefl.commands import show
from edgefl.commands.options import OverwriteFiles, Runs, kept_aside
from edgefl.entry_points import entries
from edgefl.errors import UserError
from edgefl.plugins.exports import export_format

EXPORT_FORMATS = sorted(entries(export_format.GROUP))


def export(
    runs: Runs,
    to: Annotated[
        str | None,
        typer.Option("--to", metavar="FORMAT", help=f"One of {', '.join(EXPORT_FORMATS)}."),
    ] = None,
    out: Annotated[
        str | None,
        typer.Option(
            "--out",
            metavar="PATH",
            help="The file or folder; with mlflow also the address of a server.",
            show_default="named after the format, here",
        ),
    ] = None,
    overwrite: OverwriteFiles = False,
) -> None:
    """Write runs, finished or not, in a format that other tools open."""
    if to is None:
        show.rows(sorted(show.plugins(export_format.GROUP)))
        raise UserError("--to: missing: one of these formats")
    found = export_format.find(to)
    place = found.out if out is None else out
    with kept_aside([] if found.adds else [Path(place)], overwrite):
        lines = found.write(export_format.runs_of(runs), place)
    for line in lines:
        show.line(line)
    show.hint(found.view(place))
