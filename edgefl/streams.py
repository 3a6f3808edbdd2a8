"""Random streams by purpose.

The same (seed, purpose, keys) gives the same numbers in every process, on both clocks.
"""

from __future__ import annotations

from dataclasses import dataclass
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
        spawn_key = tuple(crc32(str(key).encode()) for key in (purpose, *keys))
        return np.random.Generator(
            np.random.PCG64(np.random.SeedSequence(self.seed, spawn_key=spawn_key))
        )

    def as_torch(self, purpose: str) -> np.random.RandomState:
        """Make a Mersenne Twister with the seed and the numbers of torch's on the CPU."""
        return np.random.RandomState(int(self.rng(purpose).integers(2**63)) & 0xFFFFFFFF)
