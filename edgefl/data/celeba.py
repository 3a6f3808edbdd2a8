"""CelebA: faces of 10,177 celebrities, labelled by one attribute such as Smiling (Liu 2015).

It reads the image folder and the lists of the authors' page. Source: Liu et al. 2015.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from pydantic import Field

from edgefl.config.section import Section
from edgefl.data.cache import cached, pictures
from edgefl.data.dataset import Dataset, by_channel, checked, missing
from edgefl.errors import UserError, as_user_error, nearest
from emulator.plain_text import read_text

FOLDERS = ("celeba", "CelebA")
PICTURES, ATTRIBUTES, IDENTITIES, PARTS = (
    "img_align_celeba",
    "list_attr_celeba.txt",
    "identity_CelebA.txt",
    "list_eval_partition.txt",
)
TEST_PART = "2"  # 0: training, 1: validation, which is used for training, too
WHERE = "its authors' page, mmlab.ie.cuhk.edu.hk/projects/CelebA.html"


class Options(Section):
    """``attribute``: the label of a face; ``size``: images are scaled to ``size`` x ``size``."""

    attribute: str = "Smiling"
    """The attribute that is the label, a name in `list_attr_celeba.txt`: 1 with it, 0 without."""
    size: int = Field(default=84, ge=8, le=218)
    """Width and height in pixels to which images are scaled."""


def load(directory: Path, options: Options) -> Dataset:
    """Read the image folder and the lists in ``directory/celeba/`` or ``directory/``.

    Without the list of parts, every tenth image is a test sample. Without the list of identities,
    there is no column ``celebrity``.
    """
    places = (*(directory / folder for folder in FOLDERS), directory)
    root = next(
        (
            place
            for place in places
            if (place / ATTRIBUTES).is_file() and (place / PICTURES).is_dir()
        ),
        None,
    )
    if root is None:
        raise UserError(
            str(
                missing(f"folder {PICTURES} and file {ATTRIBUTES}", directory, FOLDERS, "celeba")
            ).split(": `")[0]
            + f": they are on {WHERE}"
        )
    lists = [root / name for name in (ATTRIBUTES, IDENTITIES, PARTS) if (root / name).is_file()]
    return cached(
        "celeba",
        [root / PICTURES, *lists],
        options.model_dump_json(),
        lambda folder: _parsed(root, options, folder),
    )


def _parsed(root: Path, options: Options, folder: Path) -> Dataset:
    labels = _attribute(root / ATTRIBUTES, options.attribute)
    parts, people = _second_column(root / PARTS), _second_column(root / IDENTITIES)
    test = [
        name
        for number, name in enumerate(labels)
        if (parts.get(name) == TEST_PART if parts else number % 10 == 9)
    ]
    train = sorted(labels.keys() - set(test))
    shape = (3, options.size, options.size)
    train_x, test_x = (
        pictures([root / PICTURES / name for name in names], folder, array, shape, "celeba", True)
        for names, array in ((train, "train_x"), (test, "test_x"))
    )
    train_y, test_y = (
        checked(np.array([labels[name] for name in names], dtype=np.int64), 2, root / ATTRIBUTES)
        for names in (train, test)
    )
    unknown = next((name for name in train if people and name not in people), None)
    if unknown is not None:
        raise UserError(f"{root / IDENTITIES}: no line for {unknown}")
    columns = (
        {"celebrity": np.array([int(people[name]) for name in train], dtype=np.int64)}
        if people
        else {}
    )
    return Dataset(train_x, train_y, test_x, test_y, 2, *by_channel(train_x), columns=columns)


def _attribute(path: Path, attribute: str) -> dict[str, int]:
    """Return image name -> 1 or 0.

    The file has a count, the names of the attributes, and then lines with an image name and 1 or -1
    for each attribute.
    """
    with as_user_error():
        lines = read_text(path).rstrip().splitlines()
    names = lines[1].split() if len(lines) > 1 else []
    if attribute not in names:
        raise UserError(
            f"data.attribute: {path} has no attribute {attribute!r}{nearest(attribute, names)}"
        )
    found = {}
    for number, line in enumerate(lines[2:], start=3):
        name, *values = line.split() or [""]
        if len(values) != len(names) or set(values) - {"1", "-1"}:
            raise UserError(
                f"{path}: line {number}: expected a picture's name and {len(names)} times 1 or -1,"
                f" found {line[:60]!r}"
            )
        found[name] = int(values[names.index(attribute)] == "1")
    return found


def _second_column(path: Path) -> dict[str, str]:
    """Return image name -> second column of the file; {} if there is no such file."""
    if not path.is_file():
        return {}
    found = {}
    with as_user_error():
        lines = read_text(path).rstrip().splitlines()
    for number, line in enumerate(lines, start=1):
        name, *rest = line.split() or [""]
        if len(rest) != 1 or not rest[0].isdecimal():
            raise UserError(
                f"{path}: line {number}: expected a picture's name and a number, found"
                f" {line[:60]!r}"
            )
        found[name] = rest[0]
    return found
