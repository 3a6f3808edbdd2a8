"""What every command prints alike."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.text import Text


def rows(entries: Sequence[tuple[str, str]]) -> None:
    """A name and a line about it, one pair a line, never wrapped: the output may go into a pipe."""
    width = max((len(name) for name, _ in entries), default=0)
    console = Console()
    for name, line in entries:
        console.print(Text.assemble((name.ljust(width), "bold"), "  ", line), soft_wrap=True)


def line(text: str) -> None:
    """One line, as it is."""
    Console().print(Text(text), soft_wrap=True)


def hint(command: str) -> None:
    """The last line of a command: what to do next."""
    Console().print(Text(f"next: {command}", style="dim"), soft_wrap=True)
