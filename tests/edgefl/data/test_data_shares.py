"""The edges' data: partitions, shard files, local data sets, and their commands."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from builders import experiment
from idx_files import idx_bytes
from PIL import Image
from text_files import write_jsonl

from edgefl.clocks.setup.learning import learning, with_experiment
from edgefl.clocks.virtual.run import run_virtual
from edgefl.commands import data as command
from edgefl.data import edge_data as material
from edgefl.data.partition import dirichlet
from edgefl.errors import UserError
from edgefl.loading.file import load
from edgefl.results.read import read_csv

CONFIG = """
name = "shares"
[partition]
name = "dirichlet"
alpha = 0.5
[edges]
names = ["a", "b", "c"]
[stop]
versions = 2
[evaluation]
train_samples = 0
[[strategies]]
strategy = "fedavg"
clients_per_round = 2
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    (tmp_path / "shares.toml").write_text(CONFIG)
    return tmp_path / "shares.toml"


def given(config: Path, **changes: Any) -> Any:
    return load(config, [f"{key.replace('__', '.')}={value}" for key, value in changes.items()])


# ------------------------------------------------------------------ shard files
def test_a_run_from_shard_files_is_the_same_run(config: Path, tmp_path: Path) -> None:
    command.shard(config, tmp_path / "cut")
    assert sorted(path.name for path in (tmp_path / "cut").iterdir()) == [
        f"{name}.safetensors" for name in ("_test", "a", "b", "c")
    ]
    written = {}
    for source, changes in (
        ("partition", {}),
        ("shard", {"data__source": "shard", "data__dir": tmp_path / "cut"}),
    ):
        run_virtual(learning(given(config, **changes), tmp_path), 0, tmp_path / source)
        written[source] = [
            (tmp_path / source / name).read_bytes()
            for name in ("events.jsonl", "links.csv", "model.safetensors")
        ]
    assert written["partition"] == written["shard"]


def test_each_side_needs_its_own_file_alone(config: Path, tmp_path: Path) -> None:
    command.shard(config, tmp_path / "cut")
    whole = learning(given(config), tmp_path)
    for name in ("a", "c"):
        (tmp_path / "cut" / f"{name}.safetensors").unlink()
    sharded = given(config, data__source="shard", data__dir=tmp_path / "cut")
    edge, coordinator = learning(sharded, tmp_path, ["b"]), learning(sharded, tmp_path, ())
    assert edge.samples == {"b": whole.samples["b"]} and coordinator.samples == {}
    assert (
        edge.data_digest() == coordinator.data_digest() == whole.data_digest()
        and edge.layout.digest() == coordinator.layout.digest()
    )
    rows = whole.shards["b"]
    assert (edge.train[0][edge.shards["b"]] == whole.train[0][rows]).all() and (
        edge.train[1] == whole.train[1][rows]
    ).all()
    assert (coordinator.test[0] == whole.test[0]).all() and len(edge.test[0]) == 0
    assert len(coordinator.union()[0]) == 0, "no train loss where there are no training samples"
    with pytest.raises(
        UserError,
        match=r"no file .*cut/a.safetensors: `edgefl data shard CONFIG --out .*--data DIR",
    ):
        learning(sharded, tmp_path)


def test_shards_keep_their_shares_whatever_the_seed(config: Path, tmp_path: Path) -> None:
    command.shard(config, tmp_path / "cut")
    learned = learning(given(config, data__source="shard", data__dir=tmp_path / "cut"), tmp_path)
    other = with_experiment(learned, learned.experiment.model_copy(update={"seed": 5}))
    assert other.samples == learned.samples and other.data_digest() == learned.data_digest()
    whole = learning(given(config), tmp_path)
    assert (
        with_experiment(whole, whole.experiment.model_copy(update={"seed": 5})).samples
        != whole.samples
    )


def test_wrong_shard_files_are_named(config: Path, tmp_path: Path) -> None:
    cut, again = tmp_path / "cut", tmp_path / "again"
    command.shard(config, cut)
    command.shard(config, again, ["seed=2"])
    sharded = given(config, data__source="shard", data__dir=cut)
    with pytest.raises(UserError, match="holds samples of 'digits', expected data.name = 'mnist'"):
        learning(given(config, data__source="shard", data__dir=cut, data__name="mnist"), tmp_path)
    (cut / "b.safetensors").write_bytes((again / "b.safetensors").read_bytes())
    with pytest.raises(
        UserError, match="b.safetensors: is from another `edgefl data shard` than .*a.safetensors"
    ):
        learning(sharded, tmp_path)
    content = (cut / "a.safetensors").read_bytes()
    (cut / "a.safetensors").write_bytes(content[:-40] + bytes(40))
    with pytest.raises(UserError, match=r"a.safetensors: damaged"):
        learning(sharded, tmp_path)
    (cut / "a.safetensors").write_bytes(content[:-40])
    with pytest.raises(UserError, match="a.safetensors: truncated"):
        learning(sharded, tmp_path)


