"""Inner products of sums of vectors, in blocks."""

from __future__ import annotations

import numpy as np
import pytest

from edgefl.vector_terms import inner
from edgefl.vectors import BLOCK, aligned_copy


def vectors(size: int) -> list[np.ndarray]:
    rng = np.random.default_rng(size)
    return [aligned_copy(rng.standard_normal(size).astype(np.float32)) for _ in range(2)]


@pytest.mark.parametrize("size", [3, BLOCK, BLOCK + 5])
def test_an_inner_product_is_that_of_the_sums_over_the_first_elements(size: int) -> None:
    one, other = vectors(size + 2)
    wide = one[:size].astype(np.float64), other[:size].astype(np.float64)
    found = inner([(one, 2.0), (other, -1.0)], [(other, 1.0)], size)
    assert found == pytest.approx((2 * wide[0] - wide[1]) @ wide[1], rel=1e-4, abs=1e-3)


@pytest.mark.parametrize("size", [3, BLOCK + 5])
def test_a_square_has_the_bits_of_the_product_of_two_equal_sums(size: int) -> None:
    one, other = vectors(size)
    terms = [(one, 1.0), (other, 0.1)]
    assert inner(terms, terms, size) == inner(terms, list(terms), size) > 0
