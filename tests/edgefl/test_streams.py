"""Random streams by purpose: the same in every process, and independent of each other."""

from __future__ import annotations

from zlib import crc32

import numpy as np
import pytest

from edgefl.streams import Streams


def first(seed: int, purpose: str, *keys: int | str) -> int:
    return int(Streams(seed).rng(purpose, *keys).integers(2**63))


def test_the_same_numbers_in_every_process() -> None:
    """Golden values: hash(str) would differ in each process; another numpy must not change them."""
    assert first(1, "selection", 0) == 6784947345739512746
    assert first(1, "selection", 0) == first(1, "selection", 0)


def test_every_part_of_the_name_counts() -> None:
    names = [
        (1, "selection", 0),
        (2, "selection", 0),
        (1, "batches", 0),
        (1, "selection", 1),
        (1, "selection"),
        (1, "batches", "e0", 1),
        (1, "batches", "e01"),
    ]
    assert len({first(seed, *rest) for seed, *rest in names}) == len(names)


def test_a_stream_does_not_know_of_its_neighbours() -> None:
    streams = Streams(7)
    alone = streams.rng("a").integers(100, size=5).tolist()
    one, other = streams.rng("a"), streams.rng("b")
    mixed = [(int(one.integers(100)), int(other.integers(100)))[0] for _ in range(5)]
    assert mixed == alone


@pytest.mark.parametrize("seed", [0, 3, 2**32 - 1, 2**32, 2**70 + 5, 2**200 + 1])
def test_the_numbers_are_those_of_numpys_spawn_key(seed: int) -> None:
    key = tuple(crc32(each) for each in (b"batches", b"e000", b"7"))
    of_numpy = np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed, spawn_key=key)))
    assert first(seed, "batches", "e000", 7) == of_numpy.integers(2**63)
