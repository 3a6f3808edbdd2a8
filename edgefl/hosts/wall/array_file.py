"""Pass values with arrays to another process of this machine: arrays in a file, the rest in a
message.

numpy releases the GIL while it writes or reads an array, so this does not delay pacing. Encoding
one large message would delay it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from edgefl.vectors import aligned

PLACE = "array in file"  # the key that marks [offset, dtype, shape]


def put(path: Path, value: Any) -> Any:
    """Write the arrays of ``value`` to the file ``path``.

    Returns ``value`` (dicts, lists, texts, numbers, arrays) with a mark in each array's place.
    """
    with path.open("wb") as file:
        return _put(file, value)


def take(path: Path, value: Any) -> Any:
    """Return the value given to ``put``, with aligned read-only arrays, and delete the file."""
    found = _take(path, value)
    path.unlink()
    return found


def _put(file: BinaryIO, value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _put(file, part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_put(file, part) for part in value]
    if isinstance(value, np.generic):
        return value.item()
    if not isinstance(value, np.ndarray):
        return value
    place = [file.tell(), value.dtype.str, list(value.shape)]
    file.write(np.ascontiguousarray(value).reshape(-1).view(np.uint8).data)
    return {PLACE: place}


def _take(path: Path, value: Any) -> Any:
    if isinstance(value, list):
        return [_take(path, part) for part in value]
    if not isinstance(value, dict):
        return value
    if PLACE not in value:
        return {key: _take(path, part) for key, part in value.items()}
    offset, dtype, shape = value[PLACE]
    count = int(np.prod(shape, dtype=np.int64))
    array = aligned(count, np.dtype(dtype).type)
    array[:] = np.fromfile(path, dtype, count, offset=offset)
    array.flags.writeable = False
    return array.reshape(shape)
