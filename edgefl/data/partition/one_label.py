"""One label an edge: as many samples of a single label for each, labels dealt out in turn (or
drawn), no sample used twice.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from edgefl.errors import UserError


class Options(BaseModel):
    """``samples`` of each edge; ``deal = "drawn"``: which edge has which label is drawn, instead
    of edge n having label n modulo the number of labels.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)
    samples: int = Field(250, ge=1)
    """Samples of each edge, all of one label; no sample is used twice."""
    deal: Literal["turns", "drawn"] = "turns"
    """Edge n has label n modulo their number; `"drawn"`: which edge has which is drawn."""


def split(
    labels: np.ndarray, edges: int, options: Options, rng: np.random.Generator
) -> list[np.ndarray]:
    """Sorted sample indices of each edge. UserError if a label has too few samples for all edges
    that have it.
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
