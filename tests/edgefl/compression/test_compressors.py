"""The methods of compression: bounds and unbiasedness, error feedback by hand, sizes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from edgefl.compression.compressor import (
    Compressor,
    count,
    find,
    pack_with_error,
    pieces,
)
from edgefl.compression.random_k import drawn
from edgefl.errors import UserError

NAMES = ("float16", "int8", "random_k", "sign", "top_k")
MOST = 1e4
FLOATS = st.floats(-MOST, MOST, width=32).map(lambda value: value if abs(value) > 1e-6 else 0.0)
VECTORS = arrays.arrays(np.float32, st.integers(1, 40), elements=FLOATS)
CLOSE = 1 + 1e-5


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def sent(compressor: Compressor, vector: np.ndarray, seed: int = 0) -> np.ndarray:
    tensors = (vector.size,)
    return compressor.unpack(compressor.pack(vector, tensors, rng(seed)), tensors)


def squares(vector: np.ndarray) -> float:
    return float(np.sum(vector.astype(np.float64) ** 2))


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=30)
@given(tensors=st.lists(st.integers(0, 9), min_size=1, max_size=4), seed=st.integers(0, 99))
@pytest.mark.slow
def test_the_number_of_bytes_is_known_before(name: str, tensors: list[int], seed: int) -> None:
    compressor, vector = find(name, {}), rng(seed).normal(size=sum(tensors)).astype(np.float32)
    packed = compressor.pack(vector, tensors, rng(seed))
    assert packed.dtype == np.uint8 and packed.size == compressor.packed_bytes(tensors)
    unpacked = compressor.unpack(packed, tensors)
    assert unpacked.dtype == np.float32 and unpacked.shape == vector.shape
    assert np.array_equal(packed, compressor.pack(vector, tensors, rng(seed)))


@pytest.mark.parametrize(("name", "per_element"), [("float16", 2), ("int8", 1), ("sign", 1 / 8)])
def test_bytes_of_a_large_vector(name: str, per_element: float) -> None:
    assert find(name, {}).packed_bytes((10**6,)) == pytest.approx(per_element * 10**6, abs=8)
    assert find("top_k", {"share": 0.001}).packed_bytes((10**6,)) == 8000
    assert find("random_k", {"share": 0.001}).packed_bytes((10**6,)) == 4008
    assert [count(0.001, size) for size in (0, 10, 1500, 4000)] == [0, 1, 2, 4], "at least one"


@settings(max_examples=30)
@given(VECTORS)
def test_half_precision_loses_at_most_eleven_bits(vector: np.ndarray) -> None:
    error = np.abs(sent(find("float16", {}), vector) - vector)
    assert (error <= np.maximum(np.abs(vector) * 2.0**-11, 2.0**-25) * CLOSE).all()
    assert sent(find("float16", {}), np.array([1e6, -1e6], np.float32)).tolist() == [65504, -65504]


@settings(max_examples=30)
@given(VECTORS, st.integers(0, 1000))
def test_int8_is_off_by_less_than_a_level(vector: np.ndarray, seed: int) -> None:
    level = float(np.abs(vector).max()) / 127
    error = np.abs(sent(find("int8", {}), vector, seed).astype(np.float64) - vector)
    assert (error <= level * 1.001).all()


@pytest.mark.parametrize(("name", "options"), [("int8", {}), ("random_k", {"unbiased": True})])
@pytest.mark.slow
def test_the_mean_of_what_arrives_is_what_was_sent(name: str, options: dict[str, object]) -> None:
    """The mean of 4,000 draws lies within six standard deviations of it, per element."""
    compressor = find(name, {"share": 0.5, **options} if name == "random_k" else options)
    vector = np.array([0.0, 1.04, -2.0, 0.35, 12.7, -0.01], np.float32)
    found = np.array([sent(compressor, vector, seed) for seed in range(4000)], np.float64)
    deviation = found.std(axis=0) / np.sqrt(len(found))
    assert (np.abs(found.mean(axis=0) - vector) <= 6 * deviation + 1e-6).all()
    assert found.std(axis=0)[1] > 0, "lots were drawn"


@settings(max_examples=30)
@given(VECTORS, st.floats(0.05, 1.0))
def test_top_k_loses_at_most_its_share(vector: np.ndarray, share: float) -> None:
    number, received = count(share, vector.size), sent(find("top_k", {"share": share}), vector)
    assert np.count_nonzero(received) <= number
    lost = squares(vector - received)
    assert lost <= (1 - number / vector.size) * squares(vector) * CLOSE
    kept = np.sort(np.abs(received))[::-1][:number]
    assert np.array_equal(kept, np.sort(np.abs(vector))[::-1][:number])


def test_lots_are_drawn_without_repetition_and_are_the_same_for_ever() -> None:
    assert drawn(7, 10, 4).tolist() == [1, 4, 6, 8], "what an older or newer numpy draws, too"
    counts = np.zeros(6)
    for seed in range(3000):
        found = drawn(seed, 6, 2)
        assert len(set(found.tolist())) == 2
        counts[found] += 1
    assert np.abs(counts / 3000 - 1 / 3).max() < 0.05


@settings(max_examples=30)
@given(VECTORS)
def test_signs_are_a_contraction(vector: np.ndarray) -> None:
    received, whole = sent(find("sign", {}), vector), squares(vector)
    bound = whole - float(np.sum(np.abs(vector), dtype=np.float64)) ** 2 / vector.size
    assert squares(vector - received) <= bound * CLOSE + 1e-6 * whole + 1e-12


def test_error_feedback_by_hand() -> None:
    """Three numbers, one sent at a time: what was not sent comes with the next vectors."""
    compressor = find("top_k", {"share": 0.3})
    given = [np.array(each, np.float32) for each in ([3, 2, 1], [0, 2, 1], [0, 0, 1])]
    error, received = None, []
    for vector in given:
        packed, error = pack_with_error(compressor, vector, error, (3,), rng())
        received.append(compressor.unpack(packed, (3,)).tolist())
    assert received == [[3, 0, 0], [0, 4, 0], [0, 0, 3]]
    assert error is not None and error.tolist() == [0, 0, 0], "all has arrived"


@pytest.mark.parametrize("name", ["int8", "sign"])
def test_each_tensor_has_its_own_scale(name: str) -> None:
    vector, tensors = np.array([100, -100, 0.01, -0.01], np.float32), (2, 2)
    compressor = find(name, {})
    received = compressor.unpack(compressor.pack(vector, tensors, rng()), tensors)
    assert received == pytest.approx(vector, rel=1e-5)


def test_places_out_of_order_or_outside_are_refused() -> None:
    compressor = find("top_k", {"share": 0.5})
    good = compressor.pack(np.array([1, 2, 3, 4], np.float32), (4,), rng())
    for at, place in ((4, 9), (4, 0), (0, 3)):
        bad = good.copy()
        bad[at] = place
        with pytest.raises(ValueError, match="places of 4 elements"):
            compressor.unpack(bad, (4,))
    with pytest.raises(ValueError, match="tensors of 3 elements, the vector has 4"):
        pieces(np.zeros(4, np.float32), (1, 2))


OWN = """
from edgefl.api import Section