def test_shard_wants_a_new_directory_and_a_whole_set(config: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="--out .*: expected a new or empty directory"):
        command.shard(config, tmp_path)
    command.shard(config, tmp_path / "cut")
    with pytest.raises(UserError, match='expected a data set of .* found source = "shard"'):
        command.shard(config, tmp_path / "x", ["data.source=shard", f"data.dir={tmp_path / 'cut'}"])


# ------------------------------------------------------------------ data sets of the edges' own
def write_mnist(folder: Path, labels: list[int]) -> None:
    """Write one image per label, whose grey level is the label."""
    folder.mkdir(parents=True)
    images = np.repeat(np.array(labels, np.uint8), 4).reshape(-1, 2, 2)
    for part in ("train", "t10k"):
        (folder / f"{part}-images-idx3-ubyte").write_bytes(idx_bytes(images))
        (folder / f"{part}-labels-idx1-ubyte").write_bytes(idx_bytes(np.array(labels, np.uint8)))


def own(folder: Path) -> Any:
    return experiment(
        data={"name": "mnist", "dir": str(folder), "source": "local"},
        evaluation={"train_samples": 0},
    )


def test_with_local_sets_every_edge_trains_on_all_of_its_own(tmp_path: Path) -> None:
    write_mnist(tmp_path / "mnist", [7, 8])
    for edge, labels in (("a", [1, 2, 3]), ("b", [4]), ("c", [5, 5])):
        write_mnist(tmp_path / edge, labels)
    learned = learning(own(tmp_path), None)
    assert learned.samples == {"a": 3, "b": 1, "c": 2}
    assert {edge: learned.train[1][rows].tolist() for edge, rows in learned.shards.items()} == {
        "a": [1, 2, 3],
        "b": [4],
        "c": [5, 5],
    }
    assert learned.test[1].tolist() == [7, 8], "the coordinator's own set is tested on"
    alone = learning(own(tmp_path), None, ["c"])
    assert (
        alone.samples == {"c": 2}
        and alone.train[1].tolist() == [5, 5]
        and alone.data_digest() == learned.data_digest()
    )
    coordinator = learning(own(tmp_path), None, ())
    assert (
        coordinator.samples == {}
        and coordinator.test[1].tolist() == [7, 8]
        and coordinator.data_digest() == learned.data_digest()
    )


def test_an_edge_alone_on_its_machine_may_have_its_set_in_the_data_directory(
    tmp_path: Path,
) -> None:
    write_mnist(tmp_path / "mnist", [1, 2])
    assert learning(own(tmp_path), None, ["b"]).samples == {"b": 2}
    with pytest.raises(
        UserError,
        match=r'no folder .*/a: with data.source = "local" every edge has its own data set',
    ):
        learning(own(tmp_path), None)


def test_local_texts_want_one_vocabulary(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "b")
    (tmp_path / "words.txt").write_text("good\nbad\n")
    data = {"name": "imdb", "dir": str(tmp_path), "source": "local", "length": 5}
    with pytest.raises(
        UserError, match='data.vocabulary_file: expected with data.source = "local"'
    ):
        learning(experiment(data=data, model={"name": "textcnn"}), None, ["b"])
    data["vocabulary_file"] = str(tmp_path / "words.txt")
    found = learning(experiment(data=data, model={"name": "textcnn"}), None, ["b"])
    assert found.train[0][:].tolist()[0] == [1, 2, 2, 1, 0]
    before = found.data_digest()
    (tmp_path / "words.txt").write_text("bad\ngood\n")
    assert (
        learning(experiment(data=data, model={"name": "textcnn"}), None, ["b"]).data_digest()
        != before
    ), "other words are other data"


