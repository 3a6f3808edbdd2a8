"""The progress of an entry's runs, on stderr."""

from __future__ import annotations

from collections.abc import Callable

from rich.console import Console

from edgefl.commands.sweep import SweepLines


def say(text: str) -> None:
    """Print a line to stderr: stdout has only tables."""
    Console(stderr=True).print(text, highlight=False, markup=False, soft_wrap=True)


class EntryLines(SweepLines):
    """As ``edgefl sweep`` shows it. ``ended`` is called with the title of a run that has ended."""

    def __init__(self) -> None:
        super().__init__()
        self.ended: Callable[[str], None] = lambda name: None

    def say(self, text: str) -> None:
        self.close()
        say(text)

    def end(self, name: str, text: str) -> None:
        super().end(name, text)
        self.ended(name)
