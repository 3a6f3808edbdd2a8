"""Checkpoint files: ``checkpoint-NNNNNN.safetensors`` has the pickle and the arrays,
``checkpoint-NNNNNN.json`` what is said about them.

A checkpoint counts once its JSON file has its name: that is written last, and it has the digests of
both files.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import xxhash
from safetensors.numpy import load

from edgefl.checkpoints.codec import Encoded
from edgefl.disk import PART, Disk, DiskFile, write_all
from edgefl.errors import listed

NAME = re.compile(r"checkpoint-(\d{6,})\.(json|safetensors)")
HEAD, MIDDLE, TAIL = b'{"digest":"', b'","checkpoint":', b"}\n"
DIGEST_LENGTH = 32  # hex digits
# numpy's kind and bytes per element -> safetensors' name
TYPES = {"f": "F", "i": "I", "u": "U"}


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint read from its files; ``meta`` is what ``Checkpoints.write`` got."""

    number: int
    encoded: Encoded
    meta: dict[str, Any]


class Checkpoints:
    """The checkpoints in a folder. Files are private: a strategy's state may have updates.

    ``keep``: how many stay; older ones are removed. ``durable``: ``write`` returns when the
    checkpoint survives a loss of power.
    """

    def __init__(self, disk: Disk, folder: Path, keep: int = 2, durable: bool = False) -> None:
        self.disk, self.folder, self.keep, self.durable = disk, folder, keep, durable

    def write(self, number: int, encoded: Encoded, meta: Mapping[str, Any]) -> None:
        """Write a checkpoint, then remove old ones.

        ``meta``: plain JSON about it. OSError if it cannot be written: then those before stay.
        """
        if not self.disk.exists(self.folder):
            self.disk.make_folder(self.folder)
            if self.durable:
                self.disk.sync_folder(self.folder.parent)
        arrays = self._path(number, "safetensors")
        self._replace(arrays, lambda file: _write_arrays(file, encoded.arrays))
        body = orjson.dumps(
            {
                "meta": dict(meta),
                "arrays": {name: _digest(array) for name, array in encoded.arrays.items()},
                "tree": encoded.tree,
            }
        )
        digest = xxhash.xxh3_128_hexdigest(body).encode()
        whole = HEAD + digest + MIDDLE + body + TAIL
        self._replace(self._path(number, "json"), lambda file: write_all(file, whole))
        self._prune(self.numbers()[-self.keep :])

    def clear(self) -> None:
        """Remove all checkpoints."""
        self._prune([])

    def numbers(self) -> list[int]:
        """The numbers of all checkpoints in the folder, the oldest first."""
        found = [NAME.fullmatch(name) for name in self.disk.names(self.folder)]
        return sorted(int(each[1]) for each in found if each is not None and each[2] == "json")

    def latest(self, say: Callable[[str], None], before: int | None = None) -> Checkpoint | None:
        """Return the newest checkpoint that is whole (and older than ``before``), or None.

        ``say`` gets one line about each newer one that is damaged.
        """
        numbers = [each for each in self.numbers() if before is None or each < before]
        while numbers:
            number = numbers.pop()
            try:
                return self._read(number)
            except (OSError, ValueError) as error:
                older = (
                    f"checkpoint {numbers[-1]}, the one before, is used"
                    if numbers
                    else "there is no older one"
                )
                path = self._path(number, "json")
                say(f"{path}: checkpoint {number} is damaged ({error}); {older}")
        return None

    def _path(self, number: int, kind: str) -> Path:
        return self.folder / f"checkpoint-{number:06d}.{kind}"

    def _replace(self, path: Path, write: Callable[[DiskFile], None]) -> None:
        """Write a file under another name, then rename it."""
        part = path.with_name(f"{path.name}{PART}")
        try:
            file = self.disk.append(part, private=True)
            try:
                write(file)
                if self.durable:
                    file.sync()
            finally:
                file.close()
            self.disk.rename(part, path)
        except OSError as error:
            with suppress(OSError):
                self.disk.remove(part)
            error.filename = str(path)  # the user knows this one
            raise
        if self.durable:
            self.disk.sync_folder(self.folder)

    def _read(self, number: int) -> Checkpoint:
        """Read a checkpoint. ValueError if it is damaged, OSError if its JSON cannot be read."""
        text = self.disk.read(self._path(number, "json"))
        start = len(HEAD) + DIGEST_LENGTH + len(MIDDLE)
        body, digest = text[start : -len(TAIL)], text[len(HEAD) : len(HEAD) + DIGEST_LENGTH]
        if digest != xxhash.xxh3_128_hexdigest(body).encode():
            raise ValueError("its digest differs")
        found = orjson.loads(body)
        kinds = {"tree": dict, "arrays": dict, "meta": dict}
        if not isinstance(found, dict) or not all(
            isinstance(found.get(name), kind) for name, kind in kinds.items()
        ):
            raise ValueError(f"expected {listed([*kinds])}")
        path = self._path(number, "safetensors")
        try:
            arrays = load(self.disk.read(path))
        except OSError as error:
            raise ValueError(f"{path.name}: cannot be read: {error.strerror}") from error
        except Exception as error:  # safetensors has its own exceptions
            raise ValueError(f"{path.name}: {error}") from error
        if {name: _digest(array) for name, array in arrays.items()} != found["arrays"]:
            raise ValueError(f"{path.name}: its digest differs")
        return Checkpoint(number, Encoded(found["tree"], arrays), found["meta"])

    def _prune(self, kept: Collection[int]) -> None:
        """Remove the other checkpoints, and what a crash has left of them.

        What cannot be removed now is tried again the next time.
        """
        for name in self.disk.names(self.folder):
            found = NAME.fullmatch(name.removesuffix(PART))
            if found is not None and (name.endswith(PART) or int(found[1]) not in kept):
                with suppress(OSError):
                    self.disk.remove(self.folder / name)


def _write_arrays(file: DiskFile, arrays: Mapping[str, np.ndarray]) -> None:
    """Write the arrays in the format of safetensors.

    Not by the library, because it needs all bytes in memory once more.
    """
    header, offset = {}, 0
    for name, array in arrays.items():
        kind = array.dtype.kind
        sort = "BOOL" if kind == "b" else f"{TYPES[kind]}{8 * array.itemsize}"
        place = [offset, offset + array.nbytes]
        header[name] = {"dtype": sort, "shape": list(array.shape), "data_offsets": place}
        offset += array.nbytes
    text = orjson.dumps(header)
    text += b" " * (-len(text) % 8)
    write_all(file, len(text).to_bytes(8, "little") + text)
    for array in arrays.values():
        write_all(file, _bytes(array).data)


def _digest(array: np.ndarray) -> str:
    return xxhash.xxh3_128_hexdigest(_bytes(array).data)


def _bytes(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)
