"""Edges in turn, in the order of their ids; an edge that is not idle loses its turn.

Yang, Liu, Quek, Poor 2019 (arXiv 1908.06287): round robin, with groups that take turns.
Here the next ``count`` idle edges are the group, since edges come and go.
"""

from __future__ import annotations

from sortedcontainers.sortedlist import SortedList

from edgefl.strategies.selection.selector import Selector, Stream


class RoundRobin(Selector):
    """Begins after the edge that was selected last. The first id follows the last one."""

    observes = False

    def __init__(self) -> None:
        super().__init__()
        self.last = ""  # the edge that was selected last; "" is before every id

    def choose(self, idle: SortedList, count: int, stream: Stream) -> list[str]:
        begin = idle.bisect_right(self.last)
        chosen = list(idle[begin : begin + count])
        chosen += idle[: count - len(chosen)]
        self.last = chosen[-1] if chosen else self.last
        return chosen


build = RoundRobin
