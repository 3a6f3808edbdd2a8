"""The cache of parsed data sets: memory-mapped arrays that all processes of a user share.

An entry belongs to one state of the source files: its name depends on their sizes and times. Its
digest is stored when it is written. The whole directory can be deleted at any time.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from filelock import FileLock

from edgefl.data.dataset import CACHE_VARIABLE, Dataset, cache_dir, check_finite
from edgefl.data.words import FILE
from edgefl.errors import UserError, needs, written

FORMAT = 5  # increase it when a parser gives another result for the same files
ARRAYS = ("train_x", "train_y", "test_x", "test_y")
ABOUT = "about.json"
COLUMN = "column_"  # prefix of the files with other columns of the training samples


def cached(
    name: str, sources: Sequence[Path], options: str, parse: Callable[[Path], Dataset]
) -> Dataset:
    """Return the data set in ``sources`` for ``options``, from the cache or by ``parse(folder)``.

    ``parse`` may write large arrays to ``folder``. If several processes ask at the same time, one
    parses and the others wait. UserError if the cache cannot be written or an entry is damaged.
    """
    root = cache_dir(os.environ)
    entry = root / f"{name}-{_key(sources, options)}"
    instead = f"; ${CACHE_VARIABLE} may name another place"
    with written(f"{root}: the cache of parsed data sets", instead):
        root.mkdir(parents=True, exist_ok=True)
        with FileLock(root / f"{entry.name}.lock"):
            if not entry.exists():
                _fill(entry, parse)
    return _opened(entry)


def large(folder: Path, array: str, shape: tuple[int, ...], dtype: type) -> np.ndarray:
    """Return a new array of the entry in ``folder``, on disk and not in memory."""
    path = folder / f"{array}.npy"
    found = np.lib.format.open_memmap(path, mode="w+", dtype=dtype, shape=shape)
    if hasattr(os, "posix_fallocate"):
        # without this, writing into a hole of the file on a full disk would kill the process
        with path.open("r+b") as file:
            os.posix_fallocate(file.fileno(), 0, path.stat().st_size)
    return found


@contextmanager
def picture(file: Path, name: str) -> Iterator[Any]:
    """Open a picture file of the data set ``name``. UserError if it cannot be read."""
    with needs("lab", f"data set {name!r}"):
        from PIL import Image  # here, because few data sets need it

    try:
        with Image.open(file) as found:
            yield found
    except (OSError, ValueError, Image.DecompressionBombError) as error:
        raise UserError(f"{file}: cannot be read as a picture ({error})") from error


def pictures(
    files: Sequence[Path],
    folder: Path,
    array: str,
    shape: tuple[int, int, int],
    name: str,
    resize: bool = False,
) -> np.ndarray:
    """Return images (n, *shape) of picture files, written to disk one by one.

    ``shape``: channels (3: colours, 1: grey), height and width. ``array``: of the entry in
    ``folder``; ``name``: of the data set. Without ``resize``, a picture of another size is a
    UserError.
    """
    channels, height, width = shape
    out = large(folder, array, (len(files), *shape), np.uint8)
    for row, file in enumerate(files):
        with picture(file, name) as found:
            if found.mode[0] in "IF":
                raise ValueError(f"more than 8 bits per channel ({found.mode})")
            colours = found.convert("RGB" if channels == 3 else "L")
            pixels = np.asarray(colours.resize((width, height)) if resize else colours)
        if pixels.shape[:2] != (height, width):
            raise UserError(
                f"{file}: {pixels.shape[1]} x {pixels.shape[0]} pixels, expected {width} x {height}"
            )
        out[row] = pixels.reshape(height, width, channels).transpose(2, 0, 1)
    return out


def _key(sources: Sequence[Path], options: str) -> str:
    key = hashlib.sha256(f"{FORMAT}\n{options}\n".encode())
    for source in sources:
        state = source.stat()
        key.update(
            f"{source.resolve()}\n{state.st_ino} {state.st_size} {state.st_mtime_ns}\n".encode()
        )
    return key.hexdigest()[:20]


def _fill(entry: Path, parse: Callable[[Path], Dataset]) -> None:
    folder = Path(tempfile.mkdtemp(prefix=f"{entry.name}.", dir=entry.parent))
    try:
        found = parse(folder)
        check_finite(found, repr(entry.name.rpartition("-")[0]))
        _write(found, folder)
        folder.rename(entry)  # whole or not at all; on Windows no file in it may be open
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def _write(found: Dataset, folder: Path) -> None:
    for name in ARRAYS:
        array = getattr(found, name)
        if isinstance(array, np.memmap) and Path(array.filename or "") == folder / f"{name}.npy":
            array.flush()
        else:
            np.save(folder / f"{name}.npy", array, allow_pickle=False)
    for name, column in found.columns.items():
        np.save(folder / f"{COLUMN}{name}.npy", column, allow_pickle=False)
    about = found.about() | {"digest": found.digest(), "columns": list(found.columns)}
    (folder / ABOUT).write_bytes(orjson.dumps(about))


def _opened(entry: Path) -> Dataset:
    try:
        about = orjson.loads((entry / ABOUT).read_bytes())
        arrays = [
            np.load(entry / f"{name}.npy", mmap_mode="r", allow_pickle=False) for name in ARRAYS
        ]
        columns = {
            name: np.load(entry / f"{COLUMN}{name}.npy", allow_pickle=False)
            for name in about["columns"]
        }
        words = entry / FILE if about["vocabulary"] else None
        return Dataset.of(arrays, about, pinned=about["digest"], words=words, columns=columns)
    except (OSError, ValueError, KeyError) as error:
        raise UserError(
            f"{entry}: a damaged entry of the cache of parsed data sets ({error}): delete it"
        ) from error
