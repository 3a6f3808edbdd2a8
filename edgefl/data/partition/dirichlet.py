"""Dirichlet(alpha): label skew with random shares; a smaller alpha gives fewer labels per edge.

The edges' shares of each label are one draw, as in Yurochkin et al. 2019 (arXiv 1905.12022); so
edges have different numbers of samples. Hsu et al. 2019 (arXiv 1909.06335) draw the labels of each
edge with the same prior, so all edges can have the same number of samples (``equal``).
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from pydantic import Field

from edgefl.config.section import Section
from edgefl.errors import UserError

DRAWS = 1000  # largest number of draws for "redraw"


class Options(Section):
    """``alpha``: concentration; ``min_samples``: the least samples of an edge; ``equal``: the same
    number for each; ``lacking``: what happens if an edge has fewer than ``min_samples``.
    """

    alpha: float = Field(gt=0, le=1e6)
    """Concentration of the Dirichlet distribution: a smaller value gives an edge fewer labels."""
    min_samples: int = Field(default=1, ge=1)
    """Least number of samples of each edge."""
    equal: bool = False
    """If true, all edges have the same number of samples and differ only in their labels."""
    lacking: Literal["fill", "redraw", "refuse"] = "fill"
    """What happens if a draw gives an edge fewer than `min_samples`: `"fill"` moves samples from
    the largest edges, `"redraw"` draws again (at most 1000 times), `"refuse"` ends with an error.
    """


def split(
    labels: np.ndarray, edges: int, options: Options, rng: np.random.Generator
) -> list[np.ndarray]:
    """Return sorted sample indices of each edge; every sample is used once.

    UserError if there are too few samples for ``min_samples``.
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
    """Return the edge of each sample, so that every edge has at least ``min_samples``.

    UserError if this is not possible with the option ``lacking``.
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
    """Return the edge of each sample: each label has its own shares for the edges."""
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
    """Return the edge of each sample. Each edge has a random mixture of labels; in turn, each edge
    draws a sample with its mixture until none is left.

    When a label is used up, the mixtures continue without it. Sizes differ by at most one.
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
    """Return the running sums of each edge's shares, over labels with samples left.

    The small constant lets an edge take any label if all its own labels are used up.
    """
    return np.cumsum((mixtures + 1e-12) * (left > 0), axis=1)


def _raise_to_minimum(owner: np.ndarray, edges: int, minimum: int, order: np.ndarray) -> None:
    """Move samples from the edge that has most at that moment to edges below the minimum.

    Samples late in ``order`` move first.
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
