"""Text models on the wall clock: what crosses the wire, and an edge with other frozen weights."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from processes import happened, start
from terminals import Terminals, end
from text_rig import LENGTH, text_data

pytestmark = pytest.mark.processes

# 2 layers x 2 targets, A (8, 16) and B (16, 8); the classifier (2, 16) with its bias
ADAPTERS = 2 * 2 * (8 * 16 + 16 * 8) + 2 * 16 + 2
CONFIG = f"""
name = "text"
data = {{name = "mrpc", length = {LENGTH}}}
model = {{name = "bert_classifier", path = "models/bert", train = "lora"}}
edges = {{names = ["a", "b"]}}
training = {{batch_size = 8}}
partition = {{name = "iid"}}
devices = {{samples_per_s = 100.0}}
links = {{up_mbit_s = 1.0, down_mbit_s = 2.0}}
stop = {{versions = 2}}
strategies = [{{strategy = "fedavg", clients_per_round = 2}}]
"""


@pytest.fixture
def texts(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (folder / "text.toml").write_text(CONFIG)
    monkeypatch.setenv("EDGEFL_DATA", str(text_data()))
    return folder


def test_an_update_has_the_adapters_alone_on_both_clocks(
    texts: Path, started: list[subprocess.Popen[str]]
) -> None:
    sent = {}
    for clock in ("virtual", "wall"):
        run = start(started, "run", "text.toml", "--clock", clock, "--out", clock, "--force")
        status, out, err = end(run)
        assert status == 0, out + err
        summary = json.loads((texts / clock / "text" / "fedavg" / "summary.json").read_text())
        sent[clock] = summary["bytes_up"] / summary["updates_received"]
    model = 4 * ADAPTERS
    assert sent["virtual"] == pytest.approx(model, abs=200), "a header, and numbers of the update"
    assert sent["wall"] == sent["virtual"]


def test_an_edge_with_another_model_file_is_refused_in_one_line(
    texts: Path, started: list[subprocess.Popen[str]], tmp_path: Path
) -> None:
    other = tmp_path / "other"
    shutil.copytree(text_data(), other)
    weights = other / "models" / "bert" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"\x00")
    run = Terminals(started, "text.toml")
    status, _, err = end(run.edge("a", "--data", str(other)))
    assert status != 0 and "frozen part of the model differs from the coordinator's" in err
    assert "expected the same files in model.path on both machines" in err.splitlines()[-1]
    edges = [run.edge(name) for name in "ab"]
    for process in (*edges, run.coordinator):
        status, out, err = end(process)
        assert status == 0, out + err
    assert len(happened(Path("runs/text/fedavg"), event="update_arrived")) == 4
