"""The edges' shares of the training samples, as one array.

100,000 arrays of two samples each would take more memory and time than their samples.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np


class EdgeShares(Mapping[str, np.ndarray]):
    """Edge id -> indices of its training samples, in the order of the edges.

    ``indices``: those of all edges, one after the other. A share is a view of it.
    """

    def __init__(self, shares: Mapping[str, np.ndarray]) -> None:
        self._places = {edge: place for place, edge in enumerate(shares)}
        sizes = np.fromiter(map(len, shares.values()), np.int64, len(shares))
        self.indices = np.concatenate(list(shares.values())) if shares else np.zeros(0, np.int64)
        self._ends = np.cumsum(sizes)
        # by edge: how many samples; do not change it
        self.sizes: dict[str, int] = dict(zip(shares, sizes.tolist()))

    def __getitem__(self, edge: str) -> np.ndarray:
        end = int(self._ends[self._places[edge]])
        return self.indices[end - self.sizes[edge] : end]

    def __contains__(self, edge: object) -> bool:
        return edge in self._places

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)
