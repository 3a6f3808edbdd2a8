"""Data sets of the user's own files: ``csv`` and ``images``."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from edgefl.data import csv, images
from edgefl.data.dataset import Dataset
from edgefl.data.edge_data import check
from edgefl.errors import UserError

TABLE = "id,size,colour,label\n" + "".join(
    f"{row},{row / 2},{('red', 'blue')[row % 2]},{('yes', 'no', 'maybe')[row % 3]}\n"
    for row in range(30)
)


def of_table(folder: Path, text: str = TABLE, name: str = "train.csv", **options: Any) -> Dataset:
    (folder / name).write_text(text)
    given = {"ignore": ("id",), "one_hot": ("colour",)} | options
    return csv.load(folder, csv.Options(**given))


def test_a_table_is_split_evenly_and_standardised(tmp_path: Path) -> None:
    found = of_table(tmp_path)
    check("csv", found)
    assert found.train_x.shape == (24, 3, 1, 1) and found.test_x.shape == (6, 3, 1, 1)
    assert np.bincount(found.train_y).tolist() == [8, 8, 8]  # maybe, no, yes
    train_x, targets = found.train()
    assert np.allclose(np.asarray(train_x[:]).mean(axis=0).ravel(), 0, atol=1e-6)
    assert np.allclose(np.asarray(train_x[:]).std(axis=0).ravel(), 1, atol=1e-5)
    rows = {(2 * x[0, 0, 0], x[1, 0, 0], int(y)) for x, y in zip(found.train_x, found.train_y)}
    assert all((row % 2 == 1) == blue for row, blue, _ in rows)
    assert all((2, 1, 0)[int(row) % 3] == label for row, _, label in rows)
    assert len(targets) == 24


def test_two_files_names_of_classes_and_a_key(tmp_path: Path) -> None:
    (tmp_path / "b.tsv.gz").write_bytes(gzip.compress(b"label\tx\tof\nno\t7\ta\n"))
    found = of_table(
        tmp_path,
        "label\tx\tof\nyes\t1\tbob\nno\t2\tann\n\nno\t3\tbob\n",
        "a.tsv",
        train="a.tsv",
        test="b.tsv.gz",
        classes=("yes", "no", "never"),
        key="of",
        ignore=(),
        one_hot=(),
    )
    assert found.classes == 3 and found.train_y.tolist() == [0, 1, 1] and found.test_y[0] == 1
    assert found.columns["of"].tolist() == [1, 0, 1]
    assert found.train_x.ravel().tolist() == [1, 2, 3] and found.test_x.ravel().tolist() == [7]


def test_rows_of_pixels_are_pictures(tmp_path: Path) -> None:
    text = "a,b,c,d,label\n" + "".join(f"{row},0,255,9,{row % 2}\n" for row in range(10))
    found = of_table(tmp_path, text, shape=(1, 2, 2), ignore=(), one_hot=())
    assert found.train_x.shape == (8, 1, 2, 2) and found.train_x.dtype == np.uint8
    assert found.scaled("unit").std == (255.0,)
    text = text.replace("255", "0.5")
    found = of_table(tmp_path, text, shape=(1, 2, 2), ignore=(), one_hot=())
    assert found.train_x.dtype == np.float32


PLAIN = {"ignore": (), "one_hot": ()}


@pytest.mark.parametrize(
    ("text", "options", "said"),
    [
        (TABLE, {"label": "lable"}, "data.label: .*train.csv has no column 'lable' .*'label'"),
        (TABLE, {"one_hot": ()}, "line 2, column 'colour': expected a number, found 'red'"),
        (TABLE, {"ignore": ("id", "colour")}, "data.one_hot: 'colour' is no feature"),
        (TABLE, {"features": ("size", "label")}, "'label' is also the label"),
        (TABLE, {"shape": (1, 2, 2)}, r"data.shape: \[1, 2, 2\] has 4 pixels, a row 3"),
        (TABLE, {"classes": ("yes", "no", "no")}, "data.classes: two classes are named 'no'"),
        (TABLE, {"classes": ("yes", "no")}, "row 3: label 'maybe', expected one of data.classes"),
        ("x,label\n1,a\n2\n", PLAIN, "line 3: 1 columns, expected 2"),
        ("x,label\n1,a\n,b\n", PLAIN, "line 3, column 'x': expected a number, found nothing"),
        ("x,label\n1,a\n\nnan,b\n", PLAIN, "line 4, column 'x': expected a finite number"),
        ("x,label\n1,a\n1e39,b\n", PLAIN, "line 3, column 'x': expected a finite number"),
        ("x,label\n1,a\n2,\n", PLAIN, "line 3, column 'label': no value"),
        ("x,label\n1,cat\n2,Cat\n", PLAIN, "'cat' .row 1. and 'Cat' .row 2. are nearly equal"),
        ("x,x,label\n1,2,a\n", PLAIN, "line 1: two columns are named 'x'"),
        ("1,2,3\n1,2,3\n", PLAIN, "line 1: expected the names of the columns"),
        ("x;label\n1;a\n", PLAIN, "line 1: a single column, 'x;label': data.separator"),
        ("x,label\n", PLAIN, "no samples"),
        ("", PLAIN, "line 1: expected the names"),
        ("x,label\n1,a\n", PLAIN, "too few rows"),
        ('x,label\n1,"a\n', PLAIN, "truncated or damaged"),
        ("x,label\n1,\udcff\n", PLAIN, "is not UTF-8 text"),
    ],
)
def test_a_mistake_in_a_table_is_told_with_its_place(
    text: str, options: dict[str, Any], said: str, tmp_path: Path
) -> None:
    (tmp_path / "train.csv").write_bytes(text.encode(errors="surrogateescape"))
    given = csv.Options(**({"ignore": ("id",), "one_hot": ("colour",)} | options))
    with pytest.raises(UserError, match=said):
        csv.load(tmp_path, given)


def test_what_only_the_test_file_has_is_told(tmp_path: Path) -> None:
    train = "x,colour,label\n1,red,a\n2,blue,b\n"
    for row, said in (
        ("3,green,a", "test.csv: line 2, column 'colour': 'green' is in no training row"),
        ("3,red,c", "test.csv: row 1: label 'c', expected one of the training rows: a, b"),
    ):
        (tmp_path / "test.csv").write_text(f"x,colour,label\n{row}\n")
        with pytest.raises(UserError, match=said):
            of_table(tmp_path, train, test="test.csv", ignore=())
    (tmp_path / "test.csv").write_text("colour,label\nred,a\n")
    with pytest.raises(UserError, match="test.csv: no column 'x'"):
        of_table(tmp_path, train, test="test.csv", ignore=())
    with pytest.raises(UserError, match=f"no file none.csv in {tmp_path}: data.train"):
        csv.load(tmp_path, csv.Options(train="none.csv"))


# ---------------------------------------------------------------------- pictures
def draw(path: Path, size: tuple[int, int] = (4, 3), mode: str = "RGB", level: int = 9) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, size, (level,) * 3 if mode == "RGB" else level).save(path)


def test_a_folder_per_class_is_split_evenly(tmp_path: Path) -> None:
    for place, label in enumerate(("10", "9", "b")):
        for number in range(5):
            draw(tmp_path / "images" / label / f"{number}.png", level=place)
    draw(tmp_path / "images" / "b" / "more" / "x.JPG")
    (tmp_path / "images" / "b" / ".hidden").write_text("")
    (tmp_path / "images" / "b" / "Thumbs.db").write_text("")
    (tmp_path / "images" / "README").write_text("")
    found = images.load(tmp_path, images.Options())
    check("images", found)
    assert found.train_x.shape == (13, 3, 3, 4) and found.test_x.shape == (3, 3, 3, 4)
    assert np.bincount(found.train_y).tolist() == [4, 4, 5]
    nine = found.train_x[found.train_y == 0]  # 9 goes before 10
    assert (nine == 1).all()
    draw(tmp_path / "images" / "9" / "0.png", level=200)  # another picture in its place
    assert not (images.load(tmp_path, images.Options()).train_x[found.train_y == 0] == 1).all()


def test_parts_apart_sizes_and_colours(tmp_path: Path) -> None:
    draw(tmp_path / "mine" / "train" / "cat" / "1.png", (8, 6))
    draw(tmp_path / "mine" / "train" / "dog" / "1.png", (5, 9), "L")
    draw(tmp_path / "mine" / "val" / "dog" / "1.png")
    given = {"path": "mine", "test": "val", "size": 2}
    found = images.load(tmp_path, images.Options(**given, colours="grey"))
    assert found.train_x.shape == (2, 1, 2, 2) and found.test_y.tolist() == [1]
    found = images.load(tmp_path, images.Options(**given, classes=("dog", "cat", "cow")))
    assert found.train_x.shape == (2, 3, 2, 2) and found.train_y.tolist() == [1, 0]


@pytest.mark.parametrize(
    ("files", "options", "said"),
    [
        ([], {}, "no folder .*images: data.path names"),
        (["a/1.png"], {}, "a single class"),
        (["a/1.png", "b/1.txt"], {}, "b/1.txt: expected a picture"),
        (["a/1.png", "b/.x.png"], {}, "b: no pictures"),
        (["train/a/1.png", "train/b/1.png"], {}, "a folder train, but none test"),
        (["train/a/1.png", "train/b/1.png", "tset/a/1.png"], {}, "none test .nearest: 'tset'"),
        (
            ["train/a/1.png", "train/b/1.png", "test/c/1.png"],
            {},
            "c: expected one of .*: a, b",
        ),
        (["a/1.png", "b/1.png"], {"classes": ("a", "c")}, "b: expected one of data.classes: a, c"),
        (["a/1.png", "b/1.png"], {}, "too few pictures"),
    ],
)
def test_a_mistake_in_the_folders_names_the_path(
    files: list[str], options: dict[str, Any], said: str, tmp_path: Path
) -> None:
    for file in files:
        path = tmp_path / "images" / file
        draw(path.with_suffix(".png"))
        path.with_suffix(".png").rename(path)
    with pytest.raises(UserError, match=said):
        images.load(tmp_path, images.Options(**options))


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda path: draw(path, (5, 3)), "5 x 3 pixels, expected 4 x 3"),
        (lambda path: path.write_bytes(b"\x89PNG"), "cannot be read as a picture"),
        (
            lambda path: draw(path, mode="I;16"),
            "cannot be read as a picture .more than 8 bits per channel",
        ),
    ],
)
def test_a_bad_picture_is_named(make: Any, said: str, tmp_path: Path) -> None:
    for number in range(4):
        draw(tmp_path / "images" / "a" / f"{number}.png")
        draw(tmp_path / "images" / "b" / f"{number}.png")
    make(tmp_path / "images" / "b" / "9.png")
    with pytest.raises(UserError, match=f"b/9.png: {said}"):
        images.load(tmp_path, images.Options(test_share=0.1))
