"""The IDX format of MNIST and its relatives: magic, dimensions (big-endian), then unsigned bytes; as it is or gzipped."""

from __future__ import annotations

import gzip
import math
import struct
import zlib
from pathlib import Path
from typing import BinaryIO

import numpy as np

from edgefl.data.dataset import Dataset
from edgefl.data.place import file_of
from edgefl.errors import UserError

UNSIGNED_BYTE = 0x08
LARGEST = 1 << 31  # bytes; a damaged header must not ask for all the memory there is


def idx_dataset(directory: Path, folders: tuple[str, ...], classes: int, mean: float, std: float) -> Dataset:
    """The four standard files as a data set. UserError names the file that is missing or wrong."""
    train_x, train_y = _pair(directory, folders, "train", classes)
    test_x, test_y = _pair(directory, folders, "t10k", classes)
    return Dataset(train_x, train_y, test_x, test_y, classes, (mean,), (std,))


def read(path: Path, dimensions: int) -> np.ndarray:
    """The array in an IDX file of unsigned bytes with so many dimensions. UserError if it is anything else."""
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else open(path, "rb") as file:
            return _parse(path, file, dimensions)
    except (OSError, EOFError, zlib.error) as error:
        raise UserError(f"{path}: {error}") from error


def _parse(path: Path, file: BinaryIO, dimensions: int) -> np.ndarray:
    header = file.read(4 + 4 * dimensions)
    magic = struct.pack(">HBB", 0, UNSIGNED_BYTE, dimensions)
    if header[:4] != magic or len(header) < 4 + 4 * dimensions:
        raise UserError(f"{path}: expected an IDX file of unsigned bytes with {dimensions} dimensions (magic {magic.hex()}), it begins with {header[:4].hex()}")
    shape = struct.unpack(f">{dimensions}I", header[4:])
    size = math.prod(shape)
    if not 0 < size <= LARGEST:
        raise UserError(f"{path}: its header promises {' x '.join(map(str, shape))} bytes, expected 1 to {LARGEST} in all")
    content = file.read(size + 1)
    if len(content) != size:
        found = f"only {len(content)}" if len(content) < size else "more"
        raise UserError(f"{path}: its header promises {' x '.join(map(str, shape))} bytes, it holds {found}")
    return np.frombuffer(content, dtype=np.uint8).reshape(shape)


def _pair(directory: Path, folders: tuple[str, ...], part: str, classes: int) -> tuple[np.ndarray, np.ndarray]:
    """Images (n, 1, height, width) and labels (n,) of one part, which must fit together."""
    stems = (f"{part}-images-idx3-ubyte", f"{part}-labels-idx1-ubyte")
    image_file, label_file = (file_of(directory, folders, (stem, f"{stem}.gz")) for stem in stems)
    images, labels = read(image_file, 3), read(label_file, 1)
    if len(images) != len(labels):
        raise UserError(f"{label_file}: {len(labels)} labels for the {len(images)} images in {image_file}")
    if labels.max() >= classes:
        raise UserError(f"{label_file}: label {labels.max()}, expected 0 to {classes - 1}")
    return images[:, None], labels.astype(np.int64)
