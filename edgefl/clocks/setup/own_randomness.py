"""Seeds for code that draws from the generators of its process: Flower apps."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch

from edgefl.streams import Streams


@contextmanager
def seeded(streams: Streams, purpose: str, *keys: int | str) -> Iterator[None]:
    """Seed the generators of Python, numpy and torch for ``purpose``, and restore them at the end.

    The same seed, purpose and keys give the same numbers in every process.
    """
    seed = int(streams.rng(purpose, *keys).integers(2**32))
    python, arrays = random.getstate(), np.random.get_state()
    with torch.random.fork_rng(devices=[]):
        random.seed(seed)
        np.random.seed(seed)
        torch.manual_seed(seed)
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(arrays)
