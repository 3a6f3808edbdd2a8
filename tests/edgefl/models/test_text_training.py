"""Text models trained with AdamW: decoded answers, perplexity, FedEcho, time by tokens."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest
from text_rig import causal_experiment, text_experiment

from edgefl.clocks.setup.learning import learning
from edgefl.clocks.virtual.run import run_virtual
from edgefl.protocol.messages import Assignment
from edgefl.strategies.base.strategy import LocalRule

ADAMW = {"optimizer": "adamw", "learning_rate": 0.01, "batch_size": 10}
ROUNDS = {"concurrency": 2, "buffer_size": 2}
# with longer ones, these fast devices train hundreds of tasks during a distillation
SHORT_JOBS = {"predict_s": 0.01, "distil_s": 0.01}


def run(given: Any, directory: Path) -> tuple[dict[str, Any], list[dict[str, str]]]:
    summary = run_virtual(learning(given, None), 0, directory)
    with (directory / "metrics.csv").open() as file:
        return summary, list(csv.DictReader(file))


@pytest.mark.parametrize("train", ["all", "lora"])
@pytest.mark.slow
def test_fedecho_on_a_causal_model_gives_the_same_bytes_twice(tmp_path: Path, train: str) -> None:
    given = causal_experiment(
        {"train": train},
        training=ADAMW,
        unlabelled={"data": "held_out", "size": 6},
        stop={"versions": 3},
        evaluation={"metric": "perplexity"},
        strategies=[{"strategy": "fedecho", "top_words": 8, **SHORT_JOBS, **ROUNDS}],
    )
    summary, table = run(given, tmp_path / "one")
    run(given, tmp_path / "two")
    models = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("one", "two")]
    assert models[0] == models[1] and summary["versions"] == 3
    assert float(table[-1]["perplexity"]) < float(table[0]["perplexity"])
    told = (tmp_path / "one" / "events.jsonl").read_text()
    assert told.count('"teachers"') == 3, "one report for each distillation"
    assert "distillation_failed" not in told and "prediction_failed" not in told


@pytest.mark.slow
def test_time_by_tokens_is_that_of_the_padded_batches(tmp_path: Path) -> None:
    given = text_experiment(
        training=ADAMW,
        edges={"names": ["a"]},
        partition={"name": "iid"},
        devices={"unit": "tokens", "tokens_per_s": 100.0},
        links={"up_mbit_s": 1e5, "down_mbit_s": 1e5},
        stop={"versions": 1},
        strategies=[{"strategy": "fedavg"}],
    )
    learned = learning(given, None)
    course = learned.trainer("a").begin(
        Assignment(0, 0, {"weights": learned.initial_weights()}), LocalRule(None), {}
    )
    assert course.tokens is not None
    lengths = learned.task.dataset.token_counts()
    assert lengths.sum() <= course.tokens[-1] <= len(lengths) * lengths.max()
    summary = run_virtual(learned, 0, tmp_path / "run")
    assert summary["emulated_s"] == pytest.approx(course.tokens[-1] / 100.0, abs=0.05)
