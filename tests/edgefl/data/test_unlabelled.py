"""The server's unlabelled samples: their sources, their shape, and that none is a test sample."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from builders import EXAMPLES, experiment

from edgefl.clocks.setup.learning import learning
from edgefl.config.file import load
from edgefl.data import stl10
from edgefl.data.edge_data import fitted
from edgefl.errors import UserError


def learned(**sections: Any) -> Any:
    return learning(experiment(**{"task": "my_task.py:build"} | sections), EXAMPLES)


def own(folder: Path, body: str) -> str:
    """A user's own data set, of 8 x 8 images like the digits."""
    (folder / "own.py").write_text(
        f"import numpy as np\nfrom edgefl.data.dataset import Dataset\ndef load(directory):\n{body}"
    )
    return "own.py:load"


# ------------------------------------------------------------------ held-out samples
def test_held_out_samples_are_evenly_spaced_and_no_edge_has_them() -> None:
    whole, without = learned(), learned(unlabelled={"size": 50})
    assert without.unlabelled.numpy().tolist() == whole.train[0][::4].numpy().tolist(), (
        "each fourth of 200"
    )
    given = np.sort(np.concatenate(list(without.shards.values())))
    assert given.tolist() == [index for index in range(200) if index % 4], (
        "the others are shared out, each once"
    )
    assert without.data_digest() != whole.data_digest()


def test_so_many_of_them_evenly_spaced() -> None:
    one = learned(unlabelled={"size": 50})
    assert (
        one.some_unlabelled(10).tolist() == one.unlabelled[::5].tolist()
        and one.some_unlabelled(None) is one.unlabelled
    )
    with pytest.raises(
        UserError, match="unlabelled.size: expected at least 51, as a strategy needs, found 50"
    ):
        one.some_unlabelled(51)


# ------------------------------------------------------------------ other data sets
def test_another_data_set_in_our_units(tmp_path: Path) -> None:
    name = own(
        tmp_path,
        "    x = np.arange(4 * 64, dtype=np.uint8).reshape(4, 1, 8, 8)\n    return Dataset(x,"
        " np.zeros(4), x, np.zeros(4), 10)\n",
    )
    found = learning(experiment(unlabelled={"data": name, "size": 2}), tmp_path)
    ours = found.task.dataset
    raw = np.arange(4 * 64, dtype=np.uint8).reshape(4, 1, 8, 8)[[0, 2]]
    assert found.unlabelled.numpy() == pytest.approx((raw - ours.mean[0]) / ours.std[0], abs=1e-5)


@pytest.mark.parametrize(
    ("body", "section", "said"),
    [
        (
            "    x = np.zeros((4, 1, 9, 9), np.uint8)\n",
            {},
            (
                r"are uint8 \(1, 9, 9\), expected uint8 \(1, 8, 8\); transform = \"fit\" makes"
                r" pictures fit"
            ),
        ),
        (
            "    x = np.zeros((4, 2, 9, 9), np.uint8)\n",
            {"transform": "fit"},
            "knows pictures of 1 or 3 channels, found 2 for 1",
        ),
        (
            "    x = np.zeros((4, 1, 8, 8), np.float32)\n",
            {"transform": "fit"},
            "pictures of one type, found float32",
        ),
        (
            "    x = np.zeros((4, 1, 8, 8), np.uint8)\n",
            {"size": 5},
            "unlabelled.size: expected at most 4, the samples in 'own.py:load', found 5",
        ),
    ],
)
def test_sets_that_do_not_fit_are_one_line(
    tmp_path: Path, body: str, section: dict[str, Any], said: str
) -> None:
    name = own(tmp_path, body + "    return Dataset(x, np.zeros(4), x, np.zeros(4), 10)\n")
    with pytest.raises(UserError, match=said):
        learning(experiment(unlabelled={"data": name, "size": 2} | section), tmp_path)


