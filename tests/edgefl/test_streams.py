"""Random streams by purpose: the same in every process, and independent of each other."""

from __future__ import annotations

import pickle
from copy import deepcopy
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


@pytest.mark.parametrize("seed", [0, 7, 2**32 - 1, 2**32, 2**40 + 5, 2**200 + 3])
@pytest.mark.parametrize("keys", [(), (0,), ("e001", 5), tuple(range(9))])
def test_a_stream_is_that_of_numpys_seed_sequence(seed: int, keys: tuple[int | str, ...]) -> None:
    """The words are computed here, and must stay those with which all results were made."""
    spawn_key = tuple(crc32(str(key).encode()) for key in ("batches", *keys))
    found = Streams(seed).rng("batches", *keys)
    own = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=spawn_key))
    assert found.bit_generator.state == own.bit_generator.state
    for copied in (deepcopy(found), pickle.loads(pickle.dumps(found))):
        assert copied.integers(2**63) == deepcopy(own).integers(2**63)
    assert [each.random() for each in found.spawn(2)] == [each.random() for each in own.spawn(2)]
    assert found.spawn(1)[0].random() == own.spawn(1)[0].random(), "a third child"


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
