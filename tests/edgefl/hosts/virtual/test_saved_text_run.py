"""A run of a tiny encoder whose edges keep AdamW's state: equal bytes twice, and after kills."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from kills import files_of, killed_run, whole_run
from text_rig import text_experiment

from edgefl.hosts.setup.learning import Learning, learning, with_experiment

KEPT: dict[str, Any] = {
    "optimizer": "adamw",
    "optimizer_state": "kept",
    "learning_rate": 0.01,
    "batch_size": 8,
    "schedule": {"kind": "linear", "warmup_steps": 2, "total_steps": 40},
}
SECTIONS: dict[str, Any] = {
    "training": KEPT,
    "unlabelled": {"data": "mrpc", "size": 8},
    "edges": {"names": ["a", "b", "c"]},
    "devices": {"samples_per_s": 100.0, "slowest_ratio": 3.0},
    "stop": {"versions": 4},
    "strategies": [
        {"strategy": "fedecho", "concurrency": 2, "buffer_size": 2, "distil_learning_rate": 1e-3}
    ],
}


@pytest.fixture(scope="module", params=["all", "lora"])
def learned(request: pytest.FixtureRequest) -> Learning:
    return learning(text_experiment({"train": request.param}, **SECTIONS), None)


def test_a_killed_run_goes_on_with_the_moments_of_its_edges(
    learned: Learning, tmp_path: Path
) -> None:
    steps = whole_run(learned, tmp_path / "whole")
    whole = files_of(tmp_path / "whole")
    whole_run(learned, tmp_path / "twice")
    assert files_of(tmp_path / "twice") == whole, "equal bytes twice"
    said = killed_run(learned, tmp_path / "killed", [steps // 3, steps // 2, steps - 2])
    assert files_of(tmp_path / "killed") == whole and said == []
    training = learned.experiment.training.model_copy(update={"optimizer_state": "fresh"})
    other = learned.experiment.model_copy(update={"training": training})
    whole_run(with_experiment(learned, other), tmp_path / "fresh")
    model = "model.safetensors"
    assert files_of(tmp_path / "fresh")[model] != whole[model], "the kept state counts"
