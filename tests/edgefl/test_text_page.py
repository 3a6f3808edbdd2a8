"""The config on the page about text models works, on a small directory of the same form."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from pages import blocks
from paths import ROOT
from text_rig import LENGTH, text_data

PAGE = ROOT / "docs" / "how-to" / "text-models.md"
SHORT = ["stop.versions=1", "edges.count=2", f"data.length={LENGTH}", "unlabelled.size=10"]
SMALL = [
    f"strategies.{name}.{key}={value}"
    for name in ("fedbuff", "fedecho")
    for key, value in (("concurrency", 2), ("buffer_size", 1))
]


@pytest.mark.rest
@pytest.mark.processes
def test_the_config_of_the_page_is_checked_and_runs(tmp_path: Path) -> None:
    (config,) = blocks("toml", [PAGE])
    (tmp_path / "paraphrases.toml").write_text(config)
    shutil.copytree(text_data(), tmp_path / "data")
    (tmp_path / "data" / "models" / "bert").rename(tmp_path / "data" / "models" / "bert-base")
    env = {name: value for name, value in os.environ.items() if name != "EDGEFL_DATA"}
    said = {}
    for words in (["check", "paraphrases.toml"], ["run", "paraphrases.toml", "--clock", "virtual"]):
        done = subprocess.run(
            [sys.executable, "-m", "edgefl.cli", *words, *SHORT, *SMALL],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            env=env | {"PYTHONPATH": str(ROOT)},
        )
        assert done.returncode == 0, done.stdout + done.stderr
        said[words[0]] = done.stdout
    # 2 layers x 2 targets, A (8, 16) and B (16, 8); the classifier (2, 16) with its bias
    assert "1058 parameters, 0.00423 MB on the wire" in said["check"]
    found = [
        json.loads((tmp_path / "runs" / "paraphrases" / name / "summary.json").read_text())
        for name in ("fedbuff", "fedecho")
    ]
    assert all(summary["finished"] == "versions" for summary in found)
    assert found[1]["unlabelled"] == {"data": "mrpc", "size": 10, "in_domain": True}
