"""Data sets whose samples have a writer, a speaker or a celebrity; partitions by label and by key;
and the models for these data sets.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from idx_files import idx_bytes
from PIL import Image

from edgefl.data import celeba, emnist, leaf, shakespeare
from edgefl.data.partition import few_labels, natural
from edgefl.errors import UserError
from edgefl.models import celeba_cnn, char_lstm, emnist_cnn, lenet5
from edgefl.models.workspace import Workspace
from edgefl.streams import Streams


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDGEFL_CACHE", str(tmp_path / "cache"))


def rng(seed: int = 1) -> np.random.Generator:
    return Streams(seed).rng("test")


# ------------------------------------------------------------------ few labels
LABELS = np.repeat(np.arange(10), 60)


@pytest.mark.parametrize("kinds", [1, 5, 10])
def test_each_edge_has_so_many_labels_and_samples(kinds: int) -> None:
    """Algorithm 4: L_num labels, D in [D_min, D_max]; there may be more edges than samples / D."""
    parts = few_labels.split(
        LABELS, 200, few_labels.Options(labels=kinds, min_samples=10, max_samples=50), rng()
    )
    assert len(parts) == 200 and all(
        10 <= len(part) <= 50 and len(np.unique(part)) == len(part) for part in parts
    )
    assert all(np.all(np.diff(part) > 0) for part in parts)
    most = max(len(np.unique(LABELS[part])) for part in parts)
    assert most == kinds and (kinds > 1 or all(len(np.unique(LABELS[part])) == 1 for part in parts))
    assert {len(part) for part in parts} >= {10, 50}, "both ends are drawn"
    assert len(np.unique(LABELS[np.concatenate(parts)])) == 10


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"labels": 11}, "labels: expected at most 10"),
        ({"labels": 1, "max_samples": 61}, "max_samples: expected at most 60"),
        ({"labels": 1, "min_samples": 51}, "min_samples 51 is above max_samples 50"),
    ],
)
def test_what_cannot_be_drawn_is_refused(options: dict[str, int], told: str) -> None:
    with pytest.raises(UserError, match=told):
        few_labels.split(LABELS, 3, few_labels.Options(**options), rng())


# ------------------------------------------------------------------ natural shares
COLUMNS = {"writer": np.array([7, 3, 3, 9, 7, 3]), "film": np.zeros(6, np.int64)}


def shares(edges: int, **options: Any) -> list[list[int]]:
    return [
        part.tolist()
        for part in natural.split(np.zeros(6), edges, natural.Options(**options), rng(), COLUMNS)
    ]


def test_an_edge_has_one_writer_s_samples() -> None:
    assert sorted(shares(3, key="writer")) == [[0, 4], [1, 2, 5], [3]]
    assert shares(1, key="writer", min_samples=3) == [[1, 2, 5]]


@pytest.mark.parametrize("kind", [str, object])
def test_a_column_may_have_texts(kind: type) -> None:
    users = {"user": np.array(["bo", "al", "al", "cy", "bo", "al"], kind)}
    parts = natural.split(np.zeros(6), 3, natural.Options(), rng(), users)
    assert sorted(part.tolist() for part in parts) == [[0, 4], [1, 2, 5], [3]]
    mixed = {"user": np.array(["bo", None, "al"], object)}
    with pytest.raises(UserError, match=r"natural: the column 'user' cannot be sorted .*alone"):
        natural.split(np.zeros(3), 2, natural.Options(), rng(), mixed)


def test_all_writers_are_dealt_out_to_fewer_edges() -> None:
    assert shares(2, key="writer", keys="all") == [[1, 2, 5], [0, 3, 4]]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (
            {"key": "writter"},
            r"key: expected 'writer' or 'film', found 'writter' \(nearest: 'writer'\)",
        ),
        ({}, "found none"),
        (
            {"key": "writer", "min_samples": 2},
            "3 edges need as many keys 'writer' with at least 2 samples, there are 2",
        ),
    ],
)
def test_a_key_that_does_not_exist_or_has_too_few_values_is_refused(
    options: dict[str, Any], told: str
) -> None:
    with pytest.raises(UserError, match=told):
        shares(3, **options)


# ------------------------------------------------------------------ EMNIST
def test_emnist_s_pictures_stand_upright(tmp_path: Path) -> None:
    """In its files, rows and columns are swapped."""
    pictures = np.arange(2 * 6, dtype=np.uint8).reshape(2, 2, 3)
    for part in ("train", "test"):
        for kind, array in (
            ("images-idx3", pictures),
            ("labels-idx1", np.array([61, 0], np.uint8)),
        ):
            path = tmp_path / "gzip" / f"emnist-byclass-{part}-{kind}-ubyte.gz"
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(gzip.compress(idx_bytes(array)))
    found = emnist.load(tmp_path, emnist.Options())
    assert (
        found.train_x.tolist() == pictures.transpose(0, 2, 1)[:, None].tolist()
        and found.train_y.tolist() == [61, 0]
        and found.classes == 62
    )
    with pytest.raises(UserError, match="edgefl data get emnist"):
        emnist.load(tmp_path, emnist.Options(split="mnist"))


# ------------------------------------------------------------------ Shakespeare
PLAY = "ANNA:\nabcdefg\n\nBEN:\nxyxyxyxyxy\n\nANNA:\n\nhi\n"


def test_speeches_are_joined_by_speaker_and_cut_into_windows(tmp_path: Path) -> None:
    assert shakespeare.speeches(PLAY, tmp_path) == {"ANNA": "abcdefg\nhi", "BEN": "xyxyxyxyxy"}
    (tmp_path / "input.txt").write_text(PLAY)
    found = shakespeare.load(tmp_path, shakespeare.Options(length=3, stride=2, test_share=0.4))
    known = (found.words or Path()).read_text().split("\n")[:-1]
    assert known == ["\\n", *"abcdefghixy"] and found.classes == 12 and found.shape == (14, 3)
    spelled = lambda row: "".join(known[token - 2] for token in row)
    assert [(spelled(row), known[label]) for row, label in zip(found.train_x, found.train_y)] == [
        ("abc", "d"),
        ("cde", "f"),
        ("xyx", "y"),
        ("xyx", "y"),
    ]
    assert found.columns["speaker"].tolist() == [0, 0, 1, 1] and [
        known[label] for label in found.test_y
    ] == ["i", "y"]


# ------------------------------------------------------------------ LEAF
def write_leaf(root: Path, part: str, has: dict[str, tuple[list, list]], **changes: Any) -> None:
    content = {
        "users": list(has),
        "num_samples": [len(y) for _, y in has.values()],
        "user_data": {user: {"x": x, "y": y} for user, (x, y) in has.items()},
    }
    (root / part).mkdir(parents=True, exist_ok=True)
    (root / part / "all_data.json").write_text(json.dumps(content | changes))


def test_leaf_s_pictures_have_users(tmp_path: Path) -> None:
    write_leaf(
        tmp_path / "leaf",
        "train",
        {"f2": ([[0.0, 0.5, 1.0, 0.5]], [1]), "f1": ([[1.0] * 4, [0.0] * 4], [0, 2])},
    )
    write_leaf(tmp_path / "leaf", "test", {"f1": ([[1.0] * 4], [0])})
    found = leaf.load(tmp_path, leaf.Options())
    assert (
        found.shape == (1, 2, 2)
        and found.classes == 3
        and found.columns["user"].tolist() == [1, 0, 0]
    )
    assert found.train_x[0].tolist() == [[[0.0, 0.5], [1.0, 0.5]]] and found.train_y.tolist() == [
        1,
        0,
        2,
    ]
    again = leaf.load(tmp_path, leaf.Options())
    assert again.columns["user"].tolist() == [1, 0, 0], "from the cache, too"
    assert leaf.load(tmp_path, leaf.Options(shape=[4, 1, 1])).shape == (4, 1, 1)


def test_leaf_s_texts_are_for_next_character_models(tmp_path: Path) -> None:
    write_leaf(tmp_path / "leaf", "train", {"HAMLET": (["abc", "bca"], ["d", "a"])})
    write_leaf(tmp_path / "leaf", "test", {"HAMLET": (["aza"], ["b"])})
    found = leaf.load(tmp_path, leaf.Options())
    assert found.shape == (6, 3) and found.classes == 4
    assert found.train_x.tolist() == [[2, 3, 4], [3, 4, 2]] and found.train_y.tolist() == [3, 0]
    assert found.test_x.tolist() == [[2, 1, 2]], "z is no character of the training part"


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        (
            {"users": ["f1", "f9"], "num_samples": [1, 1]},
            "user 'f9' is among its users, and has no user_data",
        ),
        ({"users": []}, "0 users and 1 num_samples"),
        ({"num_samples": []}, "1 users and 0 num_samples, expected as many"),
        ({"users": [], "num_samples": []}, "user 'f1' has user_data, and is not among its users"),
        ({"user_data": {"f1": None}}, "user 'f1' is among its users, and has no user_data"),
        ({"users": [], "num_samples": [], "user_data": {}}, "train: no user has a sample"),
        ({"num_samples": [2]}, "user 'f1' has 1 x and 1 y, expected num_samples 2"),
        ({"user_data": 5}, "LEAF's JSON"),
    ],
)
def test_a_leaf_file_that_is_not_whole_is_refused(
    tmp_path: Path, changes: dict[str, Any], told: str
) -> None:
    write_leaf(tmp_path / "leaf", "train", {"f1": ([[1.0] * 4], [0])}, **changes)
    write_leaf(tmp_path / "leaf", "test", {"f1": ([[1.0] * 4], [0])})
    with pytest.raises(UserError, match=told):
        leaf.load(tmp_path, leaf.Options())


# ------------------------------------------------------------------ CelebA
def write_celeba(root: Path, count: int = 4) -> None:
    (root / celeba.PICTURES).mkdir(parents=True)
    names = [f"{number:06d}.jpg" for number in range(1, count + 1)]
    for number, name in enumerate(names):
        Image.new("RGB", (178, 218), (number * 60, 0, 0)).save(root / celeba.PICTURES / name)
    rows = [f"{name}  {1 if number % 2 else -1} -1" for number, name in enumerate(names)]
    (root / celeba.ATTRIBUTES).write_text("\n".join([str(count), "Smiling Young", *rows]) + "\n")
    (root / celeba.IDENTITIES).write_text(
        "".join(f"{name} {7 if number < 2 else 5}\n" for number, name in enumerate(names))
    )
    (root / celeba.PARTS).write_text(
        "".join(f"{name} {(0, 0, 1, 2)[number]}\n" for number, name in enumerate(names))
    )


def test_celeba_s_faces_have_an_attribute_and_a_celebrity(tmp_path: Path) -> None:
    write_celeba(tmp_path / "celeba")
    found = celeba.load(tmp_path, celeba.Options(size=8))
    assert found.train_x.shape == (3, 3, 8, 8) and found.test_x.shape == (1, 3, 8, 8)
    assert (
        found.train_y.tolist() == [0, 1, 0]
        and found.test_y.tolist() == [1]
        and found.columns["celebrity"].tolist() == [7, 7, 5]
    )


@pytest.mark.parametrize(
    ("module", "shape", "classes", "parameters"),
    [
        # 32 * 26 + 64 * (32 * 25 + 1) + (64 * 16 + 1) * 512 + 513 * 10
        (emnist_cnn, (1, 28, 28), 10, 832 + 51_264 + 524_800 + 5_130),
        (emnist_cnn, (1, 28, 28), 62, 832 + 51_264 + 524_800 + 513 * 62),
        # 10 * (3 * 16 + 1) + 16,001 * 100 (80 / 2 = 40; 40 * 40 * 10) + 202
        (celeba_cnn, (3, 84, 84), 2, 490 + 1_600_100 + 202),
        # CIFAR LeNet: 6 * 76 + 16 * 151 + 401 * 120 + 121 * 84 + 850
        (lenet5, (3, 32, 32), 10, 456 + 2_416 + 48_120 + 10_164 + 850),
        # 67 * 8; 4 * 256 * (8 + 256 + 2); 4 * 256 * (512 + 2); 257 * 65
        (char_lstm, (67, 80), 65, 536 + 272_384 + 526_336 + 16_705),
    ],
)
def test_the_models_have_the_papers_sizes(
    module: Any, shape: tuple[int, ...], classes: int, parameters: int
) -> None:
    workspace = Workspace(lambda: module.build(module.Options(), shape, classes))
    assert workspace.layout.size == parameters
