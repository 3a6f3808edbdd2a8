"""Random streams by purpose: the same (seed, purpose, keys) gives the same numbers in every
process, on both clocks.
"""

from __future__ import annotations

from dataclasses import dataclass
from zlib import crc32

import numpy as np


@dataclass(frozen=True, slots=True)
class Streams:
    """Independent generators, named by what they are for. Never ``hash(str)``: it differs
    between processes.
    """

    seed: int

    def rng(self, purpose: str, *keys: int | str) -> np.random.Generator:
        """A fresh generator for ``purpose`` and ``keys`` (edge id, task number, trigger number,
        ...).
        """
        spawn_key = tuple(crc32(str(key).encode()) for key in (purpose, *keys))
        return np.random.Generator(
            np.random.PCG64(np.random.SeedSequence(self.seed, spawn_key=spawn_key))
        )
