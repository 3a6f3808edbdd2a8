"""Flat float32 vectors and the layout that gives their parts names.

Outside the trainer a model is one vector, ``[parameters | float buffers]``, so that an algorithm
reads like its paper's formula. A ``Layout`` says which slice is which tensor, for the algorithms
that work layer by layer.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import orjson

# float32 sums depend on alignment (vector units), so every vector that maths sees starts on this
# border
ALIGNMENT = 64
BLOCK = 1 << 15  # elements: three such blocks fit in a core's own cache


@dataclass(frozen=True, slots=True)
class LayoutEntry:
    """One tensor inside the flat vector; ``kind`` is "parameter" or "buffer", ``module`` the
    owner's dotted name.
    """

    name: str
    shape: tuple[int, ...]
    offset: int
    kind: str
    module: str

    @property
    def size(self) -> int:
        return math.prod(self.shape)


@dataclass(frozen=True, slots=True)
class Layout:
    """The tensors of a flat vector in order: every parameter first, then every float buffer."""

    entries: tuple[LayoutEntry, ...]

    @property
    def size(self) -> int:
        """Length of the whole vector, in float32 elements."""
        return sum(entry.size for entry in self.entries)

    @property
    def parameters(self) -> int:
        """Number of trainable elements: ``vector[:layout.parameters]`` is what an algorithm may
        treat as a gradient space.
        """
        return sum(entry.size for entry in self.entries if entry.kind == "parameter")

    def view(self, vector: np.ndarray, name: str) -> np.ndarray:
        """The tensor ``name`` as a view into ``vector`` (no copy). KeyError if the layout has no
        such tensor.
        """
        for entry in self.entries:
            if entry.name == name:
                return vector[entry.offset : entry.offset + entry.size].reshape(entry.shape)
        raise KeyError(name)

    def to_json(self) -> list[list[Any]]:
        return [[e.name, list(e.shape), e.offset, e.kind, e.module] for e in self.entries]

    @classmethod
    def from_json(cls, rows: Sequence[Sequence[Any]]) -> Layout:
        return cls(tuple(LayoutEntry(n, tuple(s), o, k, m) for n, s, o, k, m in rows))

    def digest(self) -> str:
        """Two sides with equal digests agree on every name, shape and offset."""
        return hashlib.sha256(orjson.dumps(self.to_json())).hexdigest()[:16]


def aligned(size: int, dtype: type = np.float32) -> np.ndarray:
    """An uninitialised vector of ``size`` elements that starts on a 64-byte border."""
    itemsize = np.dtype(dtype).itemsize
    raw = np.empty(size * itemsize + ALIGNMENT, dtype=np.uint8)
    start = -raw.ctypes.data % ALIGNMENT
    return raw[start : start + size * itemsize].view(dtype)


def aligned_copy(vector: np.ndarray) -> np.ndarray:
    """A copy of ``vector`` on a 64-byte border."""
    out = aligned(vector.size, vector.dtype.type)
    out[:] = vector.reshape(-1)
    return out


def blocks(size: int) -> Iterator[slice]:
    """The stretches of a vector of ``size`` elements that stay in the cache while several steps
    are done on each.
    """
    return (slice(start, min(start + BLOCK, size)) for start in range(0, size, BLOCK))


def weighted_sum(vectors: Sequence[np.ndarray], weights: Sequence[float]) -> np.ndarray:
    """sum_i weights[i] * vectors[i] in the order given, as a new aligned vector. ValueError if
    there are none or they differ in length.

    Works in blocks that stay in the cache: each input is read once from memory, whatever their
    number.
    """
    if not len(vectors) or len(vectors) != len(weights):
        raise ValueError(
            f"a weighted sum needs as many weights as vectors and at least one, got {len(weights)}"
            f" and {len(vectors)}"
        )
    if len({vector.size for vector in vectors}) > 1:
        raise ValueError(
            f"a weighted sum of vectors of {' and '.join(str(vector.size) for vector in vectors)}"
            " elements"
        )
    factors = [np.float32(weight) for weight in weights]
    out, scratch = aligned(vectors[0].size), aligned(min(BLOCK, vectors[0].size))
    for start in range(0, out.size, BLOCK):
        part = out[start : start + BLOCK]
        np.multiply(vectors[0][start : start + BLOCK], factors[0], out=part)
        for vector, factor in zip(vectors[1:], factors[1:]):
            part += np.multiply(vector[start : start + BLOCK], factor, out=scratch[: part.size])
    return out


def mix(old: np.ndarray, new: np.ndarray, alpha: float) -> np.ndarray:
    """(1 - alpha) * old + alpha * new, as a new aligned vector."""
    return weighted_sum((old, new), (1.0 - alpha, alpha))


def with_changes(
    old: np.ndarray,
    ends: Sequence[np.ndarray],
    starts: Sequence[np.ndarray],
    shares: Sequence[float],
    parameters: int,
) -> np.ndarray:
    """old + sum_i shares[i] (ends[i] - starts[i]) for the first ``parameters`` elements, as a new
    aligned vector.

    The buffers behind them are mixed instead, (1 - sum shares) old + sum_i shares[i] ends[i], or if
    a step is so large that the shares come to more than 1, their mean alone: a variance must not
    become negative.
    """
    out = weighted_sum([old, *ends, *starts], [1.0, *shares, *(-share for share in shares)])
    if parameters < old.size:
        whole = max(1.0, sum(shares))
        mixed = [1.0 - sum(shares) / whole, *(share / whole for share in shares)]
        out[parameters:] = weighted_sum(
            [old[parameters:], *(end[parameters:] for end in ends)], mixed
        )
    return out


def distance(vector: np.ndarray, origin: np.ndarray | None = None) -> float:
    """The L2 norm of ``vector - origin``, or of ``vector``: in float64, so that no finite float32
    vector is too large.
    """
    square = 0.0
    for part in blocks(vector.size):
        wide = vector[part].astype(np.float64)
        if origin is not None:
            wide -= origin[part]
        square += float(wide @ wide)
    return math.sqrt(square)


def is_finite(vector: np.ndarray) -> bool:
    """True if no element is NaN or infinite.

    The vector's inner product with itself tells nearly always, in one quick pass; where it is
    infinite, a float64 sum says whether an element is, or only too large to be squared: it is
    finite exactly when every float32 summand is.
    """
    with np.errstate(over="ignore", invalid="ignore"):  # inf - inf
        return math.isfinite(np.einsum("i,i->", vector, vector)) or math.isfinite(
            np.sum(vector, dtype=np.float64)
        )
