"""Random streams by purpose.

The same (seed, purpose, keys) gives the same numbers in every process, on both clocks.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from zlib import crc32

import numpy as np


@dataclass(frozen=True, slots=True)
class Streams:
    """Independent random generators, named by their purpose.

    Never use ``hash(str)`` for this: it differs between processes.
    """

    seed: int

    def rng(self, purpose: str, *keys: int | str) -> np.random.Generator:
        """Make a new generator for ``purpose`` and ``keys``, such as an edge id or task number."""
        key = [crc32(str(key).encode()) for key in (purpose, *keys)]
        # what SeedSequence(seed, spawn_key=key) makes of them, which takes it twice the time
        entropy = np.array([*_words(self.seed), *key], np.uint32)
        return np.random.Generator(np.random.PCG64(np.random.SeedSequence(entropy)))

    def as_torch(self, purpose: str) -> np.random.RandomState:
        """Make a Mersenne Twister with the seed and the numbers of torch's on the CPU."""
        return np.random.RandomState(int(self.rng(purpose).integers(2**63)) & 0xFFFFFFFF)


@cache
def _words(seed: int) -> tuple[int, ...]:
    """Return a seed as words of 32 bits, the lowest first, at least four."""
    count = max(-(-seed.bit_length() // 32), 4)
    return tuple(seed >> 32 * place & 0xFFFFFFFF for place in range(count))
