"""Runs whose target refers to another score than the accuracy: files, tables, figures, the page."""

from __future__ import annotations

import csv
import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from builders import small_run
from compared_runs import evaluated_run

from edgefl.commands.run import requirements, unmet
from edgefl.config.experiment import Evaluation
from edgefl.config.scores import SCORES
from edgefl.errors import UserError
from edgefl.plugins.live.run_model import RunFacts
from edgefl.plugins.sweep.choice import METRICS_BY_NAME
from edgefl.results import run_files
from edgefl.results.compare import (
    Question,
    answer,
    load,
    load_run,
    of_runs,
    of_strategies,
    write_csv,
    write_seeds_csv,
)
from edgefl.results.figures import gallery
from edgefl.results.figures.base import PlotStyle, open_runs
from edgefl.results.read import read_csv
from edgefl.results.summary import one_line, outcome
from edgefl.results.tables import grid


def rows(**columns: list[float]) -> list[dict[str, str]]:
    """Rows of metrics.csv, a second apart."""
    count = len(next(iter(columns.values())))
    return [
        {"emulated_s": str(at), "test_loss": "1.0", "accuracy": "0.5"}
        | {name: str(values[at]) for name, values in columns.items()}
        for at in range(count)
    ]


def test_the_time_to_a_score_that_falls() -> None:
    found = outcome(rows(perplexity=[9.0, 4.0, 5.0]), 4.5, SCORES["perplexity"])
    assert found["time_to_target_s"] == 1.0 and found["best_perplexity"] == 4.0
    assert found["final_perplexity"] == 5.0 and found["target_perplexity"] == 4.5
    assert found["metric"] == "perplexity" and found["final_accuracy"] == 0.5
    assert found["target_accuracy"] is None


@pytest.mark.parametrize(
    ("values", "end_s", "final", "convergence"),
    [
        ([9.0, 4.0, math.inf], 20.0, None, None),  # not 4, which the model does not have any more
        ([9.0, math.inf, 4.0], 20.0, 4.0, 4.0),
        ([9.0, 4.0, math.inf], 2.0, None, 4.0),  # at the end itself
        ([9.0, 4.0, math.nan, math.inf], 3.0, None, None),
        ([math.inf, math.inf], 1.0, None, None),
    ],
)
def test_a_score_that_is_not_finite_at_the_end_has_no_value(
    values: list[float], end_s: float, final: float | None, convergence: float | None
) -> None:
    found = outcome(rows(perplexity=values), None, SCORES["perplexity"], end_s)
    assert (found["final_perplexity"], found["convergence_perplexity"]) == (final, convergence)


@pytest.mark.parametrize(
    ("section", "line"),
    [
        ({"metric": "f1", "target_accuracy": 0.5}, 'expected metric = "accuracy", found "f1"'),
        ({"target": 0.5, "target_accuracy": 0.5}, "expected target or target_accuracy, found both"),
        ({"metric": "f1", "target": 80.0}, "target: expected at most 1, as a share of 1, found 80"),
        ({"metrics": ["f1", "f1"]}, "metrics: expected different names"),
        ({"metric": "bleu"}, "'exact_match'"),
    ],
)
def test_bad_input(section: dict[str, Any], line: str) -> None:
    with pytest.raises(ValueError, match="validation error") as error:
        Evaluation.model_validate(section)
    assert line in str(error.value)


def run_with(tmp_path: Path, **evaluation: Any) -> tuple[dict[str, Any], Path]:
    return small_run(
        tmp_path,
        evaluation=evaluation,
        stop={"versions": 4},
        strategies=[{"strategy": "fedasync"}],
    )


