"""Hugging Face data sets: local parquet files, and the error without the extra."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from edgefl.data import huggingface
from edgefl.data.huggingface import Options
from edgefl.errors import UserError


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The ``datasets`` library without a network."""
    for name in ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE"):
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("HF_HOME", str(tmp_path_factory.mktemp("hf")))
    return pytest.importorskip("datasets")


def write(
    library: Any, folder: Path, features: dict[str, Any] | None = None, **parts: dict[str, list]
) -> None:
    folder.mkdir()
    for name, columns in parts.items():
        kinds = library.Features(features) if features else None
        library.Dataset.from_dict(columns, features=kinds).to_parquet(
            str(folder / f"{name}-00000-of-00001.parquet")
        )


TEXTS: dict[str, dict[str, list]] = {
    "train": {"sentence": ["good film", "bad film"], "label": [1, 0]},
    "test": {"sentence": ["bad"], "label": [2]},
}


def test_without_the_extra_it_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(UserError, match=r"data set 'ag_news' needs .*install -e .*\[datasets\]'"):
        huggingface.load(tmp_path, Options(path="ag_news"))


def test_a_version_that_may_run_code_of_the_hub_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(__version__="3.6.0"))
    with pytest.raises(UserError, match="datasets 3.6.0 may run code of the hub"):
        huggingface.load(tmp_path, Options(path="ag_news"))


def test_texts_from_parquet(tmp_path: Path, library: Any) -> None:
    write(library, tmp_path / "set", **TEXTS)
    found = huggingface.load(tmp_path, Options(path="set", vocabulary=5, length=3))
    assert found.train_x.tolist() == [[4, 2, 0], [3, 2, 0]] and found.test_x.tolist() == [
        [3, 0, 0]
    ], "film 2, bad 3, good 4"
    assert found.classes == 3 and found.train_y.tolist() == [1, 0] and found.shape == (5, 3)


def test_pictures_from_parquet(tmp_path: Path, library: Any) -> None:
    from PIL import Image

    features = {"img": library.Image(), "fine_label": library.ClassLabel(names=["a", "b", "c"])}
    grey = [Image.fromarray(np.full((4, 5), value, np.uint8)) for value in (10, 30, 50)]
    rows = {
        "train": {"img": grey[:2], "fine_label": [0, 1]},
        "test": {"img": grey[2:], "fine_label": [1]},
    }
    write(library, tmp_path / "set", features, **rows)
    found = huggingface.load(tmp_path, Options(path="set"))
    assert (
        found.shape == (1, 4, 5)
        and found.classes == 3
        and found.train_x[1, 0, 0, 0] == 30
        and found.test_x[0, 0, 0, 0] == 50
    )
    assert found.mean == (20.0,) and found.std == (10.0,)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"label": "lable"}, r"data.label: 'set' has no column 'lable' \(nearest: 'label'\)"),
        ({"input": "words"}, "data.input: 'set' has no column 'words'"),
        ({"classes": 2}, "set, test: label 2, expected 0 to 1"),
        ({"test": "validation"}, "no file validation"),
        ({"input": "label"}, "holds neither texts nor pictures"),
        ({"label": "sentence"}, "holds no whole numbers"),
    ],
)
def test_wrong_columns_and_labels_are_named(
    tmp_path: Path, library: Any, options: dict[str, Any], complaint: str
) -> None:
    write(library, tmp_path / "set", **TEXTS)
    with pytest.raises(UserError, match=complaint):
        huggingface.load(tmp_path, Options(**({"path": "set"} | options)))
