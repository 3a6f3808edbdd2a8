"""Dirichlet(alpha): label skew; the edges' shares of each label are one draw, and the smaller alpha, the fewer labels an edge sees.

Label by label as in Yurochkin et al. 2019 (arXiv 1905.12022); Hsu et al. 2019 (arXiv 1909.06335) draw edge by edge with the same prior.
"""

from __future__ import annotations

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from edgefl.errors import UserError


class Options(BaseModel):
    """``alpha``: concentration; ``min_samples``: what the largest edges give to an edge that was left with less."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)
    alpha: float = Field(gt=0, le=1e6)
    min_samples: int = Field(default=1, ge=1)


def split(labels: np.ndarray, edges: int, options: Options, rng: np.random.Generator) -> list[np.ndarray]:
    """Sorted sample indices of each edge; every sample is used once. UserError if there are too few for ``min_samples``."""
    if len(labels) < edges * options.min_samples:
        raise UserError(f"partition dirichlet: {edges} edges x min_samples {options.min_samples} need more samples than the {len(labels)} there are")
    owner = np.empty(len(labels), dtype=np.int64)
    for label in np.unique(labels):
        members = rng.permutation(np.flatnonzero(labels == label))
        shares = rng.dirichlet(np.full(edges, options.alpha))
        cuts = np.round(np.cumsum(shares)[:-1] * len(members))
        owner[members] = np.searchsorted(cuts, np.arange(len(members)), side="right")
    _raise_to_minimum(owner, edges, options.min_samples, rng.permutation(len(labels)))
    return np.split(np.argsort(owner, kind="stable"), np.cumsum(np.bincount(owner, minlength=edges))[:-1])


def _raise_to_minimum(owner: np.ndarray, edges: int, minimum: int, order: np.ndarray) -> None:
    """Move samples, those late in ``order`` first, from whichever edge has most at that moment to the edges that lack some."""
    counts = np.bincount(owner, minlength=edges)
    stacks: dict[int, list[int]] = {}
    for poor in np.flatnonzero(counts < minimum):
        while counts[poor] < minimum:
            rich = int(counts.argmax())
            if rich not in stacks:
                stacks[rich] = [int(sample) for sample in order if owner[sample] == rich]
            owner[stacks[rich].pop()] = poor
            counts[rich] -= 1
            counts[poor] += 1
