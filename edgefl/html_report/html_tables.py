"""Tables of the terminal as plain values, which the template turns into HTML."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.table import Table
from rich.text import Text

Lines = tuple[str, ...]  # of a cell


@dataclass(frozen=True, slots=True)
class HtmlTable:
    """A table: ``headings`` and ``numbers`` (whether it holds numbers) by column, ``rows`` of
    cells, and ``notes`` below it.
    """

    title: str
    headings: tuple[str, ...]
    numbers: tuple[bool, ...]
    rows: tuple[tuple[Lines, ...], ...]
    notes: Lines = ()


def of_terminal(table: Table) -> HtmlTable:
    """Return a table that a command prints; a column that is aligned to the right holds numbers."""
    columns = [[_lines(cell) for cell in column.cells] for column in table.columns]
    return HtmlTable(
        title=_text(table.title),
        headings=tuple(_heading(_text(column.header)) for column in table.columns),
        numbers=tuple(column.justify == "right" for column in table.columns),
        rows=tuple(zip(*columns)),
        notes=tuple(line for line in _lines(table.caption) if line),
    )


def of_rows(
    headings: Sequence[str], rows: Sequence[Sequence[object]], title: str = ""
) -> HtmlTable:
    """Return a table of these values; None is an empty cell. A column of numbers says so."""
    columns = list(zip(*rows)) or [() for _ in headings]
    return HtmlTable(
        title="",
        headings=tuple(headings),
        numbers=tuple(all(isinstance(each, int | float | None) for each in of) for of in columns),
        rows=tuple(tuple(_value(each) for each in row) for row in rows),
    )


def _value(value: object) -> Lines:
    if value is None:
        return ("",)
    return (f"{value:.6g}" if isinstance(value, float) else str(value),)


def _heading(text: str) -> str:
    """ "ver-\\nsions" is "versions", "acc.\\nfinal" is "acc. final"."""
    return " ".join(text.replace("-\n", "").split())


def _lines(cell: object) -> Lines:
    return tuple(_text(cell).split("\n"))


def _text(cell: object) -> str:
    return "" if cell is None else cell.plain if isinstance(cell, Text) else str(cell)
