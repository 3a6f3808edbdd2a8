"""``edgefl edge``: one edge, on this or another machine, for a running coordinator."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer

from edgefl.commands import show
from edgefl.commands.configs import located
from edgefl.config.experiment import EDGE_ID, PATTERNS
from edgefl.errors import UserError

Connect = Annotated[
    str,
    typer.Option("--connect", metavar="tcp://HOST:PORT", help="Address of the coordinator."),
]
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
        callback=located,
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
Insecure = Annotated[bool, typer.Option("--insecure", help="Allow a network without keys.")]


def edge(
    name: Name,
    connect: Connect,
    forever: Forever = False,
    keys: Keys = None,
    config: OwnConfig = None,
    data: DataFolder = None,
    shards: ShardsFolder = None,
    allow_task: AllowTask = None,
    insecure: Insecure = False,
) -> None:
    """Join a run as one edge: train and send updates until the coordinator ends the run.

    Exit status 0: the run is over, or a signal ended this edge. 2: it was refused, or no
    coordinator answered.
    """
    from edgefl.hosts.wall.edge.membership import Membership
    from edgefl.hosts.wall.edge.side import SideBuilder
    from edgefl.hosts.wall.keys import load_edge, must_have_keys
    from edgefl.protocol.errors import Refused

    if data is not None and shards is not None:
        raise UserError("edge: expected --data or --shards, found both")
    host = _host(connect)
    if not re.fullmatch(EDGE_ID, name):
        raise UserError(f"--id {name!r}: expected {PATTERNS[EDGE_ID]}")
    own = load_edge(keys, name) if keys else None
    show.warning(must_have_keys(host, own, insecure, said="--connect"))

    def builder() -> SideBuilder:
        return SideBuilder(name, config, data, allow_task or [], shards)

    builder().own()  # a mistake in it ends this command now, not when a coordinator answers
    member = Membership(name, own, lambda: connect, builder, show.line)
    try:
        member.forever() if forever else member.one_run()
    except Refused as refusal:
        raise UserError(f"{name}: {refusal}") from None
    except KeyboardInterrupt:
        show.line(f"{name}: leaving")
    show.hint("the coordinator has the results: edgefl compare DIR")


def _host(address: str) -> str:
    scheme, _, rest = address.partition("://")
    host, colon, port = rest.rpartition(":")
    if scheme != "tcp" or not host or not colon or not port.isdigit():
        raise UserError(f"--connect {address!r}: expected tcp://HOST:PORT")
    return host
