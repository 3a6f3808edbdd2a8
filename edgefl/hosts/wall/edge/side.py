"""An edge's side of a run: from the coordinator's Setup to its actor.

It has no clock and no socket.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import orjson

from edgefl.config.experiment import MOST_SPEED, Experiment
from edgefl.errors import UserError, nearest
from edgefl.hosts.setup.learning import Learning, learning
from edgefl.hosts.setup.network import with_patterns
from edgefl.hosts.wall.edge.work import EdgeSide
from edgefl.loading.file import THEIRS, base_of, from_json, load, shared_digest
from edgefl.protocol.messages import Setup
from edgefl.protocol.transfers import most_body

# of a config: with other values, data and model are loaded anew
KEYS_OF_DATA = (
    "seed",
    "task",
    "flower",
    "data",
    "unlabelled",
    "partition",
    "model",
    "edges",
)


def side(learned: Learning, edge: str, index: int, data_digest: str, setup: Setup) -> EdgeSide:
    """Build an edge's side of a run. Its digests check that it fits the coordinator's."""
    experiment = learned.experiment
    entry = experiment.strategies[index]
    actor = learned.edge_maker(index)(edge)
    most_bytes = most_body(4 * learned.layout.size)
    digests = (shared_digest(experiment, entry), learned.layout.digest(), data_digest)
    speed, samples = experiment.chosen_speed, learned.samples[edge]
    return EdgeSide(actor, *digests, samples, speed, most_bytes, learned.frozen_digest())


class SideBuilder:
    """Builds this edge's side from the coordinator's Setup.

    Data and model are loaded once for all strategies. ``learned``: they are loaded already.
    """

    def __init__(
        self,
        name: str,
        config: Path | None,
        data: Path | None,
        allowed: list[str],
        shards: Path | None = None,
        learned: Learning | None = None,
    ) -> None:
        self.name, self.config, self.data, self.allowed = name, config, data, allowed
        self.shards, self.learned = shards, learned
        self.strategy = "no strategy"  # name of the last one

    def side(self, setup: Setup) -> EdgeSide:
        experiment, base = self.experiment(setup)
        self.strategy = experiment.strategies[0].name
        if self.learned is None or self._data_differs(self.learned.experiment, experiment):
            self.learned = learning(experiment, base, [self.name])
        # the strategy differs, its index does not
        self.learned = replace(self.learned, experiment=experiment, _chosen={}, speeds={})
        return side(self.learned, self.name, 0, self.learned.data_digest(), setup)

    def _data_differs(self, old: Experiment, experiment: Experiment) -> bool:
        return any(getattr(old, key) != getattr(experiment, key) for key in KEYS_OF_DATA)

    def experiment(self, setup: Setup) -> tuple[Experiment, Path | None]:
        """Return the experiment of this edge, and the folder for relative paths of its code.

        ``--data`` overrides the directory of data sets, ``--shards`` the source of the samples.
        """
        experiment, base = self._theirs_or_own(setup)
        changes = {} if self.data is None else {"dir": str(self.data)}
        if self.shards is not None:
            if experiment.data.source == "local":
                raise UserError('--shards: the run has data.source = "local": expected --data')
            of_seed = self.shards / f"seed{experiment.seed}"
            folder = of_seed if of_seed.is_dir() else self.shards
            changes = {"dir": str(folder), "source": "shard"}
        here = experiment.data.model_copy(update=changes)
        return experiment.model_copy(update={"data": here}), base

    def _theirs_or_own(self, setup: Setup) -> tuple[Experiment, Path | None]:
        """Return the coordinator's experiment, or this edge's own with the coordinator's strategy.

        It has one strategy, at index 0.
        """
        own = self.own()
        if own is None or self.config is None:
            return self._mine(from_json(setup.config, self.allowed), THEIRS), Path.cwd()
        base = base_of(self.config)
        return with_patterns(matched(own, setup.config), base), base

    def own(self) -> Experiment | None:
        """Return this edge's own experiment, if there is one.

        UserError if its file has a mistake, or this edge is not part of it.
        """
        return None if self.config is None else self._mine(load(self.config), str(self.config))

    def _mine(self, experiment: Experiment, said: str) -> Experiment:
        """Return the experiment; UserError if this edge is not part of it."""
        ids = experiment.edges.ids()
        if self.name not in ids:
            raise UserError(f"{said}: edges: no edge {self.name!r}{nearest(self.name, ids)}")
        return experiment


def matched(own: Experiment, config: str) -> Experiment:
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
