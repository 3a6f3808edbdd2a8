"""On real sockets: a model with BatchNorm under three strategies, and edges that have only their
own data.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import orjson
import pytest
from processes import happened, start
from safetensors.numpy import load_file
from terminals import Terminals, end
from text_files import write_jsonl

from edgefl.clocks.setup.learning import learning
from edgefl.clocks.wall.launcher import LaunchOptions, WallRun
from edgefl.loading.file import load
from edgefl.results.read import read_csv

pytestmark = pytest.mark.alone

BATCHNORM = """
name = "batchnorm"
model = {name = "resnet20"}
edges = {count = 3}
training = {learning_rate = 0.1, batch_size = 128}
devices = {samples_per_s = 1500.0}
links = {up_mbit_s = 50.0, down_mbit_s = 50.0}
stop = {versions = 2}
strategies = [
    {strategy = "fedavg", clients_per_round = 3},
    {strategy = "fedasync", concurrency = 3},
    {strategy = "fedbuff", buffer_size = 2, concurrency = 3},
]
"""
TEXTS = """
name = "texts"
data = {name = "imdb", dir = "data", vocabulary = 5, length = 6}
model = {name = "textcnn", embedding = 3, filters = 2}
edges = {count = 2}
devices = {samples_per_s = 10.0}
stop = {versions = 3}
strategies = [{strategy = "fedasync", concurrency = 2}]
"""


@pytest.mark.usefixtures("warm_python")
def test_batchnorm_statistics_travel_and_are_mixed_under_three_strategies(tmp_path: Path) -> None:
    (tmp_path / "batchnorm.toml").write_text(BATCHNORM)
    wall = WallRun(
        load(tmp_path / "batchnorm.toml"),
        LaunchOptions(tmp_path / "runs", tmp_path, force=True),
        print,
    )
    summaries = wall.run(lambda *_: None)
    learned = learning(wall.experiment, tmp_path)
    layout, start_weights = learned.layout, learned.initial_weights()
    assert layout.size - layout.parameters == 2 * 688
    for index, found in enumerate(summaries):
        assert found["versions"] == 2 and found["updates_applied"] >= 2
        sent = [
            int(row["bytes"])
            for row in read_csv(wall.directory(index) / "links.csv")
            if row["finished_s"]
        ]
        assert sent and all(0 <= size - 4 * layout.size < 200 for size in sent), (
            "parameters, running statistics and a small header"
        )
        weights = load_file(wall.directory(index) / "model.safetensors")["weights"]
        assert np.isfinite(weights).all()
        for name in ("norm.running_mean", "stage3_block3.norm2.running_var"):
            assert (layout.view(weights, name) != layout.view(start_weights, name)).any()


def test_edges_with_their_own_shard_files_alone_learn_from_texts(
    folder: Path,
    started: list[subprocess.Popen[str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    write_jsonl(folder / "data")
    (folder / "texts.toml").write_text(TEXTS)
    assert end(start(started, "data", "shard", "texts.toml", "--out", "cut"))[0] == 0
    for name in ("e000", "e001"):
        (folder / f"at-{name}").mkdir()
        (folder / "cut" / f"{name}.safetensors").rename(
            folder / f"at-{name}" / f"{name}.safetensors"
        )
    assert sorted(path.name for path in (folder / "cut").iterdir()) == [
        "_test.safetensors",
        "vocabulary.txt",
    ]
    terminals = Terminals(started, "texts.toml", "data.source=shard", "data.dir=cut")
    status, _, err = end(terminals.edge("e001", "--data", "at-e000"))
    assert (
        status == 2
        and "no file at-e000/e001.safetensors: `edgefl data shard CONFIG --out at-e000` writes it"
        in err
    )
    edges = [terminals.edge(name, "--data", f"at-{name}") for name in ("e000", "e001")]
    status, _, err = end(terminals.coordinator)
    assert (status, err) == (0, "") and [end(edge)[0] for edge in edges] == [0, 0]
    directory = folder / "runs" / "texts" / "fedasync"
    assert orjson.loads((directory / "summary.json").read_bytes())["versions"] == 3
    assert {line["edge"] for line in happened(directory, event="update_arrived")} == {
        "e000",
        "e001",
    }
    assert (directory / "vocabulary.txt").read_text() == "bad\ngood\na\n"