def test_local_sets_must_be_alike(tmp_path: Path) -> None:
    write_mnist(tmp_path / "mnist", [1])
    for edge in "abc":
        write_mnist(tmp_path / edge, [1])
    (tmp_path / "b" / "train-images-idx3-ubyte").write_bytes(
        idx_bytes(np.zeros((1, 3, 2), np.uint8))
    )
    with pytest.raises(
        UserError, match=r"/b: samples of \(1, 3, 2\) in 10 classes, expected \(1, 2, 2\) in 10"
    ):
        learning(own(tmp_path), None)


# ------------------------------------------------------------------ config
def test_an_own_task_comes_with_its_own_data(tmp_path: Path) -> None:
    with pytest.raises(
        UserError,
        match="data.source: expected \"partition\" with a task of one's own, found 'shard'",
    ):
        learning(experiment(task="my_task.py:build", data={"source": "shard"}), tmp_path)


def test_own_data_with_options(tmp_path: Path) -> None:
    (tmp_path / "own_data.py").write_text(
        '"""Own."""\nimport numpy as np\nfrom pydantic import BaseModel\nfrom edgefl.data.dataset'
        " import Dataset\nclass Options(BaseModel, extra='forbid'):\n    n: int = 6\ndef"
        " load(directory, options):\n    x, y = np.zeros((options.n, 1, 2, 2), np.uint8),"
        " np.arange(options.n) % 2\n    return Dataset(x, y, x, y, 2)\n"
    )
    assert (
        len(
            material.dataset(
                experiment(data={"name": "own_data.py:load", "n": 9}), tmp_path
            ).train_y
        )
        == 9
    )
    with pytest.raises(UserError, match="data.m: unknown key"):
        material.dataset(experiment(data={"name": "own_data.py:load", "m": 9}), tmp_path)


# ------------------------------------------------------------------ partition
def split(lacking: str, alpha: float = 0.2, minimum: int = 5, edges: int = 10) -> list[np.ndarray]:
    options = dirichlet.Options(alpha=alpha, min_samples=minimum, lacking=lacking)
    return dirichlet.split(np.repeat(np.arange(4), 50), edges, options, np.random.default_rng(1))


def test_an_edge_with_too_little_is_filled_drawn_again_or_refused() -> None:
    filled, drawn = split("fill"), split("redraw")
    for parts in (filled, drawn):
        assert min(map(len, parts)) >= 5 and sorted(np.concatenate(parts).tolist()) == list(
            range(200)
        )
    assert [part.tolist() for part in filled] != [part.tolist() for part in drawn]
    assert [part.tolist() for part in drawn] == [part.tolist() for part in split("redraw")]
    with pytest.raises(
        UserError,
        match=r"edge \d of 10 got \d samples, expected at least min_samples 5: another seed",
    ):
        split("refuse")
    assert [part.tolist() for part in split("refuse", alpha=1e6)] == [
        part.tolist() for part in split("fill", alpha=1e6)
    ]


def test_drawing_again_gives_up() -> None:
    with pytest.raises(
        UserError, match=r"expected at least min_samples 20 \(the last of 1000 draws\)"
    ):
        split("redraw", alpha=0.05, minimum=20)


# ------------------------------------------------------------------ the figure
@pytest.mark.parametrize("edges", [3, 30])
def test_the_partition_is_drawn(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], edges: int
) -> None:
    changes = [] if edges == 3 else ["edges.names=[]", f"edges.count={edges}"]
    command.plot(config, changes, tmp_path / "labels.png")
    with Image.open(tmp_path / "labels.png") as figure:
        assert figure.size == (2100, 1065)
        assert len(np.unique(np.asarray(figure.convert("L").resize((60, 30))))) > 50, (
            "there is something on it"
        )
    assert (tmp_path / "labels.pdf").read_bytes().startswith(b"%PDF")
    learned = learning(given(config) if edges == 3 else load(config, changes), tmp_path)
    sizes = sorted(learned.samples.values())
    assert (
        f"samples per edge: {sizes[0]} to {sizes[-1]}, median {sizes[edges // 2]}; labels per"
        " edge: " in capsys.readouterr().out
    )


def test_the_numbers_of_the_partition_are_those_of_the_edges(config: Path, tmp_path: Path) -> None:
    command.plot(config, [], tmp_path / "l.svg", None, "column", "Ours", tmp_path / "l.csv")
    assert sorted(path.name for path in tmp_path.glob("l*.*")) == ["l.csv", "l.svg"]
    held: dict[str, int] = {}
    for row in read_csv(tmp_path / "l.csv"):
        held[row["edge"]] = held.get(row["edge"], 0) + int(row["samples"])
    assert held == learning(given(config), tmp_path).samples
