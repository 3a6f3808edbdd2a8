"""``edgefl edge``: one edge, on this or another machine, for a running coordinator."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import orjson
import typer

from edgefl.commands import show
from edgefl.commands.configs import located
from edgefl.config.experiment import EDGE_ID, MOST_SPEED, PATTERNS
from edgefl.errors import UserError, nearest, printable

if TYPE_CHECKING:
    from edgefl.config.experiment import Experiment
    from edgefl.protocol.messages import Setup

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
    allow_task: AllowTask = None,
    insecure: Insecure = False,
) -> None:
    """Join a run as one edge: train and send updates until the coordinator ends the run."""
    from edgefl.hosts.wall.edge.host import MOST_TEXT, PATIENCE_S, EdgeHost
    from edgefl.hosts.wall.edge.worker import OwnMachine
    from edgefl.hosts.wall.keys import load_edge, must_have_keys
    from edgefl.protocol.errors import Refused, Unreachable

    host = _host(connect)
    if not re.fullmatch(EDGE_ID, name):
        raise UserError(f"--id {name!r}: expected {PATTERNS[EDGE_ID]}")
    own = load_edge(keys, name) if keys else None
    show.warning(must_have_keys(host, own, insecure, said="--connect"))
    builder = SideBuilder(name, config, data, allow_task or [])
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


class SideBuilder:
    """Builds this edge's side from the coordinator's Setup.

    Data and model are loaded once for all strategies.
    """

    def __init__(
        self, name: str, config: Path | None, data: Path | None, allowed: list[str]
    ) -> None:
        self.name, self.config, self.data, self.allowed = name, config, data, allowed
        self.learned: Any = None
        self.strategy = "no strategy"  # name of the last one

    def side(self, setup: Setup) -> Any:
        from edgefl.hosts.setup.learning import learning
        from edgefl.hosts.wall.fleet.warm import side

        experiment, base = self.experiment(setup)
        self.strategy = experiment.strategies[0].name
        if self.learned is None or self._data_differs(experiment):
            self.learned = learning(experiment, base, [self.name])
        # the strategy differs, its index does not
        self.learned = replace(self.learned, experiment=experiment, _chosen={})
        return side(self.learned, self.name, 0, self.learned.data_digest(), setup)

    def _data_differs(self, experiment: Experiment) -> bool:
        old = self.learned.experiment
        return any(
            getattr(old, key) != getattr(experiment, key)
            for key in ("seed", "task", "data", "unlabelled", "partition", "model", "edges")
        )

    def experiment(self, setup: Setup) -> tuple[Experiment, Path | None]:
        """Return the experiment of this edge, and the folder for relative paths of its code.

        ``--data`` overrides the directory of data sets.
        """
        experiment, base = self._theirs_or_own(setup)
        if self.data is not None:
            here = experiment.data.model_copy(update={"dir": str(self.data)})
            experiment = experiment.model_copy(update={"data": here})
        return experiment, base

    def _theirs_or_own(self, setup: Setup) -> tuple[Experiment, Path | None]:
        """Return the coordinator's experiment, or this edge's own with the coordinator's strategy.

        It has one strategy, at index 0.
        """
        from edgefl.loading.file import THEIRS, base_of, from_json, load

        if self.config is None:
            return self._mine(from_json(setup.config, self.allowed), THEIRS), Path.cwd()
        own = self._mine(load(self.config), str(self.config))
        return _same(own, setup.config), base_of(self.config)

    def _mine(self, experiment: Experiment, said: str) -> Experiment:
        """Return the experiment; UserError if this edge is not part of it."""
        ids = experiment.edges.ids()
        if self.name not in ids:
            raise UserError(f"{said}: edges: no edge {self.name!r}{nearest(self.name, ids)}")
        return experiment


def _same(own: Experiment, config: str) -> Experiment:
    """Return this edge's experiment with the seed and strategy that the coordinator runs now.

    Also with the coordinator's speed if ``own`` leaves it open. If it has no such seed or strategy,
    the first is used: then the digests differ and the coordinator refuses the edge.
    """
    try:
        theirs = orjson.loads(config)
        seed, speed, entries = theirs["seed"], float(theirs["speed"]), theirs["strategies"]
        if not 0 < speed <= MOST_SPEED:
            raise ValueError(speed)
    except (ValueError, KeyError, TypeError):
        seed, speed, entries = None, own.chosen_speed, None
    seeds, same = (
        own.by_seed(),
        [
            entry
            for entry in own.strategies
            if [entry.model_dump(mode="json", exclude_none=True)] == entries
        ],
    )
    of_seed = next((one for one in seeds if one.seed == seed), seeds[0])
    return of_seed.model_copy(
        update={
            "strategies": ((same or own.strategies)[0],),
            "speed": speed if own.speed == "auto" else own.speed,
        }
    )
