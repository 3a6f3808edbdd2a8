"""The edges whose model, or whose last update, is oldest: the largest age of information.

Of models: Kadota et al. 2018 (arXiv 1801.01803), the greedy policy: the next packet goes to the
client with the highest age, which is the time since the newest packet that it got was generated.
Of updates: Yang, Arafa, Quek, Poor 2020 (arXiv 1910.14648): the age of an edge's update grows while
the server receives none from it, and is 0 when it receives one; here in time instead of rounds.
That paper's policy also looks at the state of the channels, which is left out here.
"""

from __future__ import annotations

from typing import Literal

from edgefl.strategies.selection.selector import Ranked, SelectorOptions


class Options(SelectorOptions):
    """What grows old."""

    of: Literal["model", "update"] = "model"
    """`"model"`: the newest model that the task of an edge's last update got, since its
    publication; `"update"`: the edge's last update, since its arrival.
    """


class OldestFirst(Ranked):
    """age_i = now - P(v_i) with P(v_i) the publication of the model; or now - the arrival of the
    last update of i. Before the first update it is infinite.

    Of equally old edges, those without a task so far come first, then those whose last task began
    earliest. A task that fails makes nothing younger: such an edge is selected again.
    """

    def key(self, edge: str) -> tuple[float, ...]:
        since_ns = self.model_ns if self.options.of == "model" else self.arrived_ns
        return since_ns.get(edge, -1), self.assigned_ns.get(edge, -1)


build = OldestFirst
