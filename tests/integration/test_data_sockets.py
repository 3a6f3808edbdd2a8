"""On real sockets: a model with BatchNorm under three strategies, and edges that have only their
own data.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import orjson
import pytest
from processes import happened, start
from terminals import Terminals, end
from text_files import write_jsonl

pytestmark = pytest.mark.alone

TEXTS = """
name = "texts"
data = {name = "imdb", dir = "data", vocabulary = 5, length = 6}
model = {name = "textcnn", embedding = 3, filters = 2}
edges = {count = 2}
devices = {samples_per_s = 10.0}
stop = {versions = 3}
strategies = [{strategy = "fedasync", concurrency = 2}]
"""


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
