"""IMDb's formats, the tokenizer and the vocabulary."""

from __future__ import annotations

import csv
import gzip
import json
import lzma
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from text_files import TEST, TRAIN, write_jsonl

from edgefl.data import imdb, words
from edgefl.data.words import TextOptions
from edgefl.errors import UserError

OPTIONS = TextOptions(vocabulary=6, length=4)


def write_folders(root: Path) -> None:
    for part, rows in (("train", TRAIN), ("test", TEST)):
        for number, (text, label) in enumerate(rows):
            folder = root / part / ("neg", "pos")[label]
            folder.mkdir(parents=True, exist_ok=True)
            (folder / f"{number}_7.txt").write_text(text, encoding="utf-8")
        (root / part / "unsup").mkdir()
        (root / part / "unsup" / "0_0.txt").write_text("not labelled")


def write_csv(root: Path) -> None:
    for part, rows in (("train", TRAIN), ("test", TEST)):
        with open(root / f"{part}.csv", "w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["review", "sentiment"])
            writer.writerows([text, ("negative", "positive")[label]] for text, label in rows)


def test_vocabulary_and_tokens_by_hand() -> None:
    """good 3, bad 3, then a, film, it's, really once each: ties are in alphabetical order; 0 is
    padding, 1 is unknown.
    """
    known = words.vocabulary([text for text, _ in TRAIN], 6)
    assert known == ["bad", "good", "a", "film"]
    found = words.encoded([text for text, _ in TRAIN], known, 4)
    assert found.tolist() == [[4, 3, 3, 5], [2, 1, 2, 0], [3, 2, 1, 0]] and found.dtype == np.int32
    assert words.encoded(["one two three four good"], known, 4).tolist() == [[1, 1, 1, 1]], (
        "what is beyond the length does not count"
    )


@pytest.mark.parametrize(
    "write",
    [
        write_jsonl,
        lambda root: write_jsonl(root, pack=".gz"),
        lambda root: write_jsonl(root, lambda text, label: [label, 7, "pos/1", "tt1", text], ".xz"),
        lambda root: write_jsonl(
            root, lambda text, label: {"review": text, "sentiment": ("neg", "pos")[label]}
        ),
        write_csv,
    ],
)
def test_imdb_rows(tmp_path: Path, write: Callable[[Path], None]) -> None:
    write(tmp_path)
    found = imdb.load(tmp_path, OPTIONS)
    assert found.train_x.tolist() == [
        [4, 3, 3, 5],
        [2, 1, 2, 0],
        [3, 2, 1, 0],
    ] and found.train_y.tolist() == [1, 0, 1]
    assert found.test_x.tolist() == [[1, 1, 1, 3], [2, 0, 0, 0]] and found.test_y.tolist() == [0, 1]
    assert found.shape == (6, 4) and found.classes == 2 and found.vocabulary == 6


@pytest.mark.parametrize("folder", ["aclImdb", "imdb", "imdb/aclImdb", "."])
def test_imdb_folders(tmp_path: Path, folder: str) -> None:
    write_folders(tmp_path / folder)
    found = imdb.load(tmp_path, OPTIONS)
    assert found.train_y.tolist() == [0, 1, 1] and found.train_x.tolist() == [
        [2, 1, 2, 0],
        [4, 3, 3, 5],
        [3, 2, 1, 0],
    ], "neg, then pos"


@pytest.mark.parametrize(
    ("name", "content", "complaint"),
    [
        (
            "train.jsonl",
            b'{"text": "a", "label": 2}\n',
            "line 1: label 2, expected one of neg, pos",
        ),
        (
            "train.jsonl",
            b'{"text": "a", "label": 1}\n{"text": "b',
            "line 2: is not JSON.*truncated?",
        ),
        ("train.jsonl", b'{"text": "a"}\n', "label None"),
        ("train.jsonl", b'{"words": "a", "label": 1}\n', "expected a table with text and label"),
        ("train.jsonl", b"3\n", "expected a table with text and label"),
        ("train.jsonl", b"", "no samples"),
        pytest.param(
            "train.jsonl.gz",
            gzip.compress(b'{"text": "a", "label": 1}\n' * 99)[:-12],
            "truncated or damaged",
            id="gzip cut short",  # its bytes have the time in them
        ),
        pytest.param(
            "train.jsonl.xz",
            lzma.compress(b'{"text": "a", "label": 1}\n' * 99)[:-12],
            "truncated or damaged",
            id="xz cut short",
        ),
        ("train.csv", b"a,b\n1,2\n", "its header has a, b; expected text or review"),
        ("train.csv", b'text,label\n"a', "truncated or damaged"),
        ("train.csv", b"text,label\nx,1\ny\n", "line 3: fewer columns"),
        ("train.csv", b"text,label\n\xff,1\n", "is not UTF-8 text .byte 11 is 0xff"),
        ("train.csv", b"", "its header has nothing"),
    ],
)
def test_a_wrong_file_of_rows_is_named(
    tmp_path: Path, name: str, content: bytes, complaint: str
) -> None:
    (tmp_path / "test.jsonl").write_bytes(b'{"text": "a", "label": 1}\n')
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError, match=f"{name}: .*{complaint}"):
        imdb.load(tmp_path, OPTIONS)


@pytest.mark.parametrize(
    ("rows", "films"),
    [
        ([[0, 2, "neg/0", "tt9", "bad"], [1, 9, "pos/1", "tt1", "good"]], [1, 0]),
        # a number, also 0, is a key like others
        (
            [
                {"label": "neg", "text": "bad", "film": 3},
                {"label": "pos", "text": "good", "film": 0},
            ],
            [1, 0],
        ),
        ([{"label": "neg", "text": "bad"}, {"label": "pos", "text": "good", "film": "a"}], None),
    ],
)
def test_films_are_a_column_where_all_rows_have_one(
    tmp_path: Path, rows: list[Any], films: list[int] | None
) -> None:
    for part in ("train", "test"):
        (tmp_path / f"{part}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    data = imdb.load(tmp_path, OPTIONS)
    columns = {name: column.tolist() for name, column in data.columns.items()}
    assert columns == ({} if films is None else {"film": films})


def test_a_folder_in_the_place_of_a_file_is_passed_over(tmp_path: Path) -> None:
    """Such as what a program has unpacked into a folder of the archive's name."""
    (tmp_path / "train.jsonl").mkdir()
    with pytest.raises(UserError, match="no file train.jsonl or .*edgefl data get imdb"):
        imdb.load(tmp_path, OPTIONS)
