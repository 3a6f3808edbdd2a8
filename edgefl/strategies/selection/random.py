"""Idle edges at random, without replacement: every one is equally likely.

McMahan et al. 2017 (arXiv 1602.05629), algorithm 1: S_t, a random set of m clients.
"""

from __future__ import annotations

from sortedcontainers.sortedlist import SortedList

from edgefl.strategies.selection.selector import Selector, Stream


class RandomSelector(Selector):
    """If all idle edges are wanted, no random number is drawn."""

    observes = False

    def choose(self, idle: SortedList, count: int, stream: Stream) -> list[str]:
        have = len(idle)
        if count >= have:
            return list(idle)
        if count == 1:  # the same draw as ``choice``, in a quarter of its time
            return [idle[int(stream().integers(have))]]
        return [idle[index] for index in sorted(stream().choice(have, size=count, replace=False))]


build = RandomSelector
