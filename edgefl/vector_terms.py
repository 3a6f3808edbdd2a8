"""Passes over whole models in blocks that stay in the cache: each vector is read once, and
nothing but the results is written.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt

import numpy as np

from edgefl.vectors import BLOCK, aligned, blocks

Terms = Sequence[tuple[np.ndarray, float]]  # sum of factor * vector


def inner(left: Terms, right: Terms, size: int) -> float:
    """<sum f_j v_j, sum g_k u_k> over the first ``size`` elements; blocks in float32, their sum
    in float64.
    """
    length = min(BLOCK, size)
    a, b, scratch, total = aligned(length), aligned(length), aligned(length), 0.0
    for start in range(0, size, BLOCK):
        part = slice(start, min(start + BLOCK, size))
        total += float(
            np.einsum("i,i->", _sum(left, part, a, scratch), _sum(right, part, b, scratch))
        )
    return total


def cosine(left: Terms, right: Terms, size: int) -> float:
    """Of the angle between sum f_j v_j and sum g_k u_k, over the first ``size`` elements; 0 if
    either is all zero.
    """
    length = min(BLOCK, size)
    a, b, scratch, totals = aligned(length), aligned(length), aligned(length), np.zeros(3)
    for part in blocks(size):
        x, y = _sum(left, part, a, scratch), _sum(right, part, b, scratch)
        totals += [np.einsum("i,i->", one, other) for one, other in ((x, y), (x, x), (y, y))]
    lengths = sqrt(totals[1] * totals[2])
    return float(totals[0]) / lengths if lengths else 0.0


def mix_keeping(old: np.ndarray, new: np.ndarray, alpha: float, change: np.ndarray) -> np.ndarray:
    """old + alpha (new - old) as a new vector; the front of ``new - old`` goes into ``change``,
    as much as that holds.
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


def _sum(terms: Terms, part: slice, out: np.ndarray, scratch: np.ndarray) -> np.ndarray:
    """The terms' sum over ``part``, in ``out`` unless it is a single plain vector."""
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
