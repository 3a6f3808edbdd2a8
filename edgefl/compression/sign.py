"""One bit per element: its sign, times the mean magnitude of its tensor.

Karimireddy et al. 2019 (arXiv 1901.09847), algorithm 1: C(x) = |x|_1 / n sign(x), which is a
contraction with 1 - |x|_1^2 / (n |x|_2^2). The sender keeps what is lost as its error. An element
that is 0 counts as positive.
"""

from __future__ import annotations

import numpy as np

from edgefl.compression.compressor import Bytes, MethodOptions, Tensors, joined, pieces
from edgefl.vectors import aligned

SCALE_BYTES = 4  # of each tensor


class Options(MethodOptions):
    """None."""


class Sign:
    """See the file's head."""

    of_change = True
    keeps_error = True

    def packed_bytes(self, tensors: Tensors) -> int:
        return SCALE_BYTES * len(tensors) + (sum(tensors) + 7) // 8

    def pack(self, vector: np.ndarray, tensors: Tensors, rng: np.random.Generator) -> Bytes:
        means = [
            np.abs(tensor).mean(dtype=np.float64) if tensor.size else 0.0
            for tensor in pieces(vector, tensors)
        ]
        return joined(np.array(means, "<f4"), np.packbits(vector >= 0))

    def unpack(self, packed: Bytes, tensors: Tensors) -> np.ndarray:
        head, size = SCALE_BYTES * len(tensors), sum(tensors)
        scales = np.ascontiguousarray(packed[:head]).view("<f4")
        out = aligned(size)
        out[:] = np.unpackbits(packed[head:], count=size)
        out *= 2
        out -= 1
        for scale, tensor in zip(scales, pieces(out, tensors)):
            tensor *= scale
        return out


def build(options: Options) -> Sign:
    """Return the method."""
    return Sign()
