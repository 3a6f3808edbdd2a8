"""Pickles made to break their reader: each gives one line, at once and with little memory."""

from __future__ import annotations

import pickle
import random
import resource
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgefl.data import cifar10
from edgefl.errors import UserError
from edgefl.pickles import read_arrays


def doubled(levels: int) -> bytes:
    """A list that contains a list twice, which contains another twice, ...: 2 ** levels leaves."""
    text = b"]q\x00"
    for level in range(levels):
        above = struct.pack("<I", level + 1)
        below = struct.pack("<I", level)
        text += b"]r" + above + b"(j" + below + b"j" + below + b"e"
    return text


GROWING = b"X" + struct.pack("<I", 1 << 20) + b"x" * (1 << 20) + b"q\x010"
HOSTILE = {
    "brackets": b"]" * 20_000 + b"a" * 19_999 + b".",
    "nested tuples": b")" + b"\x85" * 200_000 + b".",
    "nested tuples as a key": b"})" + b"\x85" * 200_000 + b"K\x01s.",
    "nested tuples as keys": b"}()" + b"\x85" * 200_000 + b"K\x01u.",
    "nested lists as a dtype": b"cnumpy\ndtype\n" + doubled(60) + b"\x85R.",
    "nested lists as a call": doubled(60) + b"\x29R.",
    "nested lists as an encoding": b"c_codecs\nencode\nX\x01\0\0\0x" + doubled(60) + b"\x86R.",
    "5,000 digits": b"I" + b"1" * 5000 + b"\n.",
    "5,000 digits as a long": b"L" + b"1" * 5000 + b"L\n.",
    "a text of a terabyte": b"\x8d" + struct.pack("<Q", 1 << 40) + b".",
    "a text of more than there is": b"\x8d" + struct.pack("<Q", 1 << 63) + b".",
    "a number of a gigabyte": b"\x8b" + struct.pack("<i", 1 << 30) + b".",
    "a frame of more than there is": b"\x80\x04\x95" + b"\xff" * 8 + b".",
    "bytes that grow": GROWING
    + b"]"
    + b"("
    + b"c_codecs\nencode\nh\x01X\x06\0\0\0latin1\x86R" * 10_000
    + b"e.",
    "a shape of 2 ** 70": b"cnumpy.core.numeric\n_frombuffer\n(C\x01xcnumpy\ndtype\n"
    + b"X\x02\0\0\0u1\x85R"
    + b"\x8a\x09"
    + (2**70).to_bytes(9, "little")
    + b"\x85X\x01\0\0\0CtR.",
    "a memo without a place": b"jaaaa.",
    "an empty stack": b"." * 10,
    "a mark too many": b"(((t.",
}


def read(folder: Path, content: bytes) -> str:
    """The error for a file with this content."""
    (folder / "bad").write_bytes(content)
    try:
        read_arrays(folder / "bad")
    except UserError as error:
        return str(error)
    return "read"


@pytest.fixture(autouse=True)
def little_memory() -> Any:
    """Limit the memory to half a GB more than now."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (pages * 4096 + (1 << 29), hard))
    yield
    resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


@pytest.mark.parametrize("content", HOSTILE.values(), ids=HOSTILE)
@pytest.mark.slow
def test_a_hostile_pickle_is_one_line(tmp_path: Path, content: bytes) -> None:
    told = read(tmp_path, content)
    assert told.startswith(("read", f"{tmp_path / 'bad'}: ")) and len(told) < 600


def test_what_stands_once_is_not_copied_many_times(tmp_path: Path) -> None:
    """A megabyte, and 400 arrays of which each would have a copy of it."""
    size = struct.pack("<I", 1 << 20)
    content = b"B" + size + bytes(1 << 20) + b"q\x01"
    kind = b"cnumpy\ndtype\nX\x02\0\0\0u1\x85Rq\x02"
    one = b"cnumpy.core.multiarray\n_reconstruct\n)R(K\x01J" + size + b"\x85h\x02\x89h\x01tb"
    made = content + b"0" + kind + b"0](" + one * 400 + b"e."
    assert "it has more bytes than its file" in read(tmp_path, made)
    assert read(tmp_path, content + b"0" + kind + b"0](" + one + b"e.") == "read"


@pytest.mark.parametrize(
    "labels",
    [
        b"j" + struct.pack("<I", 60),
        b"](K\x01]e",
        b"](X\x01\0\0\0xK\x01e",
        b"](K\x01\x8a\x09" + b"\x01" * 9 + b"e",
    ],
    ids=["twice at every level", "ragged", "texts", "too large"],
)
def test_labels_that_are_none(tmp_path: Path, labels: bytes) -> None:
    pixels = pickle.dumps(np.zeros((2, 3072), np.uint8), 2)[2:-1]
    content = (
        b"\x80\x02"
        + doubled(60)
        + b"}(X\x06\0\0\0labels"
        + labels
        + b"X\x04\0\0\0data"
        + pixels
        + b"u."
    )
    folder = tmp_path / "cifar-10-batches-py"
    folder.mkdir()
    for name in (*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"):
        (folder / name).write_bytes(content)
    with pytest.raises(UserError, match="no cifar10 file: expected a dict"):
        cifar10.load(tmp_path)


def test_a_flipped_byte_anywhere_is_a_line_or_another_value(tmp_path: Path) -> None:
    whole = pickle.dumps({"data": np.zeros((2, 8), np.uint8), "labels": [1, 2], "x": (1.5, "y")}, 2)
    rng = random.Random(1)
    for _ in range(400):
        damaged = bytearray(whole)
        for _ in range(rng.choice((1, 1, 2, 5))):
            damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        assert read(tmp_path, bytes(damaged)).startswith(("read", f"{tmp_path / 'bad'}: "))
