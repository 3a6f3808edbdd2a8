"""``edgefl edge``: one edge, on this or another machine, for a running coordinator."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer

from edgefl.commands import show
from edgefl.commands.configs import located
from edgefl.config.experiment import EDGE_ID, PATTERNS
from edgefl.errors import UserError, printable

# seconds to wait between two strategies: the coordinator does its last evaluations before it
# listens again
BETWEEN_S = 900.0

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
Insecure = Annotated[bool, typer.Option("--insecure", help="Allow a network without keys.")]


def edge(
    connect: Connect,
    name: Name,
    keys: Keys = None,
    config: OwnConfig = None,
    data: DataFolder = None,
    shards: ShardsFolder = None,
    allow_task: AllowTask = None,
    insecure: Insecure = False,
) -> None:
    """Join a run as one edge: train and send updates until the coordinator ends the run."""
    from edgefl.hosts.wall.edge.host import MOST_TEXT, PATIENCE_S, EdgeHost
    from edgefl.hosts.wall.edge.side import SideBuilder
    from edgefl.hosts.wall.edge.worker import OwnMachine
    from edgefl.hosts.wall.keys import load_edge, must_have_keys
    from edgefl.protocol.errors import Refused, Unreachable

    if data is not None and shards is not None:
        raise UserError("edge: expected --data or --shards, found both")
    host = _host(connect)
    if not re.fullmatch(EDGE_ID, name):
        raise UserError(f"--id {name!r}: expected {PATTERNS[EDGE_ID]}")
    own = load_edge(keys, name) if keys else None
    show.warning(must_have_keys(host, own, insecure, said="--connect"))
    builder = SideBuilder(name, config, data, allow_task or [], shards)
    patience_s = PATIENCE_S
    show.line(f"{name}: joining {connect}")
    try:
        while True:
            finished = EdgeHost(name, connect, own, builder.side, OwnMachine()).run(patience_s)
            patience_s = BETWEEN_S
            reason = printable(finished.reason, MOST_TEXT)
            show.line(f"{name}: {builder.strategy}: the run is over ({reason})")
            if not finished.more:
                break
    except Unreachable as silence:
        raise UserError(f"{name}: {connect}: {silence}") from None
    except Refused as refusal:
        raise UserError(f"{name}: refused by {connect}: {refusal}") from None
    except KeyboardInterrupt:
        show.line(f"{name}: leaving")
    show.hint("the coordinator has the results: edgefl compare DIR")


def _host(address: str) -> str:
    scheme, _, rest = address.partition("://")
    host, colon, port = rest.rpartition(":")
    if scheme != "tcp" or not host or not colon or not port.isdigit():
        raise UserError(f"--connect {address!r}: expected tcp://HOST:PORT")
    return host
