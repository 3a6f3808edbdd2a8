"""A tiny set of images in MNIST's format."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path

import numpy as np

IMAGES = np.arange(24, dtype=np.uint8).reshape(6, 2, 2)
LABELS = np.array([0, 1, 2, 3, 9, 9], dtype=np.uint8)


def idx_bytes(array: np.ndarray) -> bytes:
    return struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape) + array.tobytes()


def write_set(folder: Path, zipped: bool) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for part in ("train", "t10k"):
        for kind, array in (("images-idx3-ubyte", IMAGES), ("labels-idx1-ubyte", LABELS)):
            content = idx_bytes(array)
            name = f"{part}-{kind}.gz" if zipped else f"{part}-{kind}"
            (folder / name).write_bytes(gzip.compress(content) if zipped else content)
