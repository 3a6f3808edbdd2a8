"""Dirichlet(alpha): label skew; the edges' shares of each label are one draw, and the smaller
alpha, the fewer labels an edge sees.

Label by label as in Yurochkin et al. 2019 (arXiv 1905.12022), which leaves edges with much or
little; Hsu et al. 2019 (arXiv 1909.06335) draw edge by edge with the same prior, which can give all
of them as much (``equal``).
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from edgefl.errors import UserError

DRAWS = 1000  # then "redraw" gives up


class Options(BaseModel):
    """``alpha``: concentration; ``min_samples``: the least that an edge has; ``equal``: as much for
    each.

    ``lacking``: what happens if a draw leaves an edge with less than ``min_samples``: "fill" takes
    from the largest edges, "redraw" draws again, "refuse" ends with an error.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)
    alpha: float = Field(gt=0, le=1e6)
    """Concentration: the smaller, the fewer labels an edge sees."""
    min_samples: int = Field(default=1, ge=1)
    """Every edge gets at least this many."""
    equal: bool = False
    """Edges differ in their labels but not in how many samples they have."""
    lacking: Literal["fill", "redraw", "refuse"] = "fill"
    """If a draw gives an edge less: `"fill"` takes from the largest edges, `"redraw"` draws again,
    `"refuse"` ends with an error.
    """


def split(
    labels: np.ndarray, edges: int, options: Options, rng: np.random.Generator
) -> list[np.ndarray]:
    """Sorted sample indices of each edge; every sample is used once. UserError if there are too
    few for ``min_samples``.
    """
    if len(labels) < edges * options.min_samples:
        raise UserError(
            f"partition dirichlet: {edges} edges x min_samples {options.min_samples} need more"
            f" samples than the {len(labels)} there are"
        )
    if options.equal:
        owner = _equal_shares(labels, edges, options.alpha, rng)
    else:
        owner = _with_minimum(labels, edges, options, rng)
    return np.split(
        np.argsort(owner, kind="stable"), np.cumsum(np.bincount(owner, minlength=edges))[:-1]
    )


def _with_minimum(
    labels: np.ndarray, edges: int, options: Options, rng: np.random.Generator
) -> np.ndarray:
    """The edge of each sample, such that every edge has ``min_samples``. UserError if that
    cannot be had as the options want it.
    """
    for _ in range(DRAWS if options.lacking == "redraw" else 1):
        owner = _by_label(labels, edges, options.alpha, rng)
        counts = np.bincount(owner, minlength=edges)
        if counts.min() >= options.min_samples:
            return owner
    if options.lacking == "fill":
        _raise_to_minimum(owner, edges, options.min_samples, rng.permutation(len(labels)))
        return owner
    problem = (
        f"edge {counts.argmin()} of {edges} got {counts.min()} samples, expected at least"
        f" min_samples {options.min_samples}"
    )
    ways = 'another seed, a larger alpha, or lacking = "fill"'
    raise UserError(
        "partition dirichlet:"
        f" {problem}{f' (the last of {DRAWS} draws)' if options.lacking == 'redraw' else ''}:"
        f" {ways}"
    )


def _by_label(labels: np.ndarray, edges: int, alpha: float, rng: np.random.Generator) -> np.ndarray:
    """The edge of each sample: every label's samples are cut by shares of its own."""
    owner = np.empty(len(labels), dtype=np.int64)
    for label in np.unique(labels):
        members = rng.permutation(np.flatnonzero(labels == label))
        shares = rng.dirichlet(np.full(edges, alpha))
        cuts = np.round(np.cumsum(shares)[:-1] * len(members))
        owner[members] = np.searchsorted(cuts, np.arange(len(members)), side="right")
    return owner


def _equal_shares(
    labels: np.ndarray, edges: int, alpha: float, rng: np.random.Generator
) -> np.ndarray:
    """The edge of each sample: each edge draws its mixture of labels; they take turns in drawing a
    sample by it until nothing is left.

    Once a label is used up, the mixtures go on without it. Sizes differ by one at most.
    """
    members = [
        list(rng.permutation(np.flatnonzero(labels == label))) for label in np.unique(labels)
    ]
    left = np.array([len(each) for each in members])
    mixtures = rng.dirichlet(np.full(len(members), alpha), size=edges)
    owner, reach = np.empty(len(labels), dtype=np.int64), _reach(mixtures, left)
    for edge, draw in zip(np.resize(np.arange(edges), len(labels)), rng.random(len(labels))):
        label = int(np.searchsorted(reach[edge], draw * reach[edge, -1], side="right"))
        owner[members[label].pop()] = edge
        left[label] -= 1
        if not left[label]:
            reach = _reach(mixtures, left)
    return owner


def _reach(mixtures: np.ndarray, left: np.ndarray) -> np.ndarray:
    """Running sums of each edge's shares of the labels that are left; the little more lets an
    edge whose labels are all used up take any other.
    """
    return np.cumsum((mixtures + 1e-12) * (left > 0), axis=1)


def _raise_to_minimum(owner: np.ndarray, edges: int, minimum: int, order: np.ndarray) -> None:
    """Move samples, those late in ``order`` first, from whichever edge has most at that moment
    to the edges that lack some.
    """
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
