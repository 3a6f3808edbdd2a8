"""Inner products of sums of vectors, in blocks."""

from __future__ import annotations

import numpy as np
import pytest

from edgefl.vectors import BLOCK, aligned_copy, inner, moments, plain_mean, products


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


@pytest.mark.parametrize("size", [3, BLOCK + 5])
def test_three_products_have_the_bits_of_each_alone(size: int) -> None:
    one, other = vectors(size)
    left, right = ((one, 1.0), (other, -1.0)), ((other, 0.1), (one, 2.0))
    alone = inner(left, right, size), inner(left, left, size), inner(right, right, size)
    assert products(left, right, size) == alone


def test_moments_have_the_bits_of_the_formula() -> None:
    b1, b2, (change, first) = 0.6, 0.9, vectors(1000)
    second, product = first * first, np.empty_like(change)
    expected = b1 * first + (1 - b1) * change, b2 * second + (1 - b2) * change * change
    moments(change, first, second, (b1, b2), product)
    assert [first.tobytes(), second.tobytes()] == [each.tobytes() for each in expected]


@pytest.mark.parametrize("count", [1, 2, 5])
def test_a_plain_mean_has_the_bits_of_the_formula(count: int) -> None:
    given = [vectors(BLOCK + 5)[number % 2] * np.float32(number + 1) for number in range(count)]
    expected = sum(given[1:], given[0].copy()) / np.float32(count)
    assert plain_mean(given).tobytes() == expected.tobytes()
