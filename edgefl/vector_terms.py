"""Operations on whole models in blocks that stay in the cache.

Each vector is read once, and only results are written.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt

import numpy as np

from edgefl.vectors import BLOCK, aligned, blocks

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
    lengths = sqrt(left * right)
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
