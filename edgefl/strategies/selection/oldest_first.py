"""The edges whose last update is oldest: the largest age of information at the server.

Yang, Arafa, Quek, Poor 2020 (arXiv 1910.14648): the age of an edge's update grows while the server
receives none from it, and begins at 0 when it receives one. Here in emulated time, not in rounds.
Of the paper's policy this is the part about the age; it also weighs the state of the channels.
"""

from __future__ import annotations

from edgefl.strategies.selection.selector import Ranked


class OldestFirst(Ranked):
    """age_i = now - arrival of the last update of i; before the first one it is infinite.

    Of edges that have never delivered, those without a task so far come first, then those whose
    last task began earliest. An edge whose tasks fail keeps growing older: it is selected again.
    """

    def key(self, edge: str) -> tuple[float, ...]:
        return self.arrived_ns.get(edge, -1), self.assigned_ns.get(edge, -1)


build = OldestFirst
