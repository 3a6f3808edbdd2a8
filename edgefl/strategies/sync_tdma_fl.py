"""Synchronous TDMA-FL: w_{k+1} comes from updates of w_k alone, of all edges, or of one group of
S after another; nothing is ever stale.
"""

from __future__ import annotations

from typing import Any

from edgefl.strategies.base.slotted import Slotted


class SyncTdmaFL(Slotted):
    """As TDMA-FL with S = N; with S < N the next group gets each model, and the channel is idle
    while it computes.
    """

    @classmethod
    def concurrency(cls, options: Any, edges: int) -> int:
        return min(options.per_round or edges, edges)

    def first_groups(self, edges: list[str]) -> tuple[list[str], list[list[str]]]:
        first, *later = self.groups(edges)
        return first, later
