"""One edge in the runs of its coordinators: in one run, or in run after run until a signal.

From each coordinator's Setup, ``SideBuilder`` makes the edge's side of the run.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

import orjson
import psutil

from edgefl.clocks.processes import edge_groups
from edgefl.clocks.setup.learning import Learning, learning
from edgefl.clocks.setup.network import emulated_devices, with_patterns
from edgefl.clocks.wall.edge.host import MOST_TEXT, PATIENCE_S, EdgeHost
from edgefl.clocks.wall.edge.state import StateFolder
from edgefl.clocks.wall.edge.work import EdgeSide, OwnMachine
from edgefl.clocks.wall.keys import EdgeKeys
from edgefl.config.experiment import MOST_SPEED, Experiment
from edgefl.config.file import THEIRS, base_of, from_json, load, shared_digest
from edgefl.errors import UserError, nearest, printable
from edgefl.protocol.codec import most_body
from edgefl.protocol.messages import Refused, Setup, Unreachable
from edgefl.streams import Streams
from emulator.host import cores

# of an experiment: with other values, data and model are loaded anew
KEYS_OF_DATA = (
    "seed",
    "task",
    "flower",
    "data",
    "unlabelled",
    "partition",
    "model",
    "edges",
    "held_out",
)
# seconds to wait between two strategies: the coordinator does its last evaluations before it
# listens again
BETWEEN_S = 900.0
RESUMED_S = 600.0
# of an edge that waits forever: how long it tries an address, and the bounds of the pauses between
ATTEMPT_S, FIRST_PAUSE_S, LONGEST_PAUSE_S = 10.0, 1.0, 30.0
MOST_LINES = 100


def processes_of(
    experiment: Experiment, edges: Sequence[str], per_process: int | str
) -> list[tuple[str, ...]]:
    """The edges of this host by process. UserError if a process may not open enough files."""
    native = set(edges) - emulated_devices(experiment)
    free = psutil.virtual_memory().available
    return edge_groups(edges, per_process, native, cores(), free)


def sides(learned: Learning, index: int, data_digest: str) -> Callable[[str, Setup], EdgeSide]:
    """What builds the sides of edges in a run of the strategy at ``index``.

    Their digests check that they fit the coordinator's. What they have in common is made once.
    """
    experiment = learned.experiment
    entry, make = experiment.strategies[index], learned.edge_maker(index)
    most_bytes, frozen = most_body(4 * learned.layout.size), learned.frozen_digest()
    digests = (shared_digest(experiment, entry), learned.layout.digest(), data_digest)

    def side(edge: str, setup: Setup) -> EdgeSide:
        speed, samples = experiment.chosen_speed, learned.samples[edge]
        return EdgeSide(make(edge), *digests, samples, speed, most_bytes, frozen)

    return side


class SideBuilder:
    """Builds the side of this edge, or of others on this host, from the coordinator's Setup.

    Data and model are loaded once for all strategies, anew for another seed. ``learned``: they are
    loaded already. ``edges``: whose data is loaded, of those that share a process; (): this edge's.
    """

    def __init__(
        self,
        name: str,
        config: Path | None,
        data: Path | None,
        allowed: list[str],
        shards: Path | None = None,
        learned: Learning | None = None,
        edges: Sequence[str] = (),
    ) -> None:
        self.name, self.config, self.data, self.allowed = name, config, data, allowed
        self.shards, self.learned, self.edges = shards, learned, edges or (name,)
        self.strategy = "no strategy"  # name of the last one
        self._made: tuple[Setup, Callable[[str, Setup], EdgeSide]] | None = None

    def side(self, setup: Setup, edge: str = "") -> EdgeSide:
        """The side of ``edge``, which has the same data and model; "": of this edge."""
        if self._made is None or self._made[0] != setup:
            self._made = setup, self._sides(setup)
        return self._made[1](edge or self.name, setup)

    def _sides(self, setup: Setup) -> Callable[[str, Setup], EdgeSide]:
        experiment, base = self.experiment(setup)
        self.strategy = experiment.strategies[0].name
        before = self.learned and self.learned.experiment
        if self.learned is None or any(
            getattr(before, key) != getattr(experiment, key) for key in KEYS_OF_DATA
        ):
            self.learned = learning(experiment, base, self.edges)
        # the strategy differs, its index does not
        self.learned = replace(self.learned, experiment=experiment, _chosen={}, speeds={})
        return sides(self.learned, 0, self.learned.data_digest())

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


class BackOff:
    """Pauses that double up to LONGEST_PAUSE_S, each shortened by a random share of up to a half.

    So edges that lost the same coordinator do not all return at the same moment. The same edge id
    gives the same pauses.
    """

    def __init__(self, name: str) -> None:
        self._rng = Streams(0).rng("pauses between two attempts to join", name)
        self._next_s = FIRST_PAUSE_S

    def pause_s(self) -> float:
        """Return the next pause, in seconds."""
        longest_s, self._next_s = self._next_s, min(2 * self._next_s, LONGEST_PAUSE_S)
        return longest_s * float(self._rng.uniform(0.5, 1.0))

    def reset(self) -> None:
        """Begin again with the shortest pause."""
        self._next_s = FIRST_PAUSE_S


class News:
    """Lines for the user that are not repeated until ``clear``."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self.say = say
        self._told: set[str] = set()

    def tell(self, line: str) -> None:
        if line in self._told:
            return
        if len(self._told) >= MOST_LINES:  # a peer that invents reasons must not fill the memory
            self._told.clear()
        self._told.add(line)
        self.say(line)

    def clear(self) -> None:
        self._told.clear()


