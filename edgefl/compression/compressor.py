"""What a method of compression is, and the error that a sender keeps for its next vector.

A method is a file of this folder that binds ``build(options)``, with an ``Options`` class. It packs
one flat float32 vector into bytes, whose number depends on the lengths of its tensors alone: so a
receiver knows it before it reads them.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from pydantic import BaseModel, ConfigDict

from edgefl import catalog
from edgefl.vectors import aligned

PACKAGE, ATTRIBUTE = "edgefl.compression", "build"
Tensors = Sequence[int]  # lengths of the tensors that make up a vector, in order
Bytes = np.ndarray  # uint8


class MethodOptions(BaseModel):
    """Base of the options of a method: immutable, no unknown keys, no silent conversion."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Compressor(Protocol):
    """Packs vectors and unpacks them.

    ``of_change``: it keeps little of a vector, so it is for the change of a model, and not for a
    model. ``keeps_error``: the sender keeps what was lost, and adds it to its next vector.
    """

    of_change: bool
    keeps_error: bool

    def packed_bytes(self, tensors: Tensors) -> int:
        """Return the number of bytes of a packed vector."""
        ...

    def pack(self, vector: np.ndarray, tensors: Tensors, rng: np.random.Generator) -> Bytes:
        """Return the bytes of a finite float32 vector. ``rng``: for methods that draw lots."""
        ...

    def unpack(self, packed: Bytes, tensors: Tensors) -> np.ndarray:
        """Return the vector (float32, aligned) that ``packed`` stands for.

        ValueError if these bytes stand for none. Their number is right.
        """
        ...


def find(name: str, options: dict[str, Any], base: Path | None = None) -> Compressor:
    """Return the method ``name`` with its options.

    ``base``: the folder of the user's code. UserError if there is none of this name, or for options
    that it does not take.
    """
    made: Compressor = catalog.made(PACKAGE, name, ATTRIBUTE, options, base, "compression")
    return made


def pack_with_error(
    compressor: Compressor,
    vector: np.ndarray,
    error: np.ndarray | None,
    tensors: Tensors,
    rng: np.random.Generator,
) -> tuple[Bytes, np.ndarray]:
    """Return the packed vector and the new error. ``error``: None before the first vector.

    Karimireddy et al. 2019 (arXiv 1901.09847), algorithm 2: p = vector + error, what is sent is
    C(p), and the new error is p - C(p).
    """
    corrected = aligned(vector.size)
    if error is None:
        corrected[:] = vector
    else:
        np.add(vector, error, out=corrected)
    packed = compressor.pack(corrected, tensors, rng)
    corrected -= compressor.unpack(packed, tensors)
    return packed, corrected


def pieces(vector: np.ndarray, tensors: Tensors) -> list[np.ndarray]:
    """Return the tensors of a vector as flat views. ValueError if they are not all of it."""
    if sum(tensors) != vector.size:
        raise ValueError(f"tensors of {sum(tensors)} elements, the vector has {vector.size}")
    ends = np.cumsum([0, *tensors]).tolist()
    return [vector[begin:end] for begin, end in pairwise(ends)]


def joined(*arrays: np.ndarray) -> Bytes:
    """Return the bytes of contiguous arrays one after another."""
    return np.concatenate([np.ascontiguousarray(each).view(np.uint8) for each in arrays])


def count(share: float, size: int) -> int:
    """Return how many of ``size`` elements a share of them is: at least one."""
    return max(1, round(share * size)) if size else 0
