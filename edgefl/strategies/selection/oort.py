"""Oort: edges with a high loss on much data and a short time, and some that were never tried.

Lai, Zhu, Madhyastha, Chowdhury 2021 (OSDI, arXiv 2010.06081), algorithm 1 and sections 4.2 to 4.4.
What the paper leaves open, such as the scale of the utilities, follows the authors' code
(SymbioticLab/FedScale, thirdparty/oort).
"""

from __future__ import annotations

import math

import numpy as np
from pydantic import Field
from sortedcontainers.sortedlist import SortedList

from edgefl.strategies.base.events_and_decisions import EdgeJoined, Event, UpdateArrived
from edgefl.strategies.selection.selector import Selector, SelectorOptions, Stream

TEMPORAL = 0.1  # factor under the root of the temporal uncertainty, as in the paper
LEAST = 1e-12  # a weight of 0 would never be drawn, not even where all weights are 0
MOST = 1e100  # of U_i: an edge may claim any loss, and with infinite utilities no edge is drawn


class Options(SelectorOptions):
    """The paper's values, as far as it has them."""

    exploration: float = Field(0.9, ge=0, le=1)
    """Share of the selected edges that have not delivered so far, in the first round (epsilon)."""
    exploration_decay: float = Field(0.98, gt=0, le=1)
    """Factor of this share after each round."""
    exploration_least: float = Field(0.2, ge=0, le=1)
    """The share does not fall below this (0.3 in the authors' code)."""
    straggler_penalty: float = Field(2.0, ge=0)
    """Exponent alpha of (T / t_i)^alpha, for edges that take longer than T; 0: no penalty."""
    preferred_share: float = Field(0.3, gt=0, le=1)
    """T at the start: the time that this share of the edges with an update do not exceed. 1: no
    edge is too slow.
    """
    pacer_share: float = Field(0.05, ge=0, le=1)
    """What the pacer adds to `preferred_share` each time; 0: T keeps this share."""
    pacer_rounds: int = Field(20, ge=1)
    """Rounds after which the pacer compares the utility with that of as many rounds before (W)."""
    cut_off: float = Field(0.95, ge=0, le=1)
    """An edge can be selected for its utility if this is at least `cut_off` times that of the last
    one that would be selected by rank (c).
    """
    clip: float = Field(0.95, gt=0, le=1)
    """Larger statistical utilities count as this quantile of them (0.9 in the authors' code)."""
    most_updates: int | None = Field(None, ge=1)
    """An edge with more updates than this is not selected as long as others are idle (the
    blacklist; 10 in the paper); none: no limit, as in the authors' code.
    """
    blacklist_share: float = Field(0.3, ge=0, le=1)
    """The largest share of all edges that may be on the blacklist."""


