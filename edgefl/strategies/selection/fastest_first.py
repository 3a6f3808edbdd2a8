"""The edges whose last task took the shortest time; edges without a task so far come first.

Nishio, Yonetani 2019 (FedCS, arXiv 1804.08333), algorithm 3: clients are added greedily, the one
with the least additional time first, until the round's deadline. Here the number of edges is given
instead of the deadline, and the time is observed instead of computed from what clients tell about
their resources: from the assignment to the arrival, with both transfers.
"""

from __future__ import annotations

import math

from edgefl.strategies.selection.selector import Ranked


class FastestFirst(Ranked):
    """An edge whose last task failed counts as infinitely slow, until a task of it delivers.

    Of equally slow edges, the one whose last task began earliest comes first.
    """

    def key(self, edge: str) -> tuple[float, ...]:
        took = math.inf if edge in self.failures else self.took_ns.get(edge, -1)
        return took, self.assigned_ns.get(edge, -1)


build = FastestFirst
