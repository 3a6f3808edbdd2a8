"""One label: each edge has the same number of samples of a single label; no sample is used twice.

Labels are assigned in turn, or at random.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from pydantic import Field

from edgefl.config.section import Section
from edgefl.errors import UserError


class Options(Section):
    """``samples``: of each edge; ``deal``: how labels are assigned."""

    samples: int = Field(250, ge=1)
    """Number of samples of each edge, all of one label; no sample is used twice."""
    deal: Literal["turns", "drawn"] = "turns"
    """How labels are assigned: `"turns"`: edge n has label n modulo the number of labels;
    `"drawn"`: in random order.
    """


def split(
    labels: np.ndarray, edges: int, options: Options, rng: np.random.Generator
) -> list[np.ndarray]:
    """Return sorted sample indices of each edge.

    UserError if a label has too few samples for all edges that have it.
    """
    found = np.unique(labels)
    dealt = np.resize(np.arange(len(found)), edges)
    if options.deal == "drawn":
        dealt = rng.permutation(dealt)
    left = {
        place: rng.permutation(np.flatnonzero(labels == label)) for place, label in enumerate(found)
    }
    shares: list[np.ndarray] = []
    for place in dealt.tolist():
        share, left[place] = np.split(left[place], [min(options.samples, len(left[place]))])
        if len(share) < options.samples:
            wanted, there = (
                int((dealt == place).sum()) * options.samples,
                int((labels == found[place]).sum()),
            )
            want = f"{edges} edges want {wanted} samples of label {found[place]}"
            raise UserError(
                f"partition one_label: {want}, there are {there}; expected fewer samples or edges"
            )
        shares.append(np.sort(share))
    return shares