class Oort(Selector):
    """Statistical utility  U_i = |B_i| sqrt(sum loss_k^2 / |B_i|) ;  temporal uncertainty  s_i =
    sqrt(0.1 ln R / L_i) , with R the round and L_i the round of the last update of i ;

    Util_i = (u_i + s_i) (T / t_i)^alpha if t_i > T, else u_i + s_i , with u_i = U_i cut at its
    ``clip`` quantile and scaled to 0 ... 1, and t_i the time of the last task. epsilon K of the K
    edges are drawn among those that have not delivered so far. The others are drawn with
    probabilities proportional to Util_i among those with Util_i >= c Util_(n), where Util_(n) is
    the n-th largest and n their number.

    Not as in the paper:

    - An update reports the mean of its batches' losses and its number of samples n_i. So U_i = n_i
      |mean loss|. That is the paper's value if all losses are equal, and less otherwise.
    - T is a quantile of the observed times, as in the authors' code, so that it needs no scale.
      Every W rounds, if the sum of U_i of the last W rounds is less than that of the W before, the
      pacer raises the quantile.
    - Untried edges are drawn uniformly: the paper prefers fast ones, but here no speed is known
      before the first task.
    - A round has as many selected edges as the largest selection. So an asynchronous strategy,
      which replaces one edge at a time, has rounds of ``concurrency`` edges. If epsilon K is no
      whole number, it is rounded up with the probability of its fraction.
    - A place is not left empty: edges of the blacklist are selected if no others are idle.

    A selection looks at all edges: 0.6 ms for 10,000 of them, 24 ms for 100,000.
    """

    needs_loss = True

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self.exploration = options.exploration
        self.preferred = options.preferred_share
        self.round = 1  # R
        self.size = 1  # edges of a round
        self.selected = 0  # edges selected in this round
        self.achieved = [0.0]  # sum of U_i of the updates that arrived, by round
        self.rows: dict[str, int] = {}  # edge -> its place in the arrays
        self.edges: list[str] = []
        self.idle = np.zeros(0, np.bool_)
        self.count = np.zeros(0, np.int64)  # updates
        self.utility = np.zeros(0)  # U_i
        self.took_s = np.zeros(0)  # t_i
        self.involved = np.zeros(0)  # L_i, of edges with an update

    def observe(self, event: Event, version: int, now: int) -> None:
        super().observe(event, version, now)
        if isinstance(event, EdgeJoined):
            self._row(event.edge)
        elif isinstance(event, UpdateArrived):
            row, edge = self._row(event.edge), event.edge
            samples = event.numbers.get("samples", self.samples.get(edge, 1))
            self.count[row] += 1
            self.utility[row] = min(samples * abs(self.losses[edge]), MOST)
            self.took_s[row] = self.took_ns[edge] / 1e9
            self.involved[row] = self.round
            self.achieved[-1] += float(self.utility[row])

    def moved(self, edge: str, idle: bool) -> None:
        self.idle[self._row(edge)] = idle

    def choose(self, idle: SortedList, count: int, stream: Stream) -> list[str]:
        if not count:
            return []
        self.size = max(self.size, count)
        if self.selected >= self.size:
            self._next_round()
        rng = stream()
        tried, listed = self.count > 0, self._blacklist()
        untried = np.flatnonzero(self.idle & ~tried)
        known = np.flatnonzero(self.idle & tried & ~listed)
        wanted, fraction = divmod(self.exploration * count, 1.0)
        explored = min(int(wanted) + int(rng.random() < fraction), len(untried))
        exploited = min(count - explored, len(known))
        explored = min(count - exploited, len(untried))
        rest = np.flatnonzero(self.idle & listed)
        rest = rest[np.argsort(self.count[rest], kind="stable")][: count - exploited - explored]
        rows = [
            *self._exploited(known, exploited, rng),
            *rng.choice(untried, explored, replace=False),
            *rest,
        ]
        self.selected += len(rows)
        return [self.edges[row] for row in rows]

    def utilities(self, rows: np.ndarray) -> np.ndarray:
        """Return Util_i of these edges, which have delivered."""
        options: Options = self.options
        stated, took_s = self.utility[rows], self.took_s[rows]
        highest = _quantile(stated, options.clip)
        lowest = 0.999 * float(stated.min())  # as in the authors' code: no edge has u_i = 0
        scaled = (np.minimum(stated, highest) - lowest) / max(highest - lowest, 1e-4)
        found: np.ndarray = scaled + np.sqrt(TEMPORAL * math.log(self.round) / self.involved[rows])
        preferred_s = self.preferred_s()
        slow = took_s > preferred_s
        found[slow] *= (preferred_s / took_s[slow]) ** options.straggler_penalty
        return found

    def preferred_s(self) -> float:
        """Return T in seconds: infinite if no edge is too slow."""
        if self.preferred >= 1:
            return math.inf
        return _quantile(self.took_s[self.count > 0], self.preferred)

    def _exploited(self, rows: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
        """Return ``count`` of the rows, drawn by utility."""
        if not count:
            return rows[:0]
        found = self.utilities(rows)
        limit = self.options.cut_off * np.partition(found, -count)[-count]
        rows, found = rows[found >= limit], found[found >= limit]
        # the least of e / weight, e exponential, are a draw without replacement by weight
        keys = rng.standard_exponential(len(rows)) / np.maximum(found, LEAST)
        return rows[np.argpartition(keys, count - 1)[:count]]

    def _blacklist(self) -> np.ndarray:
        """Return a mask of the edges that have delivered too often."""
        most, listed = self.options.most_updates, np.zeros(len(self.count), np.bool_)
        if most is None:
            return listed
        rows = np.flatnonzero(self.count > most)
        longest = int(self.options.blacklist_share * len(self.edges))
        listed[rows[np.argsort(-self.count[rows], kind="stable")][:longest]] = True
        return listed

    def _next_round(self) -> None:
        options: Options = self.options
        self.selected -= self.size
        self.round += 1
        if self.exploration > options.exploration_least:
            self.exploration = max(
                self.exploration * options.exploration_decay, options.exploration_least
            )
        window, done = options.pacer_rounds, len(self.achieved)
        if done >= 2 * window and done % window == 0:
            before, latest = self.achieved[-2 * window : -window], self.achieved[-window:]
            if sum(before) > sum(latest):
                self.preferred = min(self.preferred + options.pacer_share, 1.0)
        self.achieved.append(0.0)

    def _row(self, edge: str) -> int:
        """Return the edge's place in the arrays, which grow with the first edges."""
        row = self.rows.get(edge)
        if row is None:
            row = self.rows[edge] = len(self.edges)
            self.edges.append(edge)
            if row == len(self.count):
                self.idle, self.count, self.utility, self.took_s, self.involved = (
                    np.append(array, np.zeros(max(64, row), array.dtype))
                    for array in (self.idle, self.count, self.utility, self.took_s, self.involved)
                )
        return row


def _quantile(values: np.ndarray, share: float) -> float:
    """Return the value at place ``share`` of the sorted values, as in the authors' code."""
    place = min(int(len(values) * share), len(values) - 1)
    return float(np.partition(values, place)[place])


build = Oort
