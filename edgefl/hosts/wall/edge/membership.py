"""One edge in the runs of its coordinators: in one run, or in run after run until a signal."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NoReturn

from edgefl.errors import UserError, printable
from edgefl.hosts.wall.edge.host import MOST_TEXT, PATIENCE_S, EdgeHost
from edgefl.hosts.wall.edge.side import SideBuilder
from edgefl.hosts.wall.edge.state_folder import StateFolder
from edgefl.hosts.wall.edge.work import EdgeSide
from edgefl.hosts.wall.edge.worker import OwnMachine
from edgefl.hosts.wall.keys import EdgeKeys
from edgefl.protocol.errors import Refused, Unreachable
from edgefl.protocol.messages import Setup
from edgefl.streams import Streams

# seconds to wait between two strategies: the coordinator does its last evaluations before it
# listens again
BETWEEN_S = 900.0
RESUMED_S = 600.0
# of an edge that waits forever: how long it tries an address, and the bounds of the pauses between
ATTEMPT_S, FIRST_PAUSE_S, LONGEST_PAUSE_S = 10.0, 1.0, 30.0
MOST_LINES = 100


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
