"""``edgefl artifact``: what a reviewer needs to repeat runs and check the claims about them."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from edgefl.commands import show
from edgefl.commands.options import OverwriteFiles, kept_aside
from edgefl.errors import UserError

if TYPE_CHECKING:
    from edgefl.plugins.artifact.contents import Contents

STUDIES = Path(__file__).parents[3] / "scripts" / "studies"  # of a checkout
Targets = Annotated[
    list[str],
    typer.Argument(
        metavar="RUN...|ENTRY",
        help="Run directories, or the directory of an experiment; in a checkout also an entry of"
        " `scripts/studies/reproduce.py --list`.",
    ),
]


def artifact(
    targets: Targets,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="DIR|FILE.zip",
            help="The artifact.",
            show_default="NAME-artifact",
        ),
    ] = None,
    baseline: Annotated[
        str | None,
        typer.Option("--baseline", metavar="NAME", help="Claim also what the others gain over it."),
    ] = None,
    anonymous: Annotated[
        bool,
        typer.Option(
            "--anonymous", help="For double-blind review: no names, hosts, folders, commits."
        ),
    ] = False,
    title: Annotated[
        str, typer.Option("--title", metavar="TEXT", help="Of the artifact.", show_default=False)
    ] = "",
    author: Annotated[
        list[str] | None,
        typer.Option("--author", metavar="'FAMILY, GIVEN'", help="An author; may be repeated."),
    ] = None,
    license_: Annotated[
        str, typer.Option("--license", metavar="SPDX", help="The licence of your own files.")
    ] = "Apache-2.0",
    include: Annotated[
        list[Path] | None,
        typer.Option(
            "--include", metavar="PATH", help="A file or folder that your code opens by itself."
        ),
    ] = None,
    overwrite: OverwriteFiles = False,
) -> None:
    """Make an artifact of runs: others repeat them with one command and check what they claim."""
    if anonymous and author:
        raise UserError("--author: expected no names with --anonymous")

    from edgefl.plugins.artifact.documents import Wishes
    from edgefl.plugins.artifact.making import write

    contents = _contents(targets, baseline)
    place = out or Path(contents.name)
    if place.exists() and place.is_dir() == (place.suffix == ".zip"):
        raise UserError(f"--out {place}: expected a folder, or a file that ends in .zip")
    wishes = Wishes(title, tuple(author or ()), license_, anonymous, tuple(include or ()))
    with kept_aside([place], overwrite):
        write(contents, place, wishes, show.line)
    show.line(f"{place}: {len(contents.claims)} claims; its README.md says how to check them")
    show.hint(
        f"unzip {place}"
        if place.suffix == ".zip"
        else f"cd {place} && ./install.sh && ./kick-the-tires.sh"
    )


def _contents(targets: list[str], baseline: str | None) -> Contents:
    """Return what the artifact is of: runs, or an entry of the studies of a checkout."""
    from edgefl.plugins.artifact.contents import of_runs

    is_path = "/" in targets[0] or Path(targets[0]).exists()
    if len(targets) > 1 or is_path or not STUDIES.is_dir():
        return of_runs([Path(target) for target in targets], baseline)
    if str(STUDIES) not in sys.path:
        sys.path.append(str(STUDIES))
    found: Contents = importlib.import_module("reproduction.artifact").contents(targets[0])
    return found
