"""The commands of edges on other machines.

``edgefl edge``: one edge, on this or another machine, for a running coordinator. ``edgefl keys``:
makes, revokes and renews the keys for a run on several machines.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from edgefl.clocks.network_addresses import split_tcp
from edgefl.commands import show
from edgefl.commands.options import given
from edgefl.config.experiment import Edges
from edgefl.config.section import EDGE_ID, PATTERNS
from edgefl.entry_points import behind
from edgefl.errors import UserError
from edgefl.exit_status import NO_ANSWER, REFUSED
from edgefl.protocol.messages import Refused, Unreachable

if TYPE_CHECKING:
    from edgefl.clocks.wall.edge.state import StateFolder
    from edgefl.clocks.wall.keys import EdgeKeys

Connect = Annotated[
    str | None,
    typer.Option("--connect", metavar="tcp://HOST:PORT", help="Address of the coordinator."),
]
Discover = Annotated[
    bool,
    typer.Option(
        "--discover",
        help="Find a coordinator on the local network (mDNS); NAME: that experiment's.",
    ),
]
ExperimentName = Annotated[str | None, typer.Argument(metavar="[NAME]", show_default=False)]
Name = Annotated[
    str,
    typer.Option(
        "--id",
        metavar="NAME",
        help="Id of this edge in the experiment: e000, or one of edges.names.",
    ),
]
Keys = Annotated[Path | None, typer.Option("--keys", metavar="DIR", help="This edge's CURVE keys.")]
OwnConfig = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="FILE",
        help="Join only if the coordinator runs this experiment.",
        callback=given,
    ),
]
DataFolder = Annotated[
    Path | None,
    typer.Option(
        "--data",
        metavar="DIR",
        help="Directory of data sets on this machine (else $EDGEFL_DATA, else data/).",
    ),
]
ShardsFolder = Annotated[
    Path | None,
    typer.Option(
        "--shards",
        metavar="DIR",
        help="Read this edge's own file of `edgefl data shard` in DIR, or in DIR/seedN for seed N,"
        " whatever data.source the coordinator has.",
    ),
]
AllowTask = Annotated[
    list[str] | None,
    typer.Option(
        "--allow-task", metavar="NAME", help="Your own code that the coordinator may use here."
    ),
]
Forever = Annotated[
    bool,
    typer.Option(
        "--forever", help="Join run after run, and wait in between, until a signal ends this edge."
    ),
]
Patience = Annotated[
    float | None,
    typer.Option(
        "--patience",
        metavar="SECONDS",
        min=0,
        help="How long to wait in a run for a coordinator that has stopped answering: it may be"
        " resumed. Default: 600; with --forever and --connect without end.",
        show_default=False,
    ),
]
State = Annotated[
    Path | None,
    typer.Option(
        "--state",
        metavar="DIR",
        help="Keep updates that are not acknowledged in DIR, and go on with them when this edge is"
        " started again.",
    ),
]
Insecure = Annotated[bool, typer.Option("--insecure", help="Allow a network without keys.")]


def edge(
    name: Name,
    experiment: ExperimentName = None,
    connect: Connect = None,
    discover: Discover = False,
    forever: Forever = False,
    keys: Keys = None,
    config: OwnConfig = None,
    data: DataFolder = None,
    shards: ShardsFolder = None,
    allow_task: AllowTask = None,
    patience: Patience = None,
    state: State = None,
    insecure: Insecure = False,
) -> None:
    """Join a run as one edge: train and send updates until the coordinator ends the run.

    Exit status 0: the run is over, or a signal ended this edge. 2: bad input. 75: no coordinator
    answered. 77: the coordinator refused this edge.
    """
    if data is not None and shards is not None:
        raise UserError("edge: expected --data or --shards, found both")
    if not re.fullmatch(EDGE_ID, name):
        raise UserError(f"--id {name!r}: expected {PATTERNS[EDGE_ID]}")
    try:
        # inside: a signal may arrive while torch is imported
        from edgefl.clocks.wall.edge.membership import Membership, SideBuilder

        def builder() -> SideBuilder:
            return SideBuilder(name, config, data, allow_task or [], shards)

        own = _keys(keys, name)
        find = _find(connect, discover, experiment, own, insecure)
        builder().own()  # a mistake in it ends this command now, not when a coordinator answers
        member = Membership(name, own, find, builder, show.line, _claimed(state, name))
        if patience is not None:
            member.patience_s = patience
        elif forever and connect:  # the next coordinator at this address is noticed in any case
            member.patience_s = math.inf
        if discover:
            show.line(f"{name}: looking for a coordinator on the local network")
        member.forever() if forever else member.one_run()
    except Refused as refusal:
        status = NO_ANSWER if isinstance(refusal, Unreachable) else REFUSED
        raise UserError(f"{name}: {refusal}", status) from None
    except KeyboardInterrupt:
        show.line(f"{name}: leaving")
    show.hint("the coordinator has the results: edgefl compare DIR")


def _keys(folder: Path | None, name: str) -> EdgeKeys | None:
    """The keys of this edge. UserError also if this host lacks the meter that its user names."""
    from edgefl.clocks.wall.edge.machine import host_meter
    from edgefl.clocks.wall.keys import load_edge

    host_meter()
    return load_edge(folder, name) if folder else None


def _claimed(folder: Path | None, name: str) -> StateFolder | None:
    """The folder for the state of this edge, locked; UserError if that is impossible."""
    from edgefl.clocks.wall.edge.state import StateFolder
    from edgefl.clocks.wall.system import OWN_SYSTEM

    if folder is None:
        return None
    state = StateFolder(folder, name, OWN_SYSTEM.disk)
    state.claim()
    return state


def _find(
    connect: str | None, discover: bool, name: str | None, keys: EdgeKeys | None, insecure: bool
) -> Callable[[float], str]:
    """Return what finds the coordinator's address: given patience, in seconds.

    Without keys, the coordinator must be on this machine, or the network must be a closed lab.
    """
    from edgefl.clocks.wall.keys import must_have_keys

    if (connect is None) is not discover:
        found = "both" if discover else "neither"
        raise UserError(f"edge: expected --connect tcp://HOST:PORT or --discover, found {found}")
    if connect is not None:
        if name is not None:
            raise UserError(f"edge: {name!r}: a name is for --discover, not for --connect")
        show.warning(must_have_keys(_host(connect), keys, insecure, said="--connect"))
        return lambda patience_s: connect
    search, warned = behind("--discover")(name or "", keys is not None), ""

    def find(patience_s: float) -> str:
        nonlocal warned
        found, address = search(patience_s)
        warning = must_have_keys(_host(address), keys, insecure, said=f"--discover: {found!r}")
        if warning != warned:  # once, not at each attempt
            show.warning(warning)
            warned = warning or ""
        return address

    return find


def _host(address: str) -> str:
    where = split_tcp(address)
    if where is None:
        raise UserError(
            f"--connect {address!r}: expected tcp://HOST:PORT, such as tcp://192.0.2.1:7700 or"
            " tcp://[2001:db8::1]:7700"
        )
    return where[0]


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
    from edgefl.clocks.wall.keys import (
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
    from edgefl.clocks.wall import keys as files  # imported here, because it imports zmq

    files.revoke(folder, edge)
    show.line(f"{folder}: {edge} may not join any more; its keys are removed")
    show.hint(NEXT_START)


@app.command()
def renew(folder: Folder, edge: OneEdge) -> None:
    """Give an edge a new key: its old one may not join from the coordinator's next start on."""
    from edgefl.clocks.wall import keys as files  # imported here, because it imports zmq

    files.renew(folder, edge)
    show.line(f"{folder}: {edge} has a new key; its old one may not join any more")
    show.line(f"give the edge its new {folder / 'edges' / f'{edge}.key_secret'}")
    show.hint(NEXT_START)
