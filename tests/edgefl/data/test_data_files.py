"""The file formats of image data sets, from tiny files, and the errors for wrong files."""

from __future__ import annotations

import os
import pickle
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from picture_files import (
    LABELS,
    PICTURES,
    check10,
    parts,
    picture,
    records,
    write_binary10,
    write_tiny,
)

from edgefl.data import cifar10, cifar100, tiny_imagenet
from edgefl.errors import UserError
from edgefl.pickles import read_arrays


def write_python10(folder: Path, dump: Callable[[dict], bytes]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, pictures, labels in parts():
        (folder / name).write_bytes(
            dump(
                {
                    "data": pictures.reshape(2, -1),
                    "labels": labels.tolist(),
                    "batch_label": name,
                    "filenames": ["a.png", "b.png"],
                }
            )
        )


def python2_pickle(content: dict[str, Any]) -> bytes:
    """Protocol 2 as Python 2 wrote CIFAR's files: byte strings as strings, numpy by its old
    names, arrays from a state.
    """
    out = b"\x80\x02}("
    for key, value in content.items():
        out += b"U" + bytes([len(key)]) + key.encode()
        if isinstance(value, np.ndarray):
            raw = value.tobytes()
            out += b"cnumpy.core.multiarray\n_reconstruct\nq\x01cnumpy\nndarray\nq\x02"
            out += b"K\x00\x85U\x01b\x87Rq\x03"
            out += (
                b"(K\x01"
                + b"".join(b"J" + struct.pack("<i", side) for side in value.shape)
                + b"\x86"
            )
            out += b"cnumpy\ndtype\nq\x04U\x02u1K\x00K\x01\x87Rq\x05(K\x03U\x01|NNNJ"
            out += b"\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89"
            out += b"T" + struct.pack("<i", len(raw)) + raw + b"tb"
        elif isinstance(value, list):
            out += (
                b"]("
                + b"".join(
                    (
                        b"K" + bytes([item])
                        if isinstance(item, int)
                        else b"U" + bytes([len(item)]) + item.encode()
                    )
                    for item in value
                )
                + b"e"
            )
        else:
            out += b"U" + bytes([len(value)]) + value.encode()
    return out + b"u."


@pytest.mark.parametrize("protocol", [None, 2, 3, 4, 5])
def test_cifar10_in_its_python_form(tmp_path: Path, protocol: int | None) -> None:
    write_python10(
        tmp_path / "cifar-10-batches-py",
        python2_pickle if protocol is None else lambda content: pickle.dumps(content, protocol),
    )
    check10(tmp_path)


def test_cifar100_takes_the_fine_labels_in_both_forms(tmp_path: Path) -> None:
    coarse, fine = LABELS, LABELS + 90
    for folder, rows in (("train", slice(0, 10)), ("test", slice(10, 12))):
        content = {
            "data": PICTURES[rows].reshape(-1, 3072),
            "coarse_labels": coarse[rows].tolist(),
            "fine_labels": fine[rows].tolist(),
        }
        for form in ("binary", "python"):
            (tmp_path / form).mkdir(exist_ok=True)
        (tmp_path / "binary" / f"{folder}.bin").write_bytes(
            records(PICTURES[rows], coarse[rows], fine[rows])
        )
        (tmp_path / "python" / folder).write_bytes(python2_pickle(content))
    binary, python = cifar100.load(tmp_path / "binary"), cifar100.load(tmp_path / "python")
    assert (
        binary.digest() == python.digest()
        and binary.train_y.tolist() == fine[:10].tolist()
        and binary.classes == 100
    )
    assert (python.test_x == PICTURES[10:]).all()


class Evil:
    def __reduce__(self) -> tuple:
        return os.mkdir, (str(Path(self.place) / "made"),)


@pytest.mark.parametrize("protocol", range(6))
def test_a_pickle_that_calls_something_is_refused_and_calls_nothing(
    tmp_path: Path, protocol: int
) -> None:
    evil = Evil()
    evil.place = tmp_path
    (tmp_path / "evil").write_bytes(pickle.dumps({"data": evil}, protocol))
    with pytest.raises(
        UserError,
        match="evil: a pickle that contains more than numbers and texts|evil: not a whole pickle",
    ):
        read_arrays(tmp_path / "evil")
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize(
    "value",
    [
        np.array([{}], dtype=object),
        np.array(["a"]),
        np.zeros(1, dtype=[("a", "u1")]),
        np.float64(1.5),
        pickle.PickleError(),
        {1, 2},
        Path("x"),
        1j,
    ],
    ids=lambda value: type(value).__name__,
)
@pytest.mark.parametrize("protocol", [2, 5])
def test_other_objects_are_refused(tmp_path: Path, value: Any, protocol: int) -> None:
    (tmp_path / "other").write_bytes(pickle.dumps({"data": value}, protocol))
    with pytest.raises(UserError, match="other: "):
        read_arrays(tmp_path / "other")


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6.0),
        np.arange(6, dtype=">i4").reshape(2, 3),
        np.asfortranarray(np.arange(6).reshape(2, 3)),
        np.array([True]),
    ],
)
@pytest.mark.parametrize("protocol", [2, 4, 5])
def test_arrays_of_numbers_come_back_as_they_were(
    tmp_path: Path, array: np.ndarray, protocol: int
) -> None:
    (tmp_path / "array").write_bytes(
        pickle.dumps(
            {"a": array, "same": array, "n": [1, -2, 2**40, 1.5, None, True, "é", b"\xff", (1, 2)]},
            protocol,
        )
    )
    found = read_arrays(tmp_path / "array")
    for key in ("a", "same"):
        assert (
            found[key].dtype.newbyteorder("=") == array.dtype.newbyteorder("=")
            and (found[key] == array).all()
            and found[key].shape == array.shape
        )
    assert found["n"] == [1, -2, 2**40, 1.5, None, True, "é", b"\xff", (1, 2)]


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"", "expected records of 3073 bytes, it holds 0 bytes"),
        (
            records(PICTURES[:2], LABELS[:2])[:-1],
            "truncated or no cifar10 file: expected records of 3073 bytes, it holds 6145 bytes",
        ),
        (records(PICTURES[:2], LABELS[:2] + 5), "label 14, expected 0 to 9"),
    ],
)
def test_a_wrong_binary_file_is_named(tmp_path: Path, content: bytes, complaint: str) -> None:
    write_binary10(tmp_path)
    (tmp_path / "data_batch_3.bin").write_bytes(content)
    with pytest.raises(UserError) as caught:
        cifar10.load(tmp_path)
    assert str(tmp_path / "data_batch_3.bin") in str(caught.value) and complaint in str(
        caught.value
    )


