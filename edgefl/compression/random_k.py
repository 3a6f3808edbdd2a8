"""Elements drawn by lot: a seed says which, so that no places are sent.

Stich et al. 2018 (arXiv 1809.07599), definition 2.1: without scaling, the mean of |x - C(x)|^2 is
(1 - k / n) |x|^2, and the sender keeps the rest as its error. ``unbiased = true`` sends n / k of
each instead, so that the mean of what arrives is x; then no error is kept.
"""

from __future__ import annotations

import numpy as np
from pydantic import Field

from edgefl.compression.compressor import Bytes, MethodOptions, Tensors, count, joined
from edgefl.vectors import aligned

SEED_BYTES, VALUE_BYTES = 8, 4


class Options(MethodOptions):
    """How much is sent, and whether it is scaled."""

    share: float = Field(default=0.01, gt=0, le=1)
    """Share of the elements that is sent, at least one. Each takes 4 bytes."""
    unbiased: bool = False
    """Send each element times n / k and keep no error."""


class RandomK:
    """See the file's head."""

    of_change = True

    def __init__(self, share: float, unbiased: bool) -> None:
        self.share, self.unbiased = share, unbiased
        self.keeps_error = not unbiased

    def packed_bytes(self, tensors: Tensors) -> int:
        return SEED_BYTES + VALUE_BYTES * count(self.share, sum(tensors))

    def pack(self, vector: np.ndarray, tensors: Tensors, rng: np.random.Generator) -> Bytes:
        seed = rng.integers(0, 2**63, dtype=np.uint64)
        number = count(self.share, vector.size)
        values = vector[drawn(int(seed), vector.size, number)]
        if self.unbiased and number:
            values = values * np.float32(vector.size / number)
        return joined(np.array([seed], "<u8"), values.astype("<f4"))

    def unpack(self, packed: Bytes, tensors: Tensors) -> np.ndarray:
        size = sum(tensors)
        seed = int(np.ascontiguousarray(packed[:SEED_BYTES]).view("<u8")[0])
        values = np.ascontiguousarray(packed[SEED_BYTES:]).view("<f4")
        out = aligned(size)
        out[:] = 0
        out[drawn(seed, size, values.size)] = values
        return out


def drawn(seed: int, size: int, number: int) -> np.ndarray:
    """Return ``number`` different places below ``size``, in order; every set is equally likely.

    Places with the smallest of random 64-bit keys. Both sides draw them, perhaps with different
    versions of numpy: the raw stream of a bit generator is the same in all of them.
    """
    keys = np.random.Philox(key=seed).random_raw(size)
    if number >= size:
        return np.arange(size)
    return np.sort(np.argpartition(keys, number)[:number])


def build(options: Options) -> RandomK:
    """Return the method."""
    return RandomK(options.share, options.unbiased)
