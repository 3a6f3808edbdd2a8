"""Text models trained with AdamW: decoded answers, perplexity, FedEcho, time by tokens."""

from __future__ import annotations

import csv
import math
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from text_rig import causal_experiment, sums, text_experiment, write_jsonl

from edgefl.clocks.setup.learning import Learning, learning
from edgefl.clocks.virtual.run import run_virtual
from edgefl.edges.training import LocalRun
from edgefl.jobs import Evaluate
from edgefl.protocol.messages import Assignment
from edgefl.strategies.base.strategy import LocalRule

COUNT = 20
ADAMW = {"optimizer": "adamw", "learning_rate": 0.01, "batch_size": 10}
ROUNDS = {"concurrency": 2, "buffer_size": 2}
# with longer ones, these fast devices train hundreds of tasks during a distillation
SHORT_JOBS = {"predict_s": 0.01, "distil_s": 0.01}


def rows() -> list[dict[str, str]]:
    """Sums of which no two have the same result."""
    return [
        {"question": f"what is {number} + {number}?", "answer": f"#### {2 * number}"}
        for number in range(COUNT)
    ]


def of_sums(folder: Path, test: list[dict[str, str]], **training: Any) -> Learning:
    """The made-up sums as training data of one edge, and a tiny causal model."""
    from make_tiny_models import tiny_causal

    write_jsonl(folder / "train.jsonl", rows())
    write_jsonl(folder / "test.jsonl", test)
    if not (folder / "model").exists():
        texts = [text for row in [*rows(), *sums(40, 0)] for text in row.values()]
        tiny_causal(folder / "model", texts, vocabulary=300, hidden=48, positions=32)
    given = causal_experiment(
        {"name": "causal_lm", "path": "model"},
        data={
            "name": "instructions",
            "dir": str(folder),
            "prompt": "question",
            "length": 32,
        },
        edges={"names": ["a"]},
        training=ADAMW | training,
        evaluation={"metric": "exact_match", "metrics": ["perplexity"], "answer_tokens": 8},
    )
    return learning(given, None)


@cache
def overfitted(folder: Path) -> np.ndarray:
    """A model that knows the answers to all sums by heart."""
    schedule = {"kind": "linear", "warmup_steps": 10}
    learned = of_sums(folder, rows(), epochs=200, learning_rate=0.006, schedule=schedule)
    trainer, rule = learned.trainer("a"), LocalRule(None)
    run: LocalRun = trainer.begin(
        Assignment(0, 0, {"weights": learned.initial_weights()}), rule, {}
    )
    assert trainer.advance(run, rule) and run.failure is None
    return run.weights.numpy().copy()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("sums")


def scores(learned: Learning, weights: np.ndarray) -> tuple[Any, ...]:
    return learned.evaluate(Evaluate(0, 0, weights, 0, 0))


def test_a_model_that_knows_twenty_sums_matches_all_of_them(folder: Path) -> None:
    learned, weights = of_sums(folder, rows()), overfitted(folder)
    train_loss, loss, accuracy, perplexity, match = scores(learned, weights)
    assert match == 1.0
    assert perplexity == pytest.approx(math.exp(loss)) and perplexity < 1.2 and accuracy > 0.95
    assert train_loss == pytest.approx(loss, rel=1e-5), "the same texts, in the same batches"


def run(given: Any, directory: Path) -> tuple[dict[str, Any], list[dict[str, str]]]:
    summary = run_virtual(learning(given, None), 0, directory)
    with (directory / "metrics.csv").open() as file:
        return summary, list(csv.DictReader(file))


@pytest.mark.parametrize("train", ["all", "lora"])
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
