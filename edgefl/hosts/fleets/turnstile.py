"""Who may train now: at most cores - 1 edges of this machine at a time, the earliest emulated deadline first."""

from __future__ import annotations

import heapq

SILENCE_S = 1.0  # a holder that has not given its turn back after so long is passed over


class Turnstile:
    """I/O-free; ``now_s`` is wall seconds. Turns are slices of at most 50 ms."""

    def __init__(self, turns: int) -> None:
        self.turns = turns
        self._waiting: list[tuple[int, int, str]] = []  # (due, order of asking, edge)
        self._holders: dict[str, float] = {}  # edge -> since
        self._asked = 0

    def want(self, edge: str, due_ns: int) -> None:
        heapq.heappush(self._waiting, (due_ns, self._asked, edge))
        self._asked += 1

    def done(self, edge: str) -> None:
        self._holders.pop(edge, None)

    def gone(self, edge: str) -> None:
        """The edge's process has ended."""
        self.done(edge)
        self._waiting = [entry for entry in self._waiting if entry[2] != edge]
        heapq.heapify(self._waiting)

    def grants(self, now_s: float) -> list[str]:
        """Edges whose turn begins now."""
        silent = [edge for edge, since in self._holders.items() if now_s - since > SILENCE_S]
        for edge in silent:
            del self._holders[edge]
        granted = []
        while self._waiting and len(self._holders) < self.turns:
            edge = heapq.heappop(self._waiting)[2]
            self._holders[edge] = now_s
            granted.append(edge)
        return granted
