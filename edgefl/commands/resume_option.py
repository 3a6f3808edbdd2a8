"""The options --resume and --overwrite of commands that run experiments.

What they do: resume.py, and ``edgefl.hosts.setup.resumption``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from edgefl.errors import UserError

Resume = Annotated[
    Path | None,
    typer.Option(
        "--resume",
        metavar="DIR",
        help="Go on with the runs in DIR (runs/NAME), after Ctrl-C or a crash. Without CONFIG.",
    ),
]
Overwrite = Annotated[
    bool,
    typer.Option(
        "--overwrite",
        help="Replace finished runs in the folder of the results, instead of moving it to NAME.1.",
    ),
]


def refuse_both(resume: Path | None, overwrite: bool) -> None:
    """Raise UserError for --overwrite with --resume, which replaces nothing."""
    if resume is not None and overwrite:
        raise UserError("--overwrite: has no effect with --resume: leave one of them out")
