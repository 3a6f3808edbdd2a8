"""Synchronous TDMA-FL: edges, or groups of S in turn, send in TDMA slots; no update is stale.

w_{k+1} is made only of updates that started from w_k.
"""

from __future__ import annotations

from typing import Any

from edgefl.strategies.base.slotted import Slotted


class SyncTdmaFL(Slotted):
    """With S = N as TDMA-FL. With S < N each model goes to the next group, and the channel is idle
    while that group computes.
    """

    @classmethod
    def concurrency(cls, options: Any, edges: int) -> int:
        return min(options.per_round or edges, edges)

    def first_groups(self, edges: list[str]) -> tuple[list[str], list[list[str]]]:
        first, *later = self.groups(edges)
        return first, later
