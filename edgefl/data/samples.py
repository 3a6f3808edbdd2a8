"""A data set's samples as tensors, created only for the requested rows.

The arrays do not change, so all processes can share them.
"""

from __future__ import annotations

import warnings
from copy import copy
from typing import Self

import numpy as np
import torch

from edgefl.data.encoding import IDS, PARTS, SECOND

IGNORED = -100  # the target of a token that does not count; cross entropy of torch uses it


class Rows:
    """Rows of ``raw`` (n, ...), indexed like a tensor; ``_ready`` makes them of raw ones."""

    def __init__(self, raw: np.ndarray) -> None:
        self.raw = shared(raw)

    def __len__(self) -> int:
        return len(self.raw)

    def __getitem__(self, rows: slice | np.ndarray | torch.Tensor) -> torch.Tensor:
        return self._ready(self.raw[rows])

    def index_select(self, dim: int, index: torch.Tensor) -> torch.Tensor:
        """Do the same as torch's method."""
        return self._ready(self.raw.index_select(dim, index))

    def to(self, device: torch.device) -> Self:
        """Return these rows with their tensors on the device."""
        moved = copy(self)
        for name, value in vars(self).items():
            setattr(moved, name, None if value is None else value.to(device))
        return moved

    def _ready(self, rows: torch.Tensor) -> torch.Tensor:
        raise NotImplementedError


class Samples(Rows):
    """Inputs: with ``mean`` and ``std`` they are (x - mean) / std in float32, without them token
    numbers in int64.
    """

    def __init__(
        self, raw: np.ndarray, mean: np.ndarray | None = None, std: np.ndarray | None = None
    ) -> None:
        super().__init__(raw)
        self.mean, self.std = (
            None if numbers is None else torch.from_numpy(numbers) for numbers in (mean, std)
        )

    def _ready(self, rows: torch.Tensor) -> torch.Tensor:
        if self.mean is None or self.std is None:
            return rows.to(torch.int64)
        return rows.to(torch.float32, copy=True).sub_(self.mean).div_(self.std)


class NextTokens(Rows):
    """Targets (n, length) of encoded texts ``raw`` (n, 2, length).

    A target is the text's own token, and ``IGNORED`` outside its second part. The loss shifts them.
    """

    def _ready(self, rows: torch.Tensor) -> torch.Tensor:
        ids = rows[:, IDS].to(torch.int64)
        return ids.masked_fill(rows[:, PARTS] != SECOND, IGNORED)


def shared(array: np.ndarray) -> torch.Tensor:
    """Return a tensor of ``array``, without a copy if torch allows it.

    Do not write to it: it can be a memory-mapped file that is read-only.
    """
    if not array.dtype.isnative or any(stride < 0 for stride in array.strides):
        array = array.astype(array.dtype.newbyteorder("="), order="C")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        return torch.from_numpy(array)
