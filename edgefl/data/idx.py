"""Read IDX files, the format of MNIST and similar data sets, gzipped or not.

A file has a magic number, the dimensions (big-endian), and unsigned bytes.
"""

from __future__ import annotations

import gzip
import math
import struct
import zlib
from pathlib import Path
from typing import IO, cast

import numpy as np

from edgefl.data.cache import cached
from edgefl.data.dataset import Dataset, checked, file_of
from edgefl.errors import UserError

UNSIGNED_BYTE = 0x08
LARGEST = 1 << 31  # bytes; a damaged header must not request all the memory


def idx_dataset(
    directory: Path, name: str, folders: tuple[str, ...], classes: int, mean: float, std: float
) -> Dataset:
    """Read the four standard files. UserError names the file that is missing or wrong."""
    stems = [
        f"{part}-{kind}-ubyte"
        for part in ("train", "t10k")
        for kind in ("images-idx3", "labels-idx1")
    ]
    files = [file_of(directory, folders, (stem, f"{stem}.gz"), name) for stem in stems]

    def parse(folder: Path) -> Dataset:
        return Dataset(
            *pair(files[0], files[1], classes),
            *pair(files[2], files[3], classes),
            classes,
            (mean,),
            (std,),
        )

    return cached(name, files, "", parse)


def read(path: Path, dimensions: int) -> np.ndarray:
    """Return the array of an IDX file of unsigned bytes with ``dimensions`` dimensions.

    UserError if the file has another format.
    """
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else open(path, "rb") as file:
            return _parse(path, cast(IO[bytes], file), dimensions)
    except (OSError, EOFError, zlib.error) as error:
        raise UserError(f"{path}: {error}") from error


def _parse(path: Path, file: IO[bytes], dimensions: int) -> np.ndarray:
    header = file.read(4 + 4 * dimensions)
    magic = struct.pack(">HBB", 0, UNSIGNED_BYTE, dimensions)
    if header[:4] != magic or len(header) < 4 + 4 * dimensions:
        raise UserError(
            f"{path}: expected an IDX file of unsigned bytes with {dimensions} dimensions (magic"
            f" {magic.hex()}), it begins with {header[:4].hex()}"
        )
    shape = struct.unpack(f">{dimensions}I", header[4:])
    size = math.prod(shape)
    if not 0 < size <= LARGEST:
        raise UserError(
            f"{path}: its header promises {' x '.join(map(str, shape))} bytes, expected 1 to"
            f" {LARGEST} in all"
        )
    content = file.read(size + 1)
    if len(content) != size:
        found = f"only {len(content)}" if len(content) < size else "more"
        raise UserError(
            f"{path}: its header promises {' x '.join(map(str, shape))} bytes, it holds {found}"
        )
    return np.frombuffer(content, dtype=np.uint8).reshape(shape)


def pair(image_file: Path, label_file: Path, classes: int) -> tuple[np.ndarray, np.ndarray]:
    """Return images (n, 1, height, width) and labels (n,). UserError if their numbers differ."""
    images, labels = read(image_file, 3), read(label_file, 1)
    if len(images) != len(labels):
        raise UserError(
            f"{label_file}: {len(labels)} labels for the {len(images)} images in {image_file}"
        )
    return images[:, None], checked(labels, classes, label_file)
