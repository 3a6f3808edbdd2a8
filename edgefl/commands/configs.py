"""The CONFIG argument that many commands take, and ``edgefl configs``: the files that come with
the package.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from edgefl.commands import show
from edgefl.loading import packaged


def located(path: Path | None) -> Path | None:
    """``path``, or the packaged file of that name where no such file is; says so then."""
    found = None if path is None else packaged.find(path)
    if found is None:
        return path
    print(f"edgefl: no {path} here, using the one that comes with edgefl: {found}", file=sys.stderr)
    return found


Config = Annotated[
    Path,
    typer.Argument(metavar="CONFIG", help="The experiment file (TOML).", callback=located),
]


def configs(
    copy: Annotated[
        Path | None,
        typer.Option("--copy", metavar="DIR", help="Copy them to a new folder, to change them."),
    ] = None,
) -> None:
    """The experiment files that come with edgefl."""
    if copy is None:
        show.rows([(name, packaged.one_line(name)) for name in packaged.names()])
        show.hint("edgefl run CONFIG --clock virtual")
    else:
        packaged.copy(copy)
        show.hint(f"edgefl run {copy / 'quickstart.toml'}")
