"""Half of the bytes: each element is rounded to the nearest 16-bit float (IEEE 754 binary16).

The relative error of an element of 6.1e-5 to 65,504 is at most 2^-11. Smaller ones lose digits, and
larger ones become 65,504, the largest number of this form.
"""

from __future__ import annotations

import numpy as np

from edgefl.compression.compressor import Bytes, MethodOptions, Tensors
from edgefl.vectors import aligned

MOST = 65504.0


class Options(MethodOptions):
    """None."""


class Float16:
    """See the file's head."""

    of_change = False
    keeps_error = False

    def packed_bytes(self, tensors: Tensors) -> int:
        return 2 * sum(tensors)

    def pack(self, vector: np.ndarray, tensors: Tensors, rng: np.random.Generator) -> Bytes:
        packed: Bytes = np.clip(vector, -MOST, MOST).astype("<f2").view(np.uint8)
        return packed

    def unpack(self, packed: Bytes, tensors: Tensors) -> np.ndarray:
        out = aligned(sum(tensors))
        out[:] = packed.view("<f2")
        return out


def build(options: Options) -> Float16:
    """Return the method."""
    return Float16()