class Options(Section):
    share: float = 0.5

def build(options):
    return options

def plain():
    return None

plain.Options = None
"""


def test_bad_options_of_a_method_of_ones_own_are_one_line(tmp_path: Path) -> None:
    (tmp_path / "my_method.py").write_text(OWN)
    for options, line in (
        ({"shar": 0.1}, "shar: unknown key (nearest: 'share')"),
        ({"share": "all"}, "share: Input should be a valid number"),
    ):
        with pytest.raises(UserError) as caught:
            find("my_method.py:build", options, tmp_path)
        assert str(caught.value) == f"compression 'my_method.py:build': {line}"
    with pytest.raises(UserError, match=r"compression 'my_method.py:plain' takes no options"):
        find("my_method.py:plain", {"share": 0.1}, tmp_path)
    (tmp_path / "bare.py").write_text("def build(options):\n    pass\n")
    with pytest.raises(UserError, match="build takes options, but the file has no class Options"):
        find("bare.py:build", {}, tmp_path)
    (tmp_path / "odd.py").write_text(
        "class Options:\n    pass\n\n\ndef build(options):\n    pass\n"
    )
    with pytest.raises(UserError, match="'odd.py:build': its Options are no subclass of pydantic"):
        find("odd.py:build", {}, tmp_path)
