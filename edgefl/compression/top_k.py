"""The elements of largest magnitude, each with its place; the sender keeps the rest as its error.

Stich et al. 2018 (arXiv 1809.07599), definition 2.1: |x - top_k(x)|^2 <= (1 - k / n) |x|^2.
"""

from __future__ import annotations

import numpy as np
from pydantic import Field

from edgefl.compression.compressor import Bytes, MethodOptions, Tensors, count, joined
from edgefl.vectors import aligned

PLACE_BYTES, VALUE_BYTES = 4, 4


class Options(MethodOptions):
    """How much is sent."""

    share: float = Field(default=0.01, gt=0, le=1)
    """Share of the elements that is sent, at least one. Each takes 8 bytes."""


class TopK:
    """See the file's head."""

    of_change = True
    keeps_error = True

    def __init__(self, share: float) -> None:
        self.share = share

    def packed_bytes(self, tensors: Tensors) -> int:
        return (PLACE_BYTES + VALUE_BYTES) * count(self.share, sum(tensors))

    def pack(self, vector: np.ndarray, tensors: Tensors, rng: np.random.Generator) -> Bytes:
        number = count(self.share, vector.size)
        if not number:
            return np.empty(0, np.uint8)
        # of equal magnitudes any may be taken: which one, numpy decides alike for equal vectors
        found = np.sort(np.argpartition(np.abs(vector), -number)[-number:]).astype("<u4")
        return joined(found, vector[found].astype("<f4"))

    def unpack(self, packed: Bytes, tensors: Tensors) -> np.ndarray:
        size, half = sum(tensors), packed.size // 2
        places = np.ascontiguousarray(packed[:half]).view("<u4")
        if places.size and (places[-1] >= size or bool((places[1:] <= places[:-1]).any())):
            raise ValueError(f"places of {size} elements that are not in order, or outside of them")
        out = aligned(size)
        out[:] = 0
        out[places] = np.ascontiguousarray(packed[half:]).view("<f4")
        return out


def build(options: Options) -> TopK:
    """Return the method."""
    return TopK(options.share)
