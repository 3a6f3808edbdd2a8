"""Text models on both clocks: kept AdamW state, FedEcho, costs by tokens, exact match.

One edge, so the order of updates does not depend on how busy the machine is.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from safetensors.numpy import load_file
from text_rig import causal_experiment, text_experiment

from edgefl.clocks.setup.learning import learning
from edgefl.clocks.virtual.run import run_virtual
from edgefl.clocks.wall.launcher import LaunchOptions, WallRun
from edgefl.config.experiment import Experiment
from edgefl.results.read import read_csv, read_events

pytestmark = [pytest.mark.processes, pytest.mark.usefixtures("warm_python")]

VERSIONS = 3
TOKENS_PER_S = 400.0
KEPT: dict[str, Any] = {
    "optimizer": "adamw",
    "optimizer_state": "kept",
    "learning_rate": 0.01,
    "batch_size": 8,
    "batches_per_epoch": 3,
}
SECTIONS: dict[str, Any] = {
    "training": KEPT,
    "edges": {"names": ["a"]},
    "partition": {"name": "iid"},
    "devices": {"unit": "tokens", "tokens_per_s": TOKENS_PER_S},
    "stop": {"versions": VERSIONS},
}
BUFFER = {"concurrency": 1, "buffer_size": 1}


def on_both(folder: Path, given: Experiment) -> list[tuple[Path, Path]]:
    """Run all strategies; return (on the wall clock, under the virtual one) of each."""
    wall = WallRun(given, LaunchOptions(folder / "runs", folder, force=True), print)
    wall.run(lambda *_: None)
    learned = learning(wall.experiment, folder)
    found = []
    for index in range(len(given.strategies)):
        virtual = folder / "virtual" / str(index)
        run_virtual(learned, index, virtual)
        found.append((wall.directory(index), virtual))
    return found


def model(run: Path) -> bytes:
    return load_file(run / "model.safetensors")["weights"].tobytes()


def arrivals(run: Path) -> list[float]:
    """Return the emulated seconds at which updates arrived."""
    rows = read_events(run / "events.jsonl")
    return [row["t"] for row in rows if row.get("event") == "update_arrived"]


@pytest.fixture(scope="module")
def encoder(warm_python: None, tmp_path_factory: pytest.TempPathFactory) -> list[tuple[Path, Path]]:
    """FedBuff and FedEcho with adapters of the tiny encoder."""
    jobs = {"predict_s": 0.01, "distil_s": 0.01, "distil_learning_rate": 1e-3}
    given = text_experiment(
        {"train": "lora"},
        **SECTIONS,
        unlabelled={"data": "mrpc", "size": 8},
        evaluation={"metrics": ["f1"]},
        strategies=[
            {"strategy": "fedbuff", **BUFFER},
            {"strategy": "fedecho", **BUFFER, **jobs},
        ],
    )
    return on_both(tmp_path_factory.mktemp("encoder"), given)


def test_edges_keep_their_moments_on_both_clocks(
    encoder: list[tuple[Path, Path]], tmp_path: Path
) -> None:
    wall, virtual = encoder[0]
    assert model(wall) == model(virtual)
    fresh = text_experiment(
        {"train": "lora"},
        **SECTIONS | {"training": KEPT | {"optimizer_state": "fresh"}},
        strategies=[{"strategy": "fedbuff", **BUFFER}],
    )
    run_virtual(learning(fresh, None), 0, tmp_path)
    assert model(tmp_path) != model(virtual), "the state counts"


def test_an_update_weighs_the_same_on_both_clocks(encoder: list[tuple[Path, Path]]) -> None:
    for wall, virtual in encoder:
        for kind in ("task", "update"):
            sizes = [
                {int(row["bytes"]) for row in read_csv(run / "links.csv") if row["kind"] == kind}
                for run in (wall, virtual)
            ]
            assert sizes[0] == sizes[1] and sizes[0]


def test_time_by_tokens_passes_on_the_wall_clock(encoder: list[tuple[Path, Path]]) -> None:
    wall, virtual = (arrivals(run) for run in encoder[0])
    assert len(wall) >= VERSIONS and len(virtual) >= VERSIONS
    assert virtual[0] > 3 * 8 * 5 / TOKENS_PER_S, "24 pairs have five tokens and more each"
    assert all(real >= ideal - 0.01 for real, ideal in zip(wall, virtual)), "never sooner"


def test_fedecho_distils_texts_on_the_wall_clock(encoder: list[tuple[Path, Path]]) -> None:
    for run in encoder[1]:
        told = (run / "events.jsonl").read_text()
        assert told.count('"teachers"') == VERSIONS
        assert "distillation_failed" not in told and "prediction_failed" not in told
        rows = read_csv(run / "metrics.csv")
        assert all(0 <= float(row["f1"]) <= 1 for row in rows)
    assert model(encoder[0][0]) != model(encoder[1][0]), "the lessons count"


def test_exact_match_is_scored_on_the_wall_clock(tmp_path: Path) -> None:
    given = causal_experiment(
        **SECTIONS | {"stop": {"versions": 1}},
        evaluation={
            "metric": "exact_match",
            "metrics": ["perplexity"],
            "match_samples": 4,
            "answer_tokens": 4,
        },
        strategies=[{"strategy": "fedbuff", **BUFFER}],
    )
    ((wall, virtual),) = on_both(tmp_path, given)
    scores = [
        [(row["version"], row["exact_match"], row["perplexity"]) for row in read_csv(each)]
        for each in (wall / "metrics.csv", virtual / "metrics.csv")
    ]
    assert scores[0] == scores[1] and len(scores[0]) == 2
    assert model(wall) == model(virtual)
