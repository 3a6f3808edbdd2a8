"""The option --resume of commands that run experiments. What it does: resume.py."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Resume = Annotated[
    Path | None,
    typer.Option(
        "--resume",
        metavar="DIR",
        help="Go on with the runs in DIR (runs/NAME), after Ctrl-C or a crash. Without CONFIG.",
    ),
]
