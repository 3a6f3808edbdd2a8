"""Output functions that all commands share."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from edgefl.entry_points import entries, one_line
from edgefl.errors import UserError, printable


def rows(entries: Sequence[tuple[str, str]]) -> None:
    """Print names with a line about each.

    On a terminal, long lines are wrapped in their column; in a pipe, they are not.
    """
    width = max((len(name) for name, _ in entries), default=0)
    console = Console()
    if not console.is_terminal:
        for name, text in entries:
            line(f"{name:<{width}}  {text}")
        return
    listing = Table.grid(Column(style="bold", no_wrap=True), Column(), padding=(0, 2, 0, 0))
    for name, text in entries:
        listing.add_row(name, Text(text))
    console.print(listing)


def plugins(group: str) -> list[tuple[str, str]]:
    """Return the plug-ins of a group with a line about each, and warn of those that fail."""
    found = []
    for name, entry in entries(group).items():
        try:
            found.append((name, one_line(entry)))
        except UserError as error:
            warning(str(error))
    return found


def line(text: str) -> None:
    """Print one line, with control characters escaped."""
    Console().print(Text(printable(text)), soft_wrap=True)


def paragraphs(text: str) -> None:
    """Print a text of several lines; on a terminal, long ones are wrapped between words."""
    console = Console()
    for each in text.splitlines():
        console.print(Text(printable(each)), soft_wrap=not console.is_terminal)


def warning(text: str | None) -> None:
    """Print a warning to stderr, if there is one."""
    if text is not None:
        print(f"edgefl: warning: {printable(text)}", file=sys.stderr, flush=True)


def table(console: Console, shown: Table | None) -> None:
    """Print a table after an empty line, if there is one."""
    if shown is not None:
        console.print()
        console.print(shown)


def hint(command: str) -> None:
    """Print the last line of a command: what to do next."""
    Console().print(Text(f"next: {command}", style="dim"), soft_wrap=True)


def hint_about(command: str, runs: Sequence[Path], *options: str) -> None:
    """Print a command about ``runs`` as the next one, quoted so that it can be copied."""
    hint(shlex.join(["edgefl", command, *map(str, runs), *options]))
