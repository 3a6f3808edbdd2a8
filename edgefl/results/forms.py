"""How tables show numbers, as few digits as say what is known, and how they look."""

from __future__ import annotations

from rich import box
from rich.table import Table


def share(value: float) -> str:
    return f"{value:.3f}"


def count(value: float) -> str:
    """Format a count with at most five characters: 7, 7.3 (a mean), 1234, 12.3k, 1.23M."""
    for size, unit in ((1e6, "M"), (1e4, "k")):
        if value >= size:
            return three_digits(value / (1e6 if unit == "M" else 1e3)) + unit
    return (
        str(value) if isinstance(value, int) else f"{value:.1f}" if value < 100 else f"{value:.0f}"
    )


def three_digits(value: float) -> str:
    if value == 0:
        return "0"
    return (
        "<0.01"
        if value < 0.01
        else (
            f"{value:.2f}"
            if value < 0.1
            else f"{value:#.3g}".rstrip(".")
            if value < 999.5
            else f"{value:.0f}"
        )
    )


def seconds(value: float) -> str:
    return f"{value:.2f}" if value < 10 else f"{value:.1f}" if value < 10_000 else f"{value:.0f}"


def probability(value: float) -> str:
    """Format a p value: 0.031, or <0.001."""
    return f"{value:.3f}" if value >= 0.001 else "<0.001"


def plain_table(title: str | None = None, gap: int = 0) -> Table:
    """Return an empty table with a line below its headings and no other lines.

    ``gap``: spaces between two columns, in addition to the one that separates them.
    """
    return Table(
        title=title,
        title_justify="left",
        title_style="",
        box=box.SIMPLE_HEAD,
        padding=(0, gap, 0, 0),
        show_edge=False,
        caption_justify="left",
        caption_style="",
    )
