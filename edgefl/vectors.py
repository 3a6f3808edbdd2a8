"""Flat float32 vectors, and the layout that names their parts.

Outside the trainer a model is one vector, ``[parameters | float buffers]``, so that an algorithm
reads like the formula in its paper. For algorithms that work layer by layer, a ``Layout`` says
which slice is which tensor.
"""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from tempfile import TemporaryFile, gettempdir
from typing import Any

import numpy as np
import orjson

from edgefl.errors import TEMPORARY, UserError, written

# bytes; float32 sums depend on alignment (vector units), so every vector in a computation starts at
# a multiple of this
ALIGNMENT = 64
# the smallest normal number of float32; with a smaller learning rate a step moves no weight
SMALLEST_RATE = 2.0**-126
BLOCK = 1 << 15  # elements; three such blocks fit into the private cache of a core


@dataclass(frozen=True, slots=True)
class LayoutEntry:
    """One tensor inside the flat vector.

    ``kind``: "parameter" or "buffer"; ``module``: the dotted name of its owner.
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
    """The tensors of a flat vector in order: all parameters, then all float buffers."""

    entries: tuple[LayoutEntry, ...]
    size: int = field(init=False, repr=False, compare=False)
    """Length of the whole vector, in float32 elements."""
    parameters: int = field(init=False, repr=False, compare=False)
    """Number of trainable elements.

    An algorithm may treat ``vector[:layout.parameters]`` as a gradient space.
    """

    def __post_init__(self) -> None:  # computed once: every task asks for them
        sizes = [entry.size for entry in self.entries]
        trainable = [entry.size for entry in self.entries if entry.kind == "parameter"]
        object.__setattr__(self, "size", sum(sizes))
        object.__setattr__(self, "parameters", sum(trainable))

    def view(self, vector: np.ndarray, name: str) -> np.ndarray:
        """Return the tensor ``name`` as a view into ``vector``, without a copy.

        KeyError if the layout has no such tensor.
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
        """16 hex digits; two sides with equal digests agree on every name, shape and offset."""
        return hashlib.sha256(orjson.dumps(self.to_json())).hexdigest()[:16]


def aligned(size: int, dtype: type = np.float32) -> np.ndarray:
    """Return an uninitialised vector of ``size`` elements that starts at a multiple of 64 bytes."""
    itemsize = np.dtype(dtype).itemsize
    raw = np.empty(size * itemsize + ALIGNMENT, dtype=np.uint8)
    start = -raw.ctypes.data % ALIGNMENT
    return raw[start : start + size * itemsize].view(dtype)


def aligned_copy(vector: np.ndarray) -> np.ndarray:
    """Return a copy of ``vector`` that starts at a multiple of 64 bytes."""
    out = aligned(vector.size, vector.dtype.type)
    out[:] = vector.reshape(-1)
    return out


def read_only(vectors: Iterable[np.ndarray]) -> None:
    """Make these vectors read-only, because several readers share each of them.

    numpy raises a ValueError that a change is refused; ``edgefl.errors.told`` explains it.
    """
    for vector in vectors:
        vector.setflags(write=False)


def blocks(size: int) -> Iterator[slice]:
    """Yield slices of a vector of ``size`` elements that fit into the cache."""
    return (slice(start, min(start + BLOCK, size)) for start in range(0, size, BLOCK))


def scratch(size: int, count: int) -> list[np.ndarray]:
    """Return ``count`` uninitialised vectors for blocks of a vector of ``size`` elements.

    numpy would take new memory for each intermediate result of an expression.
    """
    return [aligned(min(BLOCK, size)) for _ in range(count)]


def weighted_sum(vectors: Sequence[np.ndarray], weights: Sequence[float]) -> np.ndarray:
    """Return sum_i weights[i] * vectors[i], in the given order, as a new aligned vector.

    ValueError if there are none or they differ in length. Works in blocks that stay in the cache,
    so each input is read from memory once, whatever their number.
    """
    if not len(vectors) or len(vectors) != len(weights):
        raise ValueError(
            f"a weighted sum needs as many weights as vectors and at least one, got {len(weights)}"
            f" and {len(vectors)}"
        )
    size = vectors[0].size
    if len({vector.size for vector in vectors}) > 1:
        raise ValueError(
            f"a weighted sum of vectors of {' and '.join(str(vector.size) for vector in vectors)}"
            " elements"
        )
    factors = [np.float32(weight) for weight in weights]
    out, product = aligned(size), np.empty(min(BLOCK, size), np.float32)
    for start in range(0, size, BLOCK):
        part = out[start : start + BLOCK]
        np.multiply(vectors[0][start : start + BLOCK], factors[0], out=part)
        for vector, factor in zip(vectors[1:], factors[1:]):
            part += np.multiply(vector[start : start + BLOCK], factor, out=product[: part.size])
    return out