class Membership:
    """Joins one edge to runs. ``find(patience_s)`` returns the coordinator's address.

    ``builder`` makes a SideBuilder for a new run. ``say`` prints a line for the user. ``state``:
    see EdgeHost.
    """

    def __init__(
        self,
        name: str,
        keys: EdgeKeys | None,
        find: Callable[[float], str],
        builder: Callable[[], SideBuilder],
        say: Callable[[str], None],
        state: StateFolder | None = None,
    ) -> None:
        self.name, self.keys, self.find, self.builder, self.say = name, keys, find, builder, say
        self.state = state
        # for a coordinator that has stopped answering in a run: it may be resumed
        self.patience_s = RESUMED_S
        self.news = News(say)
        self.joined = False  # since the last ``one_run`` began, a coordinator's Setup was built

    def one_run(self, patience_s: float = PATIENCE_S, between_s: float = BETWEEN_S) -> None:
        """Take part in one run, with all its strategies.

        Refused if the coordinator refuses this edge, Unreachable if it does not answer for
        ``patience_s``, for ``between_s`` between two strategies, or for ``self.patience_s`` in a
        run. UserError if this machine lacks what the run needs.
        """
        self.joined = False
        address, builder = self.find(patience_s), self.builder()
        self.news.tell(f"{self.name}: joining {address}")

        def build(setup: Setup) -> EdgeSide:
            side = builder.side(setup)
            self.joined = True
            return side

        more = True
        while more:
            host = EdgeHost(self.name, address, self.keys, build, OwnMachine(), state=self.state)
            try:
                finished = host.run(patience_s, self.patience_s)
            except Unreachable as silence:
                raise Unreachable(f"{address}: {silence}") from None
            except Refused as refusal:
                raise Refused(f"refused by {address}: {refusal}") from None
            more, patience_s = finished.more, between_s
            reason = printable(finished.reason, MOST_TEXT)
            line = f"{self.name}: {builder.strategy}: the run is over ({reason})"
            (self.say if self.joined else self.news.tell)(line)

    def forever(self) -> NoReturn:
        """Take part in run after run, and wait for the next coordinator in between.

        A refusal ends nothing: the next coordinator may accept this edge. Each reason is told once
        between two runs.
        """
        pauses = BackOff(self.name)
        while True:
            try:
                self.one_run(ATTEMPT_S, PATIENCE_S)
                if self.joined:
                    pauses.reset()
                    self.news.clear()
            except (Refused, UserError) as reason:
                self.news.tell(f"{self.name}: {reason}; trying again until a signal ends this edge")
            time.sleep(pauses.pause_s())
