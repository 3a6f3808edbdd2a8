"""Few labels: each edge has a fixed number of labels and a random number of samples (WKAFL).

The shares of its labels are random, too. Each edge draws independently, so edges can have samples
in common, and 3,000 edges can share 60,000 samples. An edge has no sample twice. Source: arXiv
2203.01214, algorithm 4.
"""

from __future__ import annotations

import numpy as np
from pydantic import Field

from edgefl.config.section import Section
from edgefl.errors import UserError


class Options(Section):
    """``labels``: L_num; ``min_samples``, ``max_samples``: D_min and D_max, which the paper does
    not give.
    """

    labels: int = Field(ge=1)
    """Number of labels of each edge (L_num)."""
    min_samples: int = Field(default=10, ge=1)
    """Least number of samples of an edge (D_min); the number is uniform from it to `max_samples`.
    """
    max_samples: int = Field(default=50, ge=1)
    """Largest number of samples of an edge (D_max); at most the samples of the rarest label."""


def split(
    labels: np.ndarray, edges: int, options: Options, rng: np.random.Generator
) -> list[np.ndarray]:
    """Return sorted sample indices of each edge.

    UserError if there are too few labels, or too few samples of one label.
    """
    if options.min_samples > options.max_samples:
        raise UserError(
            f"partition few_labels: min_samples {options.min_samples} is above max_samples"
            f" {options.max_samples}"
        )
    members = [np.flatnonzero(labels == label) for label in np.unique(labels)]
    if options.labels > len(members):
        raise UserError(
            f"partition few_labels: labels: expected at most {len(members)}, as many as there are,"
            f" found {options.labels}"
        )
    rarest = min(len(each) for each in members)
    if options.max_samples > rarest:
        raise UserError(
            f"partition few_labels: max_samples: expected at most {rarest}, the samples of the"
            f" rarest label, found {options.max_samples}"
        )
    return [_share(members, options, rng) for _ in range(edges)]


def _share(members: list[np.ndarray], options: Options, rng: np.random.Generator) -> np.ndarray:
    chosen = rng.choice(len(members), options.labels, replace=False)
    total = int(rng.integers(options.min_samples, options.max_samples, endpoint=True))
    counts = whole_parts(total, rng.random(options.labels))
    return np.sort(
        np.concatenate(
            [
                rng.choice(members[label], count, replace=False)
                for label, count in zip(chosen, counts)
            ]
        )
    )


def whole_parts(total: int, weights: np.ndarray) -> list[int]:
    """Divide ``total`` into integers proportional to ``weights``.

    They are rounded down; the rest goes to those that lost most by rounding.
    """
    exact = total * weights / weights.sum()
    counts = np.floor(exact).astype(np.int64)
    lost = np.argsort(counts - exact, kind="stable")
    counts[lost[: total - int(counts.sum())]] += 1
    return counts.tolist()
