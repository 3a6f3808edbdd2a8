"""Power of choice: of some edges drawn by their data, those with the highest loss get work.

Cho, Wang, Joshi 2020 (arXiv 2010.01243), section 3, with the loss that an edge's last update told.
"""

import math

from edgefl.api import Selector, SelectorOptions


class Options(SelectorOptions):
    """Keys next to ``name`` in ``selection = {name = "my_selection.py:build"}``."""

    candidates: int = 6


class PowerOfChoice(Selector):
    needs_loss = True

    def choose(self, idle, count, stream):
        sizes = [self.samples[edge] for edge in idle]
        many = max(count, min(len(idle), self.options.candidates))
        shares = [size / sum(sizes) for size in sizes]
        drawn = stream().choice(len(idle), many, replace=False, p=shares)
        edges = sorted(idle[place] for place in drawn)
        edges.sort(key=lambda edge: self.losses.get(edge, math.inf), reverse=True)
        return edges[:count]


def build(options):
    return PowerOfChoice(options)
