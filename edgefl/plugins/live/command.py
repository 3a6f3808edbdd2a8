"""``edgefl view``: the live page of runs, without a run of this process."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from edgefl.commands import show
from edgefl.commands.options import port_of

PORT_OPTION = "--port"


def view(
    runs: Annotated[
        list[Path],
        typer.Argument(
            metavar="DIR...", help="Run directories, or folders of runs, such as runs/quickstart."
        ),
    ],
    port: Annotated[
        str,
        typer.Option(
            PORT_OPTION,
            metavar="PORT",
            help="Port of 127.0.0.1; 0: any free one.",
            show_default="8050, or the next free one",
        ),
    ] = "",
    open_: Annotated[bool, typer.Option("--open", help="Open the page in your browser.")] = False,
) -> None:
    """Show runs, running or finished, on a page in the browser, until Ctrl-C.

    The page is served on this machine only. Its address has a random token.
    """
    from edgefl.plugins.live.feeds import check
    from edgefl.plugins.live.serve import address, listen, needed, new_token, serve

    needed("edgefl view")
    for run in runs:
        check(run)
    token = new_token()
    with listen(port_of(port, PORT_OPTION), PORT_OPTION) as listening:
        where = address(listening, token)
        show.line(f"page: {where}")
        show.line("Ctrl-C ends it")
        if open_:
            import webbrowser

            webbrowser.open(where)
        with suppress(KeyboardInterrupt):
            serve(listening, token, runs)
    show.hint_about("report", runs)
