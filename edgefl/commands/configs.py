"""The CONFIG argument of many commands, and ``edgefl configs``.

CONFIG may be one of the files that come with the package.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from edgefl.commands import show


def located(path: Path | None) -> Path | None:
    """Return ``path``, or the packaged file of that name if ``path`` does not exist.

    Prints a note if it uses the packaged file.
    """
    if path is None or path.exists():
        return path
    from edgefl.loading import packaged

    found = packaged.find(path)
    if found is None:
        return path
    print(f"edgefl: no {path} here, using the one that comes with edgefl: {found}", file=sys.stderr)
    return found


ARGUMENT: Any = typer.Argument(
    metavar="CONFIG", help="The experiment file (TOML).", callback=located
)
Config = Annotated[Path, ARGUMENT]
ConfigOrNone = Annotated[Path | None, ARGUMENT]


def listing() -> None:
    """List the experiment files that come with edgefl, one line each."""
    from edgefl.loading import packaged

    show.rows([(name, packaged.one_line(name)) for name in packaged.names()])


def configs(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="The file to print or copy.")
    ] = None,
    copy: Annotated[
        Path | None,
        typer.Option(
            "--copy",
            metavar="DIR",
            help="Copy the file, or all, to a folder where you can change them.",
        ),
    ] = None,
) -> None:
    """List, print or copy the experiment files that come with edgefl."""
    from edgefl.loading import packaged

    if name is None and copy is None:
        listing()
        show.hint("edgefl run CONFIG --clock virtual")
    elif name is None and copy is not None:
        packaged.copy(copy)
        show.hint(f"edgefl run {copy / 'quickstart.toml'}")
    elif name is not None and copy is None:
        sys.stdout.write(packaged.text(name))
    elif name is not None and copy is not None:
        show.hint(f"edgefl run {packaged.copy_one(name, copy)}")
