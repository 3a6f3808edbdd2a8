"""Tiny files in the formats of the image sets."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image

from edgefl.data import cifar10

PICTURES = np.random.default_rng(1).integers(0, 256, (12, 3, 32, 32), dtype=np.uint8)
LABELS = np.array([0, 9, 3, 3, 1, 2, 4, 5, 6, 7, 8, 0])
BATCHES = [f"data_batch_{number}" for number in range(1, 6)]


def parts() -> list[tuple[str, np.ndarray, np.ndarray]]:
    """Return two samples for each of CIFAR-10's six files."""
    return [
        (name, PICTURES[2 * i : 2 * i + 2], LABELS[2 * i : 2 * i + 2])
        for i, name in enumerate([*BATCHES, "test_batch"])
    ]


def records(pictures: np.ndarray, *labels: np.ndarray) -> bytes:
    return np.concatenate(
        [*(each[:, None].astype(np.uint8) for each in labels), pictures.reshape(len(pictures), -1)],
        axis=1,
    ).tobytes()


def write_binary10(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, pictures, labels in parts():
        (folder / f"{name}.bin").write_bytes(records(pictures, labels))


def check10(directory: Path) -> None:
    found = cifar10.load(directory)
    assert (found.train_x == PICTURES[:10]).all() and (found.test_x == PICTURES[10:]).all()
    assert (
        found.train_y.tolist() == LABELS[:10].tolist()
        and found.test_y.tolist() == LABELS[10:].tolist()
    )
    assert found.shape == (3, 32, 32) and found.classes == 10 and found.train_y.dtype == np.int64


def write_tiny(root: Path) -> None:
    """Write three classes with two images each, of one colour.

    The class gives the red value, the image the green value.
    """
    names = ["n01", "n02", "n03"]
    (root / "val" / "images").mkdir(parents=True)
    (root / "wnids.txt").write_text("n02\nn01\nn03\n")
    for name in names:
        (root / "train" / name / "images").mkdir(parents=True)
        for number in range(2):
            picture(
                root / "train" / name / "images" / f"{name}_{number}.JPEG",
                80 * names.index(name),
                100 * number,
            )
    picture(root / "val" / "images" / "val_0.JPEG", 240, 0)
    picture(root / "val" / "images" / "val_1.JPEG", 0, 0, grey=True)
    (root / "val" / "val_annotations.txt").write_text(
        "val_1.JPEG\tn03\t0\t0\t62\t62\nval_0.JPEG\tn01\t0\t0\t62\t62\n"
    )


def picture(path: Path, red: int, green: int, side: int = 64, grey: bool = False) -> None:
    (
        Image.new("L", (side, side), 50)
        if grey
        else Image.new("RGB", (side, side), (red, green, 0))
    ).save(path, "JPEG")
