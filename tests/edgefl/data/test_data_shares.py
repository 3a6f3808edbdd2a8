"""The edges' data: partitions, shard files, local data sets, and their commands."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from builders import experiment
from idx_files import idx_bytes
from PIL import Image

from edgefl.clocks.setup.learning import learning
from edgefl.clocks.virtual.run import run_virtual
from edgefl.clocks.wall.edge.membership import SideBuilder
from edgefl.commands import data as command
from edgefl.config.file import load, to_json
from edgefl.data import edge_data as material
from edgefl.data.partition import dirichlet
from edgefl.errors import UserError
from edgefl.protocol.messages import Setup

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
@pytest.mark.slow
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


# ------------------------------------------------------------------ config


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


# ------------------------------------------------------------------ the figure
@pytest.mark.parametrize("edges", [3, 30])
@pytest.mark.slow
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


def test_edges_that_share_a_process_have_their_shares_of_every_seed(
    config: Path, tmp_path: Path
) -> None:
    """Files that `edgefl launch` has sent: the next seed is loaded when its run begins."""
    edges = ["a", "c"]
    for seed in (1, 2):
        command.shard(config, tmp_path / f"seed{seed}", [f"seed={seed}"])
    builder = SideBuilder("a", None, None, [], tmp_path, edges=edges)
    for seed in (1, 2):
        one = given(config, seed=seed)
        setup, whole = Setup(to_json(one, one.strategies[0]), "fedavg"), learning(one, tmp_path)
        had = {edge: builder.side(setup, edge).samples for edge in edges}
        assert had == {edge: whole.samples[edge] for edge in edges}
