"""Images: your own pictures, a folder for each class (PNG, JPEG and others).

It reads ``images/train/CLASS/*`` and ``images/test/CLASS/*``, or ``images/CLASS/*`` and splits
them. Needs pillow (the extra lab).
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import Field

from edgefl.data.cache import cached, picture, pictures
from edgefl.data.dataset import Dataset, OwnClasses, by_channel, class_names
from edgefl.errors import UserError, nearest

SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".pgm", ".ppm")
# of file managers, beside files that begin with a dot
STRAY = ("thumbs.db", "desktop.ini")
Part = list[tuple[Path, str]]  # files with the names of their classes


class Options(OwnClasses):
    """The folder, and what a picture becomes."""

    path: str = "images"
    """Folder with the pictures, in the data directory. It has the folders `train` and `test`, each
    with a folder for each class; or only the folders of the classes, of which `test_share` is for
    testing.
    """
    train: str = Field("train", min_length=1)
    """Name of the folder with the training pictures."""
    test: str = Field("test", min_length=1)
    """Name of the folder with the test pictures, such as `"val"`."""
    size: int | None = Field(None, ge=1, le=4096)
    """Width and height in pixels to which pictures are scaled; none: all must have one size."""
    colours: Literal["rgb", "grey"] = "rgb"
    """`"rgb"`: three channels. `"grey"`: one channel, the brightness."""


def load(directory: Path, options: Options) -> Dataset:
    """Read the folders. Classes are numbered in the order of their names, numbers first.

    UserError for a class without pictures, a file that is no picture, pictures of several sizes.
    """
    root = directory / Path(options.path).expanduser()
    if not root.is_dir():
        raise UserError(
            f"no folder {root.absolute()}: data.path names the folder of the pictures in the data"
            " directory, and [data] dir or $EDGEFL_DATA says where that is"
        )
    apart = (root / options.train).is_dir()
    if apart and not (root / options.test).is_dir():
        near = nearest(options.test, [each.name for each in root.iterdir() if each.is_dir()])
        raise UserError(f"{root}: a folder {options.train}, but none {options.test}{near}")
    places = (root / options.train, root / options.test) if apart else (root,)
    parts = [_files(place) for place in places]
    known = class_names([name for _, name in parts[0]], options.classes)
    for place, part in zip(places, parts):
        strange = next((name for _, name in part if name not in known), None)
        if strange is not None:
            of = "data.classes" if options.classes else f"the classes in {places[0]}"
            raise UserError(f"{place / strange}: expected one of {of}: {', '.join(known)}")
    if len(known) < 2:
        raise UserError(f"{places[0]}: a single class, expected a folder for each of several")

    def parse(folder: Path) -> Dataset:
        labels = [np.array([known[name] for _, name in part], dtype=np.int64) for part in parts]
        files = [[file for file, _ in part] for part in parts]
        if not apart:
            trains = options.trains(labels[0])
            masks = (trains, ~trains)
            files = [[file for file, mine in zip(files[0], mask) if mine] for mask in masks]
            labels = [labels[0][mask] for mask in masks]
        if not all(map(len, files)):
            raise UserError(f"{root}: too few pictures for a training and a test part")
        shape = _shape(files[0][0], options)
        train_x, test_x = (
            pictures(of, folder, array, shape, "images", options.size is not None)
            for of, array in zip(files, ("train_x", "test_x"))
        )
        return Dataset(train_x, labels[0], test_x, labels[1], len(known), *by_channel(train_x))

    state = _state(root, [file for part in parts for file, _ in part])
    return cached("images", [root], f"{options.model_dump_json()} {state}", parse)


def _files(place: Path) -> Part:
    """Return the pictures of all classes, in order. Folders in that of a class belong to it."""
    found: Part = []
    for folder in sorted(each for each in place.iterdir() if each.is_dir()):
        if folder.name.startswith("."):
            continue
        mine = [file for file in sorted(folder.rglob("*")) if _counts(file, folder)]
        if not mine:
            raise UserError(f"{folder}: no pictures, expected some of this class")
        found += [(file, folder.name) for file in mine]
    if not found:
        raise UserError(f"{place}: no folders of classes there")
    return found


def _counts(file: Path, folder: Path) -> bool:
    """Whether a path is a picture. UserError for another file; hidden ones are passed over."""
    inner = file.relative_to(folder).parts
    if file.is_dir() or file.name.lower() in STRAY or any(part[0] == "." for part in inner):
        return False
    if file.suffix.lower() not in SUFFIXES:
        raise UserError(f"{file}: expected a picture ({', '.join(SUFFIXES)})")
    return True


def _shape(file: Path, options: Options) -> tuple[int, int, int]:
    """Return channels, height and width: those of the options, or of the first picture."""
    channels = 3 if options.colours == "rgb" else 1
    if options.size is not None:
        return channels, options.size, options.size
    with picture(file, "images") as first:
        return channels, first.height, first.width


def _state(root: Path, files: list[Path]) -> str:
    """Return a digest of the names, sizes and times of the files: they may change at any time."""
    found = hashlib.sha256()
    for file in files:
        state = file.stat()
        name = file.relative_to(root).as_posix()
        found.update(f"{name}\n{state.st_size} {state.st_mtime_ns}\n".encode())
    return found.hexdigest()[:16]
