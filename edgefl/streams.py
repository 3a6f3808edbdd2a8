"""Random streams by purpose.

The same (seed, purpose, keys) gives the same numbers in every process, on both clocks.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any
from zlib import crc32

import numpy as np
from numpy.random.bit_generator import ISpawnableSeedSequence


@dataclass(frozen=True, slots=True)
class Streams:
    """Independent random generators, named by their purpose.

    Never use ``hash(str)`` for this: it differs between processes.
    """

    seed: int

    def rng(self, purpose: str, *keys: int | str) -> np.random.Generator:
        """Make a new generator for ``purpose`` and ``keys``, such as an edge id or task number."""
        seed: Any = Seed(self.seed, (purpose, *keys))  # numpy's types name only its own class
        return np.random.Generator(np.random.PCG64(seed))


class Seed(ISpawnableSeedSequence):
    """The words of numpy's ``SeedSequence(seed, spawn_key=...)``, in less than half of its time.

    ``keys`` are at least one. Each task of a device draws from new streams, and all streams of a
    purpose begin alike: what numpy mixes of seed and purpose is mixed once here.
    """

    def __init__(self, seed: int, keys: tuple[int | str, ...]) -> None:
        self.seed, self.keys = seed, keys
        self._sequence: np.random.SeedSequence | None = None

    @property
    def sequence(self) -> np.random.SeedSequence:
        """numpy's own, which also counts its children."""
        if self._sequence is None:
            key = tuple(map(_word, self.keys))
            self._sequence = np.random.SeedSequence(self.seed, spawn_key=key)
        return self._sequence

    def spawn(self, n_children: int) -> list[Any]:
        return list(self.sequence.spawn(n_children))

    def generate_state(self, n_words: int, dtype: Any = np.uint32) -> Any:
        if n_words != WORDS or dtype is not np.uint64:  # not for PCG64
            return self.sequence.generate_state(n_words, dtype)
        pool, at = _begun(self.seed, self.keys[0])
        for key in self.keys[1:]:
            pool, at = _mixed(pool, at, _word(key)), at + WORDS
        words = []
        for word, before, after in zip(pool + pool, OUT_OF, OUT_OF[1:]):
            value = (word ^ before) * after & MASK
            words.append(value ^ value >> 16)
        return np.array([low | high << 32 for low, high in zip(words[::2], words[1::2])], np.uint64)


# ------------------------------------------------------------------ as numpy's bit_generator.pyx
MASK = 0xFFFFFFFF
WORDS = 4  # of the pool
MOST_WORDS = 64  # of a seed and its keys


def _constants(first: int, factor: int, count: int) -> list[int]:
    """The constants of a hash: each is the one before it times ``factor``."""
    constants = [first]
    for _ in range(count):
        constants.append(constants[-1] * factor & MASK)
    return constants


INTO = _constants(0x43B0D7E5, 0x931E8875, WORDS * MOST_WORDS)
OUT_OF = _constants(0x8B51F9DD, 0x58F38DED, 2 * WORDS)


def _word(key: int | str) -> int:
    return crc32(str(key).encode())


def _mixed(pool: list[int], at: int, word: int) -> list[int]:
    """The pool with one more word. ``at``: the place of the first constant for it."""
    mixed = []
    for own in pool:  # numpy's hashmix and mix; calls would take as long as numpy does
        value = (word ^ INTO[at]) * INTO[at + 1] & MASK
        value = (0xCA01F9DD * own - 0x4973F715 * (value ^ value >> 16)) & MASK
        mixed.append(value ^ value >> 16)
        at += 1
    return mixed


@lru_cache(maxsize=256)
def _begun(seed: int, purpose: int | str) -> tuple[list[int], int]:
    """The pool of a seed and a purpose, and the place of the next constant."""
    words = [seed >> shift & MASK for shift in range(0, max(seed.bit_length(), 1), 32)]
    words += [0] * (WORDS - len(words))
    pool = []
    for at in range(WORDS):
        value = (words[at] ^ INTO[at]) * INTO[at + 1] & MASK
        pool.append(value ^ value >> 16)
    at = WORDS
    for source in range(WORDS):
        for target in range(WORDS):
            if source != target:
                (pool[target],) = _mixed([pool[target]], at, pool[source])
                at += 1
    for word in [*words[WORDS:], _word(purpose)]:
        pool, at = _mixed(pool, at, word), at + WORDS
    return pool, at