def mix(old: np.ndarray, new: np.ndarray, alpha: float) -> np.ndarray:
    """Return (1 - alpha) * old + alpha * new as a new aligned vector."""
    return weighted_sum((old, new), (1.0 - alpha, alpha))


def with_changes(
    old: np.ndarray,
    ends: Sequence[np.ndarray],
    starts: Sequence[np.ndarray],
    shares: Sequence[float],
    parameters: int,
) -> np.ndarray:
    """Return old + sum_i shares[i] (ends[i] - starts[i]) as a new aligned vector.

    This is for the first ``parameters`` elements. The buffers after them are mixed instead: (1 -
    sum shares) old + sum_i shares[i] ends[i]. If the shares add up to more than 1, the buffers are
    the mean of ``ends`` weighted by the shares: a variance must not become negative.
    """
    out = weighted_sum([old, *ends, *starts], [1.0, *shares, *(-share for share in shares)])
    if parameters < old.size:
        total = max(1.0, sum(shares))
        mixed = [1.0 - sum(shares) / total, *(share / total for share in shares)]
        out[parameters:] = weighted_sum(
            [old[parameters:], *(end[parameters:] for end in ends)], mixed
        )
    return out


def distance(vector: np.ndarray, origin: np.ndarray | None = None) -> float:
    """Return the L2 norm of ``vector - origin``, or of ``vector``.

    Computed in float64, so that it cannot overflow for a finite float32 vector.
    """
    square = 0.0
    for part in blocks(vector.size):
        wide = vector[part].astype(np.float64)
        if origin is not None:
            wide -= origin[part]
        square += float(wide @ wide)
    return math.sqrt(square)


def is_finite(vector: np.ndarray) -> bool:
    """True if no element is NaN or infinite."""
    return bool(np.logical_and.reduce(np.isfinite(vector)))  # what ``all`` does, with fewer calls


# ---------------------------------------------------------------------- sums of vectors in blocks
# Each vector is read once, in blocks that stay in the cache, and only results are written.
Terms = Sequence[tuple[np.ndarray, float]]  # (vector, factor) of the sum of factor * vector


def inner(left: Terms, right: Terms, size: int) -> float:
    """Return <sum f_j v_j, sum g_k u_k> over the first ``size`` elements.

    Blocks are summed in float32, the results of the blocks in float64. A square (``left is right``)
    takes half of the work, and has the same bits.
    """
    length, square = min(BLOCK, size), left is right
    a, b, scratch, total = aligned(length), aligned(length), aligned(length), 0.0
    for start in range(0, size, BLOCK):
        part = slice(start, min(start + BLOCK, size))
        one = _sum(left, part, a, scratch)
        other = one if square else _sum(right, part, b, scratch)
        total += float(np.einsum("i,i->", one, other))
    return total


def cosine(left: Terms, right: Terms, size: int) -> float:
    """Return the cosine of the angle between sum f_j v_j and sum g_k u_k; 0 if one of them is zero.

    Only the first ``size`` elements count.
    """
    return cosine_of(*products(left, right, size))


def cosine_of(both: float, left: float, right: float) -> float:
    """Return the cosine from the results of ``products``."""
    lengths = math.sqrt(left * right)
    return both / lengths if lengths else 0.0


def products(left: Terms, right: Terms, size: int) -> tuple[float, float, float]:
    """Return <x, y>, <x, x> and <y, y> for x = sum f_j v_j and y = sum g_k u_k.

    Each is that of ``inner``; each vector is read once for all three.
    """
    length = min(BLOCK, size)
    a, b, scratch, totals = aligned(length), aligned(length), aligned(length), np.zeros(3)
    for part in blocks(size):
        x, y = _sum(left, part, a, scratch), _sum(right, part, b, scratch)
        totals += [np.einsum("i,i->", one, other) for one, other in ((x, y), (x, x), (y, y))]
    return float(totals[0]), float(totals[1]), float(totals[2])


def mix_keeping(old: np.ndarray, new: np.ndarray, alpha: float, change: np.ndarray) -> np.ndarray:
    """Return old + alpha (new - old) as a new vector.

    Writes the first elements of ``new - old`` into ``change``, as many as it has.
    """
    out, scratch, factor = aligned(old.size), aligned(min(BLOCK, old.size)), np.float32(alpha)
    for start in range(0, old.size, BLOCK):
        part = slice(start, min(start + BLOCK, old.size))
        moved = np.subtract(new[part], old[part], out=scratch[: part.stop - start])
        kept = change[part]
        kept[:] = moved[: kept.size]
        moved *= factor
        np.add(old[part], moved, out=out[part])
    return out


