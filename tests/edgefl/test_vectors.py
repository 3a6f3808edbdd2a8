"""Flat vectors and their layout: sums checked by hand, and equal bits for any memory alignment."""

from __future__ import annotations

import math

import numpy as np
import pytest
from builders import layout, vector

from edgefl.vectors import (
    ALIGNMENT,
    BLOCK,
    Layout,
    LayoutEntry,
    aligned,
    aligned_copy,
    distance,
    is_finite,
    mix,
    weighted_sum,
    with_changes,
)

CONV = Layout(
    (
        LayoutEntry("conv.weight", (2, 1, 2), 0, "parameter", "conv"),
        LayoutEntry("conv.bias", (2,), 4, "parameter", "conv"),
        LayoutEntry("scale", (), 6, "parameter", ""),
        LayoutEntry("norm.running_mean", (2,), 7, "buffer", "norm"),
    )
)


def noise(seed: int, size: int) -> np.ndarray:
    return aligned_copy(
        np.random.Generator(np.random.PCG64(seed)).normal(size=size).astype(np.float32)
    )


def shifted(source: np.ndarray) -> np.ndarray:
    """The same numbers, 4 bytes off the alignment."""
    out = aligned(source.size + 1)[1:]
    out[:] = source
    return out


def test_a_layout_names_the_parts_of_a_vector() -> None:
    assert (CONV.size, CONV.parameters) == (9, 7)
    numbers = vector(*range(9))
    assert CONV.view(numbers, "conv.weight").tolist() == [[[0, 1]], [[2, 3]]]
    assert CONV.view(numbers, "scale").tolist() == 6 and CONV.view(
        numbers, "norm.running_mean"
    ).tolist() == [7, 8]
    CONV.view(numbers, "conv.bias")[:] = 0
    assert numbers.tolist() == [0, 1, 2, 3, 0, 0, 6, 7, 8], "a view, not a copy"
    with pytest.raises(KeyError, match="conv.wait"):
        CONV.view(numbers, "conv.wait")


def test_a_layout_survives_json_and_its_digest_tells_every_difference() -> None:
    assert (
        Layout.from_json(CONV.to_json()) == CONV
        and Layout.from_json(CONV.to_json()).digest() == CONV.digest()
    )
    assert layout(3).digest() == layout(3).digest() != layout(4).digest()
    other = Layout(
        (*CONV.entries[:-1], LayoutEntry("norm.running_mean", (2,), 7, "parameter", "norm"))
    )
    assert other.digest() != CONV.digest()


@pytest.mark.parametrize("size", [1, 3, 17, 1000])
def test_vectors_are_aligned(size: int) -> None:
    for made in (aligned(size), aligned_copy(shifted(noise(1, size))), aligned(size, np.float64)):
        assert made.ctypes.data % ALIGNMENT == 0 and made.shape == (size,)
    assert aligned_copy(shifted(noise(1, size))).tolist() == noise(1, size).tolist()
    assert aligned_copy(np.ones((2, 3), np.float32)).shape == (6,)


def test_a_weighted_sum_by_hand() -> None:
    """0.25 (4, 0, 8) + 0.75 (0, 4, 8) = (1, 3, 8)."""
    inputs = [vector(4, 0, 8), vector(0, 4, 8)]
    out = weighted_sum(inputs, [0.25, 0.75])
    assert (
        out.tolist() == [1, 3, 8] and out.ctypes.data % ALIGNMENT == 0 and out.dtype == np.float32
    )
    assert [v.tolist() for v in inputs] == [[4, 0, 8], [0, 4, 8]]
    assert weighted_sum(inputs[:1], [2]).tolist() == [8, 0, 16]


@pytest.mark.parametrize("size", [1, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK + 7])
def test_blocks_change_nothing(size: int) -> None:
    """Blocks only help the cache: the result is the plain float32 sum in the given order."""
    inputs, weights = [noise(seed, size) for seed in range(3)], [0.5, -1.25, 0.3]
    plain = inputs[0] * np.float32(0.5)
    for one, factor in zip(inputs[1:], weights[1:]):
        plain = plain + one * np.float32(factor)
    assert weighted_sum(inputs, weights).tobytes() == plain.tobytes()


def test_a_weighted_sum_does_not_depend_on_alignment() -> None:
    inputs = [noise(seed, 1003) for seed in range(2)]
    assert (
        weighted_sum(inputs, [0.3, 0.7]).tobytes()
        == weighted_sum([shifted(one) for one in inputs], [0.3, 0.7]).tobytes()
    )


@pytest.mark.parametrize(
    ("vectors", "weights"),
    [([], []), ([vector(1)], []), ([vector(1)], [1, 2]), ([vector(1, 2), vector(1)], [1, 1])],
)
def test_what_cannot_be_summed(vectors: list[np.ndarray], weights: list[float]) -> None:
    with pytest.raises(ValueError, match="a weighted sum"):
        weighted_sum(vectors, weights)


def test_mix_keeps_the_old_at_0_and_the_new_at_1() -> None:
    old, new = vector(1, 2, 3), vector(5, -2, 3)
    assert mix(old, new, 0.25).tolist() == [2, 1, 3]
    assert mix(old, new, 0.0).tolist() == [1, 2, 3] and mix(old, new, 1.0).tolist() == [5, -2, 3]


@pytest.mark.filterwarnings("error")
def test_is_finite() -> None:
    huge = np.full(4096, np.finfo(np.float32).max, dtype=np.float32)
    assert (
        is_finite(vector(0, -1, 1e-45))
        and is_finite(huge)
        and is_finite(-huge)
        and is_finite(aligned(0))
    )
    for bad in ([np.nan], [np.inf], [-np.inf], [np.inf, -np.inf]):
        assert not is_finite(np.concatenate([huge, np.array(bad, np.float32)]))


@pytest.mark.parametrize(
    ("share", "parameter", "variance"), [(0.25, 2.0, 1.0), (0.5, 4.0, 0.5), (1.5, 12.0, 0.5)]
)
def test_buffers_behind_changes_are_mixed_and_a_variance_stays_one(
    share: float, parameter: float, variance: float
) -> None:
    """Two changes of 4, variances of 0.5: w = 0 + 2 share 4.

    The variance is (1 - 2 share) 1.5 + 2 share 0.5, but the factor of the old 1.5 is never below 0.
    """
    old, end, start = vector(0, 1.5), vector(4, 0.5), vector(0, 9)
    found = with_changes(old, [end, end], [start, start], [share, share], parameters=1)
    assert found.tolist() == [parameter, variance]


def test_the_distance_of_vectors_that_are_too_large_to_be_squared() -> None:
    assert distance(np.array([3.0, 4.0], np.float32)) == 5.0
    huge = np.full(100_000, 3e38, np.float32)
    assert distance(huge) == pytest.approx(3e38 * math.sqrt(100_000), rel=1e-6)
    assert distance(huge, huge) == 0.0
    assert distance(huge, -huge) == pytest.approx(6e38 * math.sqrt(100_000), rel=1e-6)
