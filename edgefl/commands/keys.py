"""``edgefl keys``: makes, revokes and renews the keys for a run on several machines."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from edgefl.commands import show
from edgefl.config.experiment import Edges
from edgefl.errors import UserError

app = typer.Typer(no_args_is_help=True, help="Keys of the coordinator and its edges (CURVE).")


@app.callback()
def keys() -> None:
    """Keys of the coordinator and its edges (CURVE)."""


@app.command()
def new(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A new directory.")],
    edges: Annotated[
        int | None,
        typer.Option(
            "--edges", min=1, max=10_000, help="Number of edges (e000, e001, ...). Default: 10."
        ),
    ] = None,
    ids: Annotated[
        str | None,
        typer.Option("--ids", metavar="A,B", help="Ids of the edges instead."),
    ] = None,
) -> None:
    """Make key pairs for the coordinator and each edge, and the list of edges that may join."""
    from edgefl.hosts.wall.keys import (
        new as write_keys,  # imported here, because the listings need no zmq
    )

    if edges is not None and ids is not None:
        raise UserError("keys new: expected --edges or --ids, found both")
    names = (
        [name.strip() for name in ids.split(",")]
        if ids is not None
        else (Edges() if edges is None else Edges(count=edges)).ids()
    )
    write_keys(folder, names)
    show.line(
        f"{folder}: keys for the coordinator and {len(names)} edge{'s' * (len(names) > 1)}"
        f" ({names[0]}{' ... ' + names[-1] if len(names) > 1 else ''})"
    )
    show.line(
        f"give each edge {folder / 'coordinator.key'} and its own"
        f" {folder / 'edges' / 'NAME.key_secret'}; {folder / 'coordinator.key_secret'} stays here"
    )
    show.hint(
        f"edgefl coordinator CONFIG --keys {folder}, and on each edge: edgefl edge --connect"
        f" tcp://HOST:PORT --id NAME --keys {folder}"
    )


Folder = Annotated[Path, typer.Argument(metavar="DIR", help="The directory of the keys.")]
OneEdge = Annotated[str, typer.Argument(metavar="EDGE", help="Id of the edge.")]
NEXT_START = "a coordinator that runs reads its list when it starts: end it, and resume the run"


@app.command()
def revoke(folder: Folder, edge: OneEdge) -> None:
    """Take an edge off the list: its key may not join from the coordinator's next start on."""
    from edgefl.hosts.wall import keys as files  # imported here, because it imports zmq

    files.revoke(folder, edge)
    show.line(f"{folder}: {edge} may not join any more; its keys are removed")
    show.hint(NEXT_START)


@app.command()
def renew(folder: Folder, edge: OneEdge) -> None:
    """Give an edge a new key: its old one may not join from the coordinator's next start on."""
    from edgefl.hosts.wall import keys as files  # imported here, because it imports zmq

    files.renew(folder, edge)
    show.line(f"{folder}: {edge} has a new key; its old one may not join any more")
    show.line(f"give the edge its new {folder / 'edges' / f'{edge}.key_secret'}")
    show.hint(NEXT_START)