def test_test_samples_are_refused(tmp_path: Path) -> None:
    body = (
        "    from edgefl.data.digits import load as digits\n    x = digits(directory)\n    return"
        " Dataset(x.test_x, x.test_y, x.test_x, x.test_y, 10)\n"
    )
    with pytest.raises(
        UserError,
        match=(
            "unlabelled.data: 20 of the 20 samples of 'own.py:load' are test samples too, the first"
            " is number 0"
        ),
    ):
        learning(experiment(unlabelled={"data": own(tmp_path, body), "size": 20}), tmp_path)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            'unlabelled = {data = "held_ot"}',
            r"unlabelled.data: unknown data set 'held_ot' \(nearest: 'held_out'\)$",
        ),
        (
            'strategies = [{strategy = "fedecho"}]',
            r"strategies\[0\]: fedecho distils: expected a table \[unlabelled\]",
        ),
        (
            (
                'strategies = [{strategy = "fedecho", unlabelled_samples = 51}]\nunlabelled = {size'
                " = 50}"
            ),
            r"unlabelled_samples: expected at most unlabelled.size \(50\), found 51",
        ),
    ],
)
def test_a_config_that_cannot_be_is_one_line(tmp_path: Path, text: str, said: str) -> None:
    strategies = "" if "strategies" in text else 'strategies = [{strategy = "fedavg"}]\n'
    (tmp_path / "x.toml").write_text(f"stop = {{versions = 1}}\n{strategies}{text}\n")
    with pytest.raises(UserError, match=said):
        load(tmp_path / "x.toml")


# ------------------------------------------------------------------ making pictures fit
def test_areas_are_averaged_and_grey_becomes_colour() -> None:
    picture = np.array([[[[0, 4, 8, 8], [0, 4, 8, 8], [2, 2, 2, 2], [2, 2, 6, 6]]]], np.uint8)
    small = fitted(picture, np.zeros((1, 3, 2, 2), np.uint8))
    assert small.shape == (1, 3, 2, 2) and all(
        channel.tolist() == [[2, 8], [2, 4]] for channel in small[0]
    )
    assert fitted(small, np.zeros((1, 3, 4, 4), np.uint8))[0, 0].tolist() == [
        [2, 2, 8, 8],
        [2, 2, 8, 8],
        [2, 2, 4, 4],
        [2, 2, 4, 4],
    ]


def test_colour_becomes_grey_by_brightness() -> None:
    picture = np.array([100, 200, 50], np.uint8).reshape(1, 3, 1, 1)
    assert fitted(picture, np.zeros((1, 1, 1, 1), np.uint8)).item() == round(
        0.299 * 100 + 0.587 * 200 + 0.114 * 50
    )


# ------------------------------------------------------------------ STL-10
def stl(folder: Path, **cut: int) -> Path:
    """Files with a few images, stored column by column; the first pixel of row 1 is 9 in each."""
    (folder / "stl10_binary").mkdir()
    for name, count in {"train_X": 4, "test_X": 2, "unlabeled_X": 6}.items():
        pictures = np.zeros((count, 3, 96, 96), np.uint8)
        pictures[:, :, 1, 0] = 9
        pictures[:, 0, 5, 7] = np.arange(count)
        raw = np.ascontiguousarray(pictures.transpose(0, 1, 3, 2)).tobytes()
        (folder / "stl10_binary" / f"{name}.bin").write_bytes(raw[: len(raw) - cut.get(name, 0)])
    for name, labels in {"train_y": [1, 2, 10, 3], "test_y": [4, 5]}.items():
        (folder / "stl10_binary" / f"{name}.bin").write_bytes(
            bytes(labels[: len(labels) - cut.get(name, 0)])
        )
    return folder


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDGEFL_CACHE", str(tmp_path / "cache"))


@pytest.mark.usefixtures("cache")
def test_stl10(tmp_path: Path) -> None:
    found = stl10.load(stl(tmp_path))
    assert (
        found.train_x.shape == (4, 3, 96, 96)
        and found.test_x.shape == (2, 3, 96, 96)
        and found.train_y.tolist() == [0, 1, 9, 2]
        and found.classes == 10
    )
    assert (
        found.train_x[:, 0, 5, 7].tolist() == [0, 1, 2, 3]
        and found.train_x[0, 2, 1, 0] == 9
        and found.train_x[0, 2, 0, 1] == 0
    )
    assert found.mean[1] == pytest.approx(9 / 96**2, abs=1e-3)
    more = stl10.unlabelled(tmp_path)
    assert more.shape == (6, 3, 96, 96) and more[5, 0, 5, 7] == 5 and more[5, 1, 1, 0] == 9
