"""What several commands share: options, checks of the files that they write, and texts."""

from __future__ import annotations

import os
from pathlib import Path
from types import ModuleType
from typing import Annotated

import typer

from emulator.errors import BadValue, not_installed

FIGURE_SUFFIXES = (".png", ".pdf", ".svg")

Profile = Annotated[
    str | None,
    typer.Option(
        help="A named link, see emulator profiles; the options below override its fields."
    ),
]
Latency = Annotated[str | None, typer.Option(help="Delay in each direction, such as 30ms.")]
JitterText = Annotated[
    str | None,
    typer.Option(help="Standard deviation of the latency, such as 5ms; order is kept."),
]
NoLatency = Annotated[
    bool, typer.Option("--no-latency", help="Leave out latency, jitter and loss.")
]


def check_outputs(figure: Path | None, **others: Path | None) -> None:
    """BadValue unless these files can be written; ``others`` by the name of their option."""
    if figure is not None and figure.suffix.lower() not in FIGURE_SUFFIXES:
        raise BadValue(f"--figure {figure}: expected a name that ends in .png, .pdf or .svg")
    for option, path in {**others, "figure": figure}.items():
        if path is not None and (path.is_dir() or not os.access(path.parent, os.W_OK)):
            raise BadValue(
                f"--{option} {path}: expected a file in a folder that exists and can be written to"
            )


def figures() -> ModuleType:
    """The module ``emulator.figures``; BadValue without matplotlib, which also loads slowly."""
    try:
        from emulator import figures
    except ModuleNotFoundError as error:
        raise not_installed("--figure", error) from error
    return figures


def rate_text(rate_bit_s: int) -> str:
    """Format a rate, such as '7.6 Mbit/s'."""
    for size, unit in ((10**9, "Gbit/s"), (10**6, "Mbit/s"), (10**3, "kbit/s")):
        if rate_bit_s >= size:
            return f"{rate_bit_s / size:.10g} {unit}"
    return f"{rate_bit_s} bit/s"
