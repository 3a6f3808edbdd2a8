"""Tiny-ImageNet: photographs of 200 classes, 3 x 64 x 64, 100,000 + 10,000 samples.

It reads the folders of JPEG files. Source: Stanford CS231N.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from edgefl.data.cache import cached, pictures
from edgefl.data.dataset import Dataset, checked, file_of
from edgefl.data.download import Download
from edgefl.errors import UserError, as_user_error
from emulator.plain_text import read_text

FOLDERS = ("tiny-imagenet-200", "tiny_imagenet")
DOWNLOADS = (
    Download(
        "http://cs231n.stanford.edu/tiny-imagenet-200.zip",
        "md5:90528d7ca1a48142e341f4ef8d21d0de",
        "tiny-imagenet-200",
    ),
)
CLASSES, SIDE = 200, 64
# of each channel of the training images
MEAN, STD = (122.45, 114.26, 101.36), (70.64, 68.62, 71.94)
ANNOTATIONS = "val/val_annotations.txt"


def load(directory: Path) -> Dataset:
    """Read ``directory/tiny-imagenet-200/`` or ``directory/``.

    The validation part is the test set, because the labels of the test part are not published.
    """
    root = file_of(directory, FOLDERS, ("wnids.txt",), "tiny_imagenet").parent
    with as_user_error():
        names = read_text(root / "wnids.txt").split()
    if not 0 < len(set(names)) == len(names) <= CLASSES:
        raise UserError(
            f"{root / 'wnids.txt'}: expected at most {CLASSES} names of classes, all different,"
            f" found {len(names)}"
        )
    folders = [root / "train" / name / "images" for name in names]
    gone = next(
        (
            path
            for path in (*folders, root / ANNOTATIONS, root / "val" / "images")
            if not path.exists()
        ),
        None,
    )
    if gone is not None:
        raise UserError(
            f"no {gone}, which belongs to {root / 'wnids.txt'}: delete {root}, then `edgefl data"
            f" get tiny_imagenet --dir {directory}` downloads it again"
        )

    def parse(folder: Path) -> Dataset:
        files = [
            (file, label)
            for label, place in enumerate(folders)
            for file in sorted(place.glob("*.JPEG"))
        ]
        train = _read(files, folder, "train_x", root)
        return Dataset(
            *train, *_read(_validation(root, names), folder, "test_x", root), CLASSES, MEAN, STD
        )

    return cached(
        "tiny_imagenet",
        [root / "wnids.txt", root / ANNOTATIONS, *folders, root / "val" / "images"],
        "",
        parse,
    )


def _validation(root: Path, names: list[str]) -> list[tuple[Path, int]]:
    """Return files and labels. A line has a file name, a class and a box, separated by tabs."""
    numbers, found = {name: label for label, name in enumerate(names)}, []
    with as_user_error():
        lines = read_text(root / ANNOTATIONS).rstrip().splitlines()
    for line, text in enumerate(lines, start=1):
        parts = text.split("\t")
        if len(parts) < 2 or parts[1] not in numbers:
            raise UserError(
                f"{root / ANNOTATIONS}: line {line}: expected a file name, a tab and a class of"
                f" wnids.txt, found {text[:60]!r}"
            )
        found.append((root / "val" / "images" / parts[0], numbers[parts[1]]))
    return found


def _read(
    files: Sequence[tuple[Path, int]], folder: Path, array: str, root: Path
) -> tuple[np.ndarray, np.ndarray]:
    """Return images (n, 3, 64, 64) and labels (n,)."""
    labels = checked(np.array([label for _, label in files], dtype=np.int64), CLASSES, root)
    shape = (3, SIDE, SIDE)
    return pictures([file for file, _ in files], folder, array, shape, "tiny_imagenet"), labels
