"""The option --live [PORT] of commands that run experiments: a live page beside the run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from edgefl.commands import show
from edgefl.errors import UserError

NAME = "--live"
MOST_PORT = 65535

Live = Annotated[
    str | None,
    typer.Option(
        NAME,
        metavar="[PORT]",
        help="Serve a page that shows the runs while they run, on this machine only.",
        show_default=False,
    ),
]


class LiveCommand(TyperCommand):
    """A command whose --live may stand without a value."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, [*_with_value(args)])


def _with_value(args: Sequence[str]) -> Iterator[str]:
    for word, following in zip(args, [*args[1:], ""]):
        yield f"{NAME}=" if word == NAME and not following.isdecimal() else word


def port_of(text: str, option: str) -> int | None:
    """Return the port that the user gave; None for "". UserError for anything but a port."""
    if not text:
        return None
    if not text.isdecimal() or int(text) > MOST_PORT:
        raise UserError(f"{option} {text}: expected a port, 0 to {MOST_PORT} (0: any free one)")
    return int(text)


@contextmanager
def live(given: str | None, folder: Path) -> Iterator[None]:
    """Serve the page of the runs in ``folder`` until the block ends, if the user asked for it."""
    if given is None:
        yield
        return
    from edgefl.live.companion import live_page

    with live_page(folder, port_of(given, NAME)) as address:
        show.line(f"live page: {address}")
        yield
