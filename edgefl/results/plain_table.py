"""The look of all tables that commands print."""

from __future__ import annotations

from rich import box
from rich.table import Table


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
