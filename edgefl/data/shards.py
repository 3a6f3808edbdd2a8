"""Shard files for edges on other machines: one per edge with its training samples.

One more file has the test samples for the coordinator.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import xxhash
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from edgefl.data.dataset import Dataset, first_not_finite
from edgefl.data.words import FILE
from edgefl.errors import UserError

TEST = "_test"  # no edge id begins with "_"
SUFFIX = ".safetensors"
ABOUT = "edgefl"


def write(
    directory: Path,
    name: str,
    found: Dataset,
    shares: Mapping[str, np.ndarray],
    digests: Mapping[str, str],
    test: bool = True,
) -> list[Path]:
    """Write one file per edge and one with the test samples; for texts, also the vocabulary.

    ``digests``: those of the whole data set and all shares, by scale (``edge_data.digests``).
    ``test``: False for the edges' files alone. UserError unless ``directory`` is new or empty.
    """
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise UserError(f"--out {directory}: expected a new or empty directory")
    directory.mkdir(parents=True, exist_ok=True)
    about = {"name": name, **found.about()}
    about |= {"whole": digests["standard"], "digests": dict(digests)}
    if test and found.words is not None:
        shutil.copyfile(found.words, directory / FILE)
    written = [
        _save(directory / f"{edge}{SUFFIX}", found.train_x[rows], found.train_y[rows], about)
        for edge, rows in shares.items()
    ]
    if test:
        written.append(_save(directory / f"{TEST}{SUFFIX}", found.test_x, found.test_y, about))
    return written


def read(
    directory: Path, name: str, edges: Sequence[str], wants_test: bool
) -> tuple[Dataset, dict[str, np.ndarray], dict[str, str]]:
    """Return (data, shares, digests) of some edges' files, with the test samples if wanted.

    UserError for a file that is missing or wrong.
    """
    parts = {edge: _load(directory, edge, name) for edge in edges}
    parts |= {TEST: _load(directory, TEST, name)} if wants_test else {}
    about = next(iter(parts.values()))[2]
    other = next(
        (part for part, (_, _, said) in parts.items() if said["whole"] != about["whole"]), None
    )
    if other is not None:
        raise UserError(
            f"{directory / other}{SUFFIX}: is from another `edgefl data shard` than"
            f" {directory / next(iter(parts))}{SUFFIX}"
        )
    x, y, _ = next(iter(parts.values()))
    nothing = (x[:0], y[:0])
    test_x, test_y = parts.pop(TEST)[:2] if wants_test else nothing
    train_x, train_y = (
        (np.concatenate([part[index] for part in parts.values()]) for index in (0, 1))
        if parts
        else nothing
    )
    words = directory / FILE if (directory / FILE).is_file() else None
    found = Dataset.of((train_x, train_y, test_x, test_y), about, words=words)
    shares = in_order({edge: len(part[1]) for edge, part in parts.items()})
    digests = {"standard": about["whole"]} | about.get("digests", {})  # older files lack the others
    return found, shares, digests


def in_order(counts: Mapping[str, int]) -> dict[str, np.ndarray]:
    """Return the edges' shares if the samples are ordered by edge."""
    ends = accumulate(counts.values())
    return {edge: np.arange(end - count, end) for (edge, count), end in zip(counts.items(), ends)}


def _save(path: Path, x: np.ndarray, y: np.ndarray, about: Mapping[str, Any]) -> Path:
    said = {ABOUT: orjson.dumps(dict(about) | {"content": _content(x, y)}).decode()}
    arrays = {"x": np.ascontiguousarray(x), "y": np.ascontiguousarray(y, dtype=np.int64)}
    try:
        save_file(arrays, path, metadata=said)
    except (SafetensorError, OSError) as error:
        raise UserError(f"{path}: cannot be written ({error})") from error
    return path


def _load(directory: Path, part: str, name: str) -> tuple[np.ndarray, np.ndarray, dict[str, Any]]:
    path = directory / f"{part}{SUFFIX}"
    if not path.is_file():
        raise UserError(
            f"no file {path}: `edgefl data shard CONFIG --out {directory}` writes it; [data] dir"
            " (on an edge: --data DIR) says where it is"
        )
    try:
        with safe_open(path, "numpy") as file:
            about = orjson.loads((file.metadata() or {})[ABOUT])
            x, y = file.get_tensor("x"), file.get_tensor("y")
    except (SafetensorError, OSError, KeyError, ValueError) as error:
        raise UserError(
            f"{path}: truncated, or no file of `edgefl data shard` ({error})"
        ) from error
    if about["name"] != name:
        raise UserError(
            f"{path}: holds samples of {about['name']!r}, expected data.name = {name!r}"
        )
    if about["content"] != _content(x, y):
        raise UserError(f"{path}: damaged (its digest differs)")
    bad = first_not_finite(x)
    if bad is not None:
        raise UserError(f"{path}: x[{bad}] is not finite (NaN or infinite)")
    return x, y, about


def _content(x: np.ndarray, y: np.ndarray) -> str:
    state = xxhash.xxh3_64(np.ascontiguousarray(x).data)
    state.update(np.ascontiguousarray(y, dtype=np.int64).data)
    return state.hexdigest()
