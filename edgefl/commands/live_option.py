"""The options --live and --metrics-port: servers that run next to an experiment."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from edgefl.commands import show
from edgefl.errors import UserError

if TYPE_CHECKING:
    from edgefl.config.experiment import Experiment

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

MetricsPort = Annotated[
    int | None,
    typer.Option(
        "--metrics-port",
        metavar="PORT",
        min=0,
        max=MOST_PORT,
        help="Serve metrics of the runs to Prometheus, on this machine only.",
        show_default=False,
    ),
]


class LiveCommand(TyperCommand):
    """A command whose --live may stand without a value."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, [*with_value(args)])


def with_value(args: Sequence[str]) -> Iterator[str]:
    """Give a bare --live an empty value, unless a port follows it."""
    for word, following in zip(args, [*args[1:], ""]):
        yield f"{NAME}=" if word == NAME and not following.isdecimal() else word


def port_of(text: str, option: str) -> int | None:
    """Return the port that the user gave; None for "". UserError for anything but a port."""
    if not text:
        return None
    if not (text.isascii() and text.isdecimal()) or len(text) > 5 or int(text) > MOST_PORT:
        raise UserError(f"{option} {text}: expected a port, 0 to {MOST_PORT} (0: any free one)")
    return int(text)


@contextmanager
def watched(
    folder: Path, experiment: Experiment, live_port: str | None, metrics_port: int | None
) -> Iterator[None]:
    """Serve the page and the metrics of the runs in ``folder`` until the block ends, if asked.

    After Ctrl-C, say how to go on.
    """
    from edgefl.commands.resume import hint_after_ctrl_c

    with ExitStack() as servers:
        if live_port is not None or metrics_port is not None:
            from edgefl.live.serve import live_page, metrics_page

            if live_port is not None:
                page = live_page(folder, port_of(live_port, NAME))
                show.line(f"live page: {servers.enter_context(page)}")
            if metrics_port is not None:
                metrics = metrics_page(folder, metrics_port)
                show.line(f"metrics: {servers.enter_context(metrics)}")
        servers.enter_context(hint_after_ctrl_c(folder, experiment))
        yield