@pytest.mark.parametrize("module", [cifar10, cifar100, tiny_imagenet])
def test_missing_files_name_the_command_that_gets_them(tmp_path: Path, module: Any) -> None:
    name = module.__name__.rpartition(".")[2]
    with pytest.raises(UserError) as caught:
        module.load(tmp_path)
    for part in (
        "no ",
        str(tmp_path / module.FOLDERS[0]),
        f"`edgefl data get {name} --dir {tmp_path}`",
        "[data] dir",
        "$EDGEFL_DATA",
    ):
        assert part in str(caught.value)


# ------------------------------------------------------------------ Tiny-ImageNet


def test_tiny_imagenet(tmp_path: Path) -> None:
    write_tiny(tmp_path / "tiny-imagenet-200")
    found = tiny_imagenet.load(tmp_path)
    assert found.shape == (3, 64, 64) and found.classes == 200
    assert found.train_y.tolist() == [0, 0, 1, 1, 2, 2] and found.test_y.tolist() == [
        2,
        1,
    ], "numbered in the order of wnids.txt"
    assert np.abs(found.train_x[:, 0].mean(axis=(1, 2)) - [80, 80, 0, 0, 160, 160]).max() < 4
    assert np.abs(found.train_x[:, 1].mean(axis=(1, 2)) - [0, 100, 0, 100, 0, 100]).max() < 4
    assert np.abs(found.test_x.mean(axis=(2, 3)) - [[50, 50, 50], [240, 0, 0]]).max() < 4, (
        "grey ones get three channels"
    )


def broken_jpeg(root: Path) -> None:
    (root / "train/n02/images/n02_1.JPEG").write_bytes(
        (root / "train/n02/images/n02_1.JPEG").read_bytes()[:300]
    )


@pytest.mark.parametrize(
    ("spoil", "complaint"),
    [
        (broken_jpeg, "n02_1.JPEG: cannot be read as a picture"),
        (
            lambda root: picture(root / "train/n01/images/n01_0.JPEG", 0, 0, side=32),
            "n01_0.JPEG: 32 x 32 pixels, expected 64 x 64",
        ),
        (
            lambda root: (root / "val/val_annotations.txt").write_text("val_0.JPEG\tn99\t0"),
            "line 1: expected a file name, a tab and a class of wnids.txt",
        ),
        (
            lambda root: (root / "val/val_annotations.txt").unlink(),
            "no .*val_annotations.txt, which .*edgefl data get tiny_imagenet",
        ),
        (lambda root: (root / "wnids.txt").write_text("n01\nn01\n"), "all different, found 2"),
        (lambda root: (root / "val/images/val_0.JPEG").unlink(), "val_0.JPEG: cannot be read"),
        (lambda root: [file.unlink() for file in root.glob("train/*/images/*")], "no samples"),
    ],
)
def test_a_wrong_tiny_imagenet_is_one_line(
    tmp_path: Path, spoil: Callable[[Path], Any], complaint: str
) -> None:
    root = tmp_path / "tiny-imagenet-200"
    write_tiny(root)
    spoil(root)
    with pytest.raises(UserError, match=complaint):
        tiny_imagenet.load(tmp_path)
