"""Parsed once: a data set's arrays as memory-mapped files, which every process of this user's
machine shares.

An entry belongs to one content of the source files (their sizes and times are in its name); its
digest is pinned when it is written. The whole directory may be deleted at any time.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import orjson

from edgefl.data.dataset import Dataset
from edgefl.data.paths import CACHE_VARIABLE, cache_dir
from edgefl.data.words import FILE
from edgefl.errors import UserError

FORMAT = 3  # raise it when a parser changes what it makes of the same files
ARRAYS = ("train_x", "train_y", "test_x", "test_y")
ABOUT = "about.json"
COLUMN = "column_"  # begins the file names of what else is known of the training samples


def cached(
    name: str, sources: Sequence[Path], options: str, parse: Callable[[Path], Dataset]
) -> Dataset:
    """The data set in ``sources`` read with ``options``, from the cache or by ``parse(folder)``,
    which may leave big arrays in ``folder``.

    Processes that ask at the same time wait for the first one. UserError if the cache cannot be
    written, or an entry is damaged.
    """
    root = cache_dir(os.environ)
    entry = root / f"{name}-{_key(sources, options)}"
    try:
        root.mkdir(parents=True, exist_ok=True)
        with _alone(root / f"{entry.name}.lock"):
            if not entry.exists():
                _fill(entry, parse)
    except OSError as error:
        raise UserError(
            f"{root}: the cache of parsed data sets cannot be written ({error.strerror});"
            f" ${CACHE_VARIABLE} may name another place"
        ) from error
    return _opened(entry)


def large(folder: Path, array: str, shape: tuple[int, ...], dtype: type) -> np.ndarray:
    """A new array of the entry that is being made, on disk rather than in memory."""
    return np.lib.format.open_memmap(folder / f"{array}.npy", mode="w+", dtype=dtype, shape=shape)


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
        for name in ARRAYS:
            array = getattr(found, name)
            if (
                isinstance(array, np.memmap)
                and Path(array.filename or "") == folder / f"{name}.npy"
            ):
                array.flush()
            else:
                np.save(folder / f"{name}.npy", array, allow_pickle=False)
        for name, column in found.columns.items():
            np.save(folder / f"{COLUMN}{name}.npy", column, allow_pickle=False)
        about = {
            "classes": found.classes,
            "mean": found.mean,
            "std": found.std,
            "vocabulary": found.vocabulary,
            "pixel_max": found.pixel_max,
            "digest": found.digest(),
        }
        about["columns"] = list(found.columns)
        (folder / ABOUT).write_bytes(orjson.dumps(about))
        folder.rename(entry)  # whole or not at all
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def _opened(entry: Path) -> Dataset:
    try:
        about = orjson.loads((entry / ABOUT).read_bytes())
        train_x, train_y, test_x, test_y = (
            np.load(entry / f"{name}.npy", mmap_mode="r", allow_pickle=False) for name in ARRAYS
        )
        found = Dataset(
            train_x,
            train_y,
            test_x,
            test_y,
            about["classes"],
            tuple(about["mean"]),
            tuple(about["std"]),
            about["vocabulary"],
            pixel_max=about["pixel_max"],
        )
        found = replace(
            found,
            columns={
                name: np.load(entry / f"{COLUMN}{name}.npy", allow_pickle=False)
                for name in about["columns"]
            },
        )
        return replace(
            found, pinned=about["digest"], words=entry / FILE if found.vocabulary else None
        )
    except (OSError, ValueError, KeyError) as error:
        raise UserError(
            f"{entry}: a damaged entry of the cache of parsed data sets ({error}): delete it"
        ) from error


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """A lock held by one process at a time; the system releases it when that process ends."""
    with open(path, "wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