def moments(
    change: np.ndarray,
    first: np.ndarray,
    second: np.ndarray,
    decays: tuple[float, float],
    product: np.ndarray,
) -> None:
    """Set first to b1 first + (1 - b1) change, and second to b2 second + (1 - b2) change^2.

    In place, for one block. ``product``: memory for one more block.
    """
    b1, b2 = decays
    first *= b1
    first += np.multiply(change, 1 - b1, out=product)
    second *= b2
    np.multiply(change, 1 - b2, out=product)
    product *= change
    second += product


def plain_mean(vectors: Sequence[np.ndarray]) -> np.ndarray:
    """Return the mean of the vectors: added in their order, then divided by their number."""
    out, count = aligned(vectors[0].size), np.float32(len(vectors))
    for part in blocks(out.size):
        mean = out[part]
        mean[:] = vectors[0][part]
        for vector in vectors[1:]:
            mean += vector[part]
        mean /= count
    return out


def _sum(terms: Terms, part: slice, out: np.ndarray, scratch: np.ndarray) -> np.ndarray:
    """Return the sum of the terms over ``part``.

    In ``out``, unless it is a single vector with factor 1.
    """
    (first, factor), *others = terms
    out, found = out[: part.stop - part.start], first[part]
    if factor != 1.0:
        found = np.multiply(found, np.float32(factor), out=out)
    for vector, factor in others:
        if factor == -1.0:
            found = np.subtract(found, vector[part], out=out)
        else:
            found = np.add(
                found,
                np.multiply(vector[part], np.float32(factor), out=scratch[: out.size]),
                out=out,
            )
    return found


# ---------------------------------------------------------------------- many vectors, in a file
# One sparse temporary file without a name. The system caches its used parts in memory and frees
# everything at the end.
FLOAT = np.dtype(np.float32).itemsize


class VectorStore:
    """One float32 vector of ``size`` elements per name; unused names take no space on the disk.

    ``instead``: what else the user can do if the disk is full, for the error message.
    """

    def __init__(self, size: int, instead: str = "") -> None:
        self._open(size, instead)

    def _open(self, size: int, instead: str) -> None:
        self.size, self.instead = size, instead
        # every row has the alignment that vector operations need
        self._stride = -(-max(size, 1) * FLOAT // ALIGNMENT) * ALIGNMENT // FLOAT
        # a file without a name is always removed, even after a crash
        with written("a temporary file", TEMPORARY):
            self._file = TemporaryFile(prefix="edgefl-")  # noqa: SIM115  # open as long as this object exists
        self._rows: np.ndarray = np.empty((0, self._stride), np.float32)
        self._number: dict[str, int] = {}

    def __len__(self) -> int:
        """Number of stored vectors."""
        return len(self._number)

    def state(self) -> dict[str, Any]:
        """Return all vectors, as views, for a checkpoint."""
        rows = {name: self.row(name) for name in self._number}
        return {"size": self.size, "instead": self.instead, "rows": rows}

    def restore(self, state: dict[str, Any]) -> None:
        """Store the vectors of ``state`` in a new file. UserError if the disk has no space."""
        self._open(state["size"], state["instead"])
        for name, row in state["rows"].items():
            self.row(name)[:] = row

    def row(self, name: str) -> np.ndarray:
        """Return the vector of ``name`` as a writable view; zeros the first time.

        UserError if the disk has no space for it.
        """
        if name not in self._number:
            self._add(name)
        return self._rows[self._number[name], : self.size]

    def _add(self, name: str) -> None:
        number, length = len(self._number), self._stride * FLOAT
        if number >= len(self._rows):
            rows = max(16, 2 * number)
            self._file.truncate(rows * length)
            self._rows = np.memmap(self._file, np.float32, "r+", shape=(rows, self._stride)).view(
                np.ndarray
            )
        try:
            # without this, writing into a hole of the file on a full disk would kill the process
            os.posix_fallocate(self._file.fileno(), number * length, length)
        except OSError as error:
            needed = f"{length / 1e6:.0f} MB for another device's vector ({number} are stored)"
            ways = "set TMPDIR" + (f", or {self.instead}" if self.instead else "")
            raise UserError(
                f"{gettempdir()}: no room for {needed}: {ways} ({error.strerror})"
            ) from error
        self._number[name] = number