def test_a_run_measures_f1_and_perplexity_and_all_readers_follow(tmp_path: Path) -> None:
    summary, run = run_with(
        tmp_path, metric="perplexity", metrics=["f1"], target=1.5, by_label=True
    )
    with (run / "metrics.csv").open() as file:
        table = list(csv.DictReader(file))
    assert list(table[0])[-2:] == ["f1", "perplexity"]
    last = max(table, key=lambda row: int(row["version"]))
    e_to_loss = math.exp(float(last["test_loss"]))
    assert float(last["perplexity"]) == pytest.approx(e_to_loss, rel=1e-4)
    assert 0 <= float(last["f1"]) <= 1
    assert summary["final_perplexity"] == float(last["perplexity"])
    assert f"perplexity {summary['final_perplexity']:.4f}" in one_line(summary, "x")
    # tables
    (row,) = load(run)
    assert row.final_accuracy == summary["final_perplexity"] and row.target_accuracy == 1.5
    write_csv([row], tmp_path / "comparison.csv")
    header = (tmp_path / "comparison.csv").read_text().splitlines()[0].split(",")
    assert "final_perplexity" in header
    assert not {"final_accuracy", "metric"} & {*header}
    found = answer([run], Question(target=1e9))
    assert found.strategies[0].reached[0].x == 0.0, "the first model has less"
    drawn = gallery.data("time-to-target", open_runs([run]), PlotStyle(target=1e9))
    assert drawn["at"] == [0.0]
    # the live page, and a run without a summary
    facts = RunFacts.of(run, run_files.read_config(run))
    assert facts.score.name == "perplexity" and facts.target == 1.5
    (run / "summary.json").unlink()
    assert load_run(run, "x").best_accuracy == row.best_accuracy
    assert unmet(requirements(["accuracy=0.1"]), [row]), "a share cannot be required of it"


def test_a_sweep_compares_by_the_score_of_the_runs(tmp_path: Path) -> None:
    summary, run = run_with(tmp_path, metric="f1")
    assert METRICS_BY_NAME["final_accuracy"].of(run) == summary["final_f1"]


def test_runs_with_different_scores_are_not_compared(tmp_path: Path) -> None:
    _, one = run_with(tmp_path / "one", metric="f1")
    _, other = run_with(tmp_path / "other")
    with pytest.raises(UserError, match=r"different evaluation.metric"):
        answer([one, other], Question())


# ------------------------------------------------------------------ several seeds
def evaluated(run: Path, seed: int, perplexities: list[float]) -> Path:
    """Write a finished run by hand that is judged by its perplexity."""
    evaluation = {"metric": "perplexity", "target": 5.0}
    config = {"evaluation": evaluation}
    evaluated_run(run, seed, [0.1] * len(perplexities), target=None, config=config)
    table = (run / "metrics.csv").read_text().splitlines()
    values = zip(table, ["perplexity", *map(str, perplexities)])
    (run / "metrics.csv").write_text("".join(f"{line},{value}\n" for line, value in values))
    facts = json.loads((run / "summary.json").read_text())
    found = outcome(read_csv(run / "metrics.csv"), 5.0, SCORES["perplexity"])
    (run / "summary.json").write_text(json.dumps(facts | found))
    return run


@pytest.fixture
def perplexities(tmp_path: Path) -> Path:
    """Three seeds of two strategies; those of b end 7 lower."""
    for seed in (1, 2, 3):
        evaluated(tmp_path / "a" / f"seed{seed}", seed, [50.0, 11.0 + seed])
        evaluated(tmp_path / "b" / f"seed{seed}", seed, [50.0, 4.0 + seed])
    return tmp_path


def test_all_files_name_their_columns_after_the_score(perplexities: Path, tmp_path: Path) -> None:
    found = answer([perplexities], Question(baseline="a"))
    write_seeds_csv(found.rows, tmp_path / "seeds.csv")
    with (tmp_path / "seeds.csv").open(newline="") as file:
        (_, row) = csv.DictReader(file)
    assert row["final_perplexity_mean"] == "6.0"
    records = of_strategies(found)[1], of_runs(found)[0]
    assert (records[0]["perplexity"], records[0]["perplexity_mean"]) == ("final", 6.0)
    assert records[0]["gain"] == -7.0 and records[1]["final_perplexity"] == 12.0
    for names in (row, *records):
        assert not [name for name in names if "accuracy" in name]


def test_headings_and_differences_are_those_of_the_score(perplexities: Path) -> None:
    found = answer([perplexities], Question(baseline="a", effect=0.5))
    keys = ["final", "convergence_accuracy", "gain", "gain_interval"]
    shown = grid(found, keys)
    assert shown.headings[1:4] == ["final perplexity", "convergence perplexity", "difference vs a"]
    assert shown.rows[1][3:] == ("-7.000", "[-7.000, -7.000]"), "no points: it is no share"
    assert any("80 % power at 0.5 and" in note for note in shown.notes)
    shares = replace(found, rows=tuple(replace(row, metric="f1") for row in found.rows))
    assert grid(shares, ["best", "gain"]).headings[1:] == ["best F1", "points vs a"]
