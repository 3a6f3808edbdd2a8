"""Settings drawn at random, each at most once.

J. Bergstra and Y. Bengio, "Random Search for Hyper-Parameter Optimization", JMLR 13 (2012): of many
keys few matter, and drawn settings try more values of each than a grid of the same size.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from edgefl.plugins.sweep.choice import Listed, drawn
from edgefl.plugins.sweep.metrics import Metric
from edgefl.plugins.sweep.settings import GridAxis, Setting, settings
from edgefl.streams import Streams

MOST_MISSES = 1000  # draws in a row that give nothing new


def sampler(axes: Sequence[GridAxis], trials: int, metric: Metric, seed: int) -> Listed:
    """Draw ``trials`` settings, or all if a grid has no more."""
    rng = Streams(seed).rng("sweep")
    if all(axis.span is None for axis in axes) and (
        prod(len(axis.values) for axis in axes) <= trials
    ):
        return Listed(tuple(settings(axes)))
    found: dict[Setting, None] = {}
    misses = 0
    while len(found) < trials and misses < MOST_MISSES:
        before = len(found)
        found[Setting(tuple((axis.key, drawn(axis, rng)) for axis in axes))] = None
        misses = misses + 1 if len(found) == before else 0
    return Listed(tuple(found))
