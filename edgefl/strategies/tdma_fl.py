"""TDMA-FL: S edges send in TDMA slots and get the new model; the others compute (Song, Hong).

Source: Song, Hong, algorithm 1.
"""

from __future__ import annotations

from typing import Any

from edgefl.strategies.base.slotted import Slotted


class TdmaFL(Slotted):
    """All start from w_0 at slot 0. w_{k+1} goes to S_k; its next updates are G - 1 rounds old."""


class SyncTdmaFL(Slotted):
    """Synchronous TDMA-FL: edges, or groups of S in turn, send in TDMA slots; no update is stale.

    w_{k+1} is made only of updates that started from w_k. With S = N as TDMA-FL. With S < N each
    model goes to the next group, and the channel is idle while that group computes.
    """

    @classmethod
    def concurrency(cls, options: Any, edges: int) -> int:
        return min(options.per_round or edges, edges)

    def first_groups(self, edges: list[str]) -> tuple[list[str], list[list[str]]]:
        first, *later = self.groups(edges)
        return first, later
