"""Arrays of a checkpoint: each piece of memory once, and the arrays as views into it.

Float sums depend on the alignment of their input, so an array starts at the same place of a cache
line as before.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import Any

import numpy as np

from edgefl.pickles import UnsafePickle
from edgefl.vectors import ALIGNMENT, aligned

# What safetensors can hold as it is; all else goes into the file as bytes.
PLAIN = {
    np.dtype(kind).newbyteorder("<")
    for kind in (
        *(np.bool_, np.uint8, np.uint16, np.uint32, np.uint64, np.int8, np.int16, np.int32),
        *(np.int64, np.float16, np.float32, np.float64),
    )
}
# [name of the buffer or None, dtype, shape, strides or None, offset in bytes, writeable]
View = list[Any]


def refused(array: np.ndarray) -> str:
    """Why the array cannot be saved, or ""."""
    if array.dtype.hasobject or np.dtype(array.dtype.str) != array.dtype:
        return f"an array of {array.dtype}"
    return "" if type(array) is np.ndarray else f"an array of the class {type(array).__name__}"


class BufferTable:
    """Collects arrays, and finds which of them share memory. ``copy``: copy what may change."""

    def __init__(self, copy: bool) -> None:
        self.copy = copy
        self._arrays: list[np.ndarray] = []

    def add(self, array: np.ndarray) -> int:
        """Add an array; return its number. It must not move until ``close``."""
        self._arrays.append(array)
        return len(self._arrays) - 1

    def close(self) -> tuple[list[View], dict[str, int], dict[str, np.ndarray]]:
        """Return the views by number, the alignment of each buffer in bytes, and the buffers."""
        views: list[View] = [[] for _ in self._arrays]
        places: dict[str, int] = {}
        buffers: dict[str, np.ndarray] = {}
        for group in self._groups(views):
            low, high = group[0][0], max(end for _, end, _ in group)
            name = f"a{len(buffers)}"
            arrays = [self._arrays[number] for _, _, number in group]
            places[name] = low % ALIGNMENT
            buffers[name] = self._buffer(arrays, low, high)
            for start, _, number in group:
                views[number] = _view(self._arrays[number], name, start - low)
        return views, places, buffers

    def _groups(self, views: list[View]) -> list[list[tuple[int, int, int]]]:
        """(first byte, end, number) of the arrays, those that overlap in one group."""
        spans = []
        for number, array in enumerate(self._arrays):
            if array.size:
                spans.append((*_span(array), number))
            else:
                views[number] = _view(array, None, 0)
        groups: list[list[tuple[int, int, int]]] = []
        end = 0
        for span in sorted(spans):
            if not groups or span[0] >= end:
                groups.append([])
            groups[-1].append(span)
            end = max(end, span[1])
        # in the order of the graph, so that names do not depend on addresses
        return sorted(groups, key=lambda group: min(number for _, _, number in group))

    def _buffer(self, arrays: list[np.ndarray], low: int, high: int) -> np.ndarray:
        """The memory of overlapping arrays, as one contiguous array."""
        whole = next((a for a in arrays if a.flags.c_contiguous and a.nbytes == high - low), None)
        if whole is None:  # strided: with the gaps, which belong to the same memory
            memory = (ctypes.c_uint8 * (high - low)).from_address(low)
            return np.ctypeslib.as_array(memory).copy()
        if whole.dtype not in PLAIN:
            whole = whole.reshape(-1).view(np.uint8)
        changes = self.copy and any(array.flags.writeable for array in arrays)
        return whole.copy() if changes else whole


def _span(array: np.ndarray) -> tuple[int, int]:
    """The address of the array's first byte in memory, and the one after its last."""
    start = end = array.__array_interface__["data"][0]
    for length, step in zip(array.shape, array.strides):
        start += min(0, (length - 1) * step)
        end += max(0, (length - 1) * step)
    return start, end + array.itemsize


def _view(array: np.ndarray, name: str | None, start: int) -> View:
    """The row of an array whose lowest byte is byte ``start`` of the buffer."""
    back = sum((n - 1) * step for n, step in zip(array.shape, array.strides) if step < 0)
    return [
        name,
        array.dtype.str,
        list(array.shape),
        None if array.flags.c_contiguous else list(array.strides),
        start - back if array.size else 0,
        array.flags.writeable,
    ]


def arrays_of(
    views: list[View], places: Mapping[str, int], buffers: Mapping[str, np.ndarray]
) -> list[np.ndarray]:
    """Make the arrays of the views. Each buffer is copied into new memory, once.

    ValueError, TypeError or KeyError if something is damaged.
    """
    memory: dict[str | None, np.ndarray] = {None: np.empty(0, np.uint8)}
    for name, place in places.items():
        data = np.ascontiguousarray(buffers[name]).reshape(-1).view(np.uint8)
        start = int(place) % ALIGNMENT
        memory[name] = aligned(data.size + start, np.uint8)[start:]
        memory[name][:] = data
    arrays = []
    for name, dtype, shape, strides, offset, writeable in views:
        kind = np.dtype(dtype)
        if kind.hasobject:
            raise UnsafePickle(f"has an array of {kind}")
        if offset < 0:  # numpy does not check it
            raise UnsafePickle(f"has an array at byte {offset}")
        made: np.ndarray = np.ndarray(tuple(shape), kind, memory[name], offset, strides)
        made.flags.writeable = bool(writeable)
        arrays.append(made)
    return arrays
