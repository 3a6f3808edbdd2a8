"""IID: a random share of the samples for each edge; sizes differ by at most one."""

from __future__ import annotations

import numpy as np

from edgefl.config.section import Section
from edgefl.errors import UserError


class Options(Section):
    """No options."""


def split(
    labels: np.ndarray, edges: int, options: Options, rng: np.random.Generator
) -> list[np.ndarray]:
    """Return sorted sample indices of each edge; every sample is used once.

    UserError if there are fewer samples than edges.
    """
    if len(labels) < edges:
        raise UserError(
            f"partition iid: {edges} edges need at least as many samples, there are {len(labels)}"
        )
    return [np.sort(part) for part in np.array_split(rng.permutation(len(labels)), edges)]
