"""Decide which edges of this machine may train now.

At most cores - 1 edges train at a time. The edge with the earliest emulated deadline goes first.
"""

from __future__ import annotations

import heapq

SILENCE_S = 1.0  # a turn that is not given back after this time (real) is withdrawn


class Turnstile:
    """Gives out turns to train, slices of at most 50 ms. It has no I/O."""

    def __init__(self, turns: int) -> None:
        self.turns = turns
        self._waiting: list[tuple[int, int, str]] = []  # (due, order of asking, edge)
        self._holders: dict[str, float] = {}  # edge -> since
        self._asked = 0
        self._frozen: set[str] = set()

    def want(self, edge: str, due_ns: int) -> None:
        heapq.heappush(self._waiting, (due_ns, self._asked, edge))
        self._asked += 1

    def done(self, edge: str) -> None:
        self._holders.pop(edge, None)

    def gone(self, edge: str) -> None:
        """The edge's process has ended."""
        self.thaw(edge)
        self.done(edge)
        self._waiting = [entry for entry in self._waiting if entry[2] != edge]
        heapq.heapify(self._waiting)

    def freeze(self, edge: str) -> None:
        """The edge's process is stopped: it neither holds a turn nor gets one until ``thaw``."""
        self.done(edge)
        self._frozen.add(edge)

    def thaw(self, edge: str) -> None:
        self._frozen.discard(edge)

    def grants(self, now_s: float) -> list[str]:
        """Give out all free turns and return the edges that get one. ``now_s``: wall seconds."""
        silent = [edge for edge, since in self._holders.items() if now_s - since > SILENCE_S]
        for edge in silent:
            del self._holders[edge]
        granted, passed_over = [], []
        while self._waiting and len(self._holders) < self.turns:
            entry = heapq.heappop(self._waiting)
            if entry[2] in self._frozen:
                passed_over.append(entry)
                continue
            self._holders[entry[2]] = now_s
            granted.append(entry[2])
        for entry in passed_over:
            heapq.heappush(self._waiting, entry)
        return granted
