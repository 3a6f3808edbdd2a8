"""A quarter of the bytes: 255 levels per tensor, with stochastic rounding.

QSGD (Alistarh et al. 2017, arXiv 1610.02132, section 3) with the largest magnitude of a tensor in
place of its norm: x / scale lies in -127 to 127, and goes up with the probability of its fractional
part. So the mean of what arrives is x, and the error of an element is below scale = max|x| / 127.
"""

from __future__ import annotations

import numpy as np

from edgefl.compression.compressor import Bytes, MethodOptions, Tensors, joined, pieces
from edgefl.vectors import aligned

LEVELS = 127
SCALE_BYTES = 4  # of each tensor


class Options(MethodOptions):
    """None."""


class Int8:
    """See the file's head."""

    of_change = False
    keeps_error = False

    def packed_bytes(self, tensors: Tensors) -> int:
        return SCALE_BYTES * len(tensors) + sum(tensors)

    def pack(self, vector: np.ndarray, tensors: Tensors, rng: np.random.Generator) -> Bytes:
        scales, levels = np.zeros(len(tensors), "<f4"), np.empty(vector.size, np.int8)
        for at, (tensor, level) in enumerate(zip(pieces(vector, tensors), pieces(levels, tensors))):
            if tensor.size and (largest := float(np.abs(tensor).max())):
                scales[at] = scale = np.float32(largest / LEVELS)
                # below the smallest normal float the division may exceed 127
                shares = tensor / scale if scale else np.zeros_like(tensor)
                shares += rng.random(tensor.size, dtype=np.float32)
                level[:] = np.clip(np.floor(shares), -LEVELS, LEVELS)
            else:
                level[:] = 0
        return joined(scales, levels)

    def unpack(self, packed: Bytes, tensors: Tensors) -> np.ndarray:
        head = SCALE_BYTES * len(tensors)
        scales = np.ascontiguousarray(packed[:head]).view("<f4")
        out = aligned(sum(tensors))
        out[:] = packed[head:].view(np.int8)
        for scale, tensor in zip(scales, pieces(out, tensors)):
            tensor *= scale
        return out


def build(options: Options) -> Int8:
    """Return the method."""
    return Int8()
