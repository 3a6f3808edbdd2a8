"""WKAFL's study: every method's rate is tuned on a separate seed, and the best is in the table."""

from __future__ import annotations

import csv
import importlib
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from paths import STUDIES
from studies import pretended

from edgefl.loading.file import load
from edgefl.reports import gallery

NAME = "wkafl-mnist-1000-10"
BEST = {"wkafl": 0.05, "sasgd": 0.1}


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(STUDIES)
    return importlib.import_module("table_wkafl")


def leave(run: Path, entry: dict[str, Any], seed: int) -> dict[str, Any]:
    """Write a run: accuracy .9 at the method's best rate, else .5; seed 2 is .1 above seed 1."""
    (run / "events.jsonl").write_text("")
    (run / "metrics.csv").write_text("emulated_s,accuracy\n1.0,0.5\n")
    accuracy = (0.9 if entry["server_learning_rate"] == BEST[entry["strategy"]] else 0.5) + (
        0.1 if seed == 2 else 0.0
    )
    section = {
        "steps": 5,
        "tau_ave": 2.0,
        "n_ave": 4.0,
        "predominant": {},
        "selected_ave": None,
        "stage_two_version": None,
    }
    return {
        "strategy": entry["strategy"],
        "seed": seed,
        "convergence_accuracy": accuracy,
        "stability": 0.01,
        "aggregation": section,
    }


def test_the_best_rate_of_each_method_goes_into_the_table(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study_type = importlib.import_module("trials").Study
    monkeypatch.setattr(study_type, "do", pretended(leave))
    monkeypatch.setattr(gallery, "leave", lambda paths, names: list(names.values()))
    ours = study_type(tmp_path, (1, 2, 3), 1, False)
    table = script.Comparison(
        ours, script.CONFIGS / "mnist_1000_10.toml", ["wkafl", "sasgd"], (0.02, 0.05, 0.1)
    )
    assert table.tune() == (True, BEST)
    assert sorted(each.name for each in (tmp_path / f"{NAME}-tuning").iterdir()) == [
        f"{of}-at-{rate}" for of in ("sasgd", "wkafl") for rate in (0.02, 0.05, 0.1)
    ]
    assert table.compare(BEST)
    rows = list(csv.DictReader((tmp_path / f"{NAME}.csv").open()))
    assert [(row["method"], row["rate"]) for row in rows] == [("wkafl", "0.05"), ("sasgd", "0.1")]
    assert [float(row["accuracy"]) for row in rows] == pytest.approx([2.8 / 3] * 2) and float(
        rows[0]["accuracy_dev"]
    ) == pytest.approx(0.0577350)
    assert (rows[0]["tau_ave"], rows[0]["n_ave"], rows[0]["stability_dev"]) == ("2.0", "4.0", "0.0")
    monkeypatch.setattr(study_type, "do", lambda ours, trials: True)
    fewer = script.Comparison(
        study_type(tmp_path, (1, 3), 1, False),
        script.CONFIGS / "mnist_1000_10.toml",
        ["wkafl", "sasgd"],
        (0.02, 0.05, 0.1),
    )
    assert fewer.compare(BEST)
    assert [
        float(row["accuracy"]) for row in csv.DictReader((tmp_path / f"{NAME}.csv").open())
    ] == pytest.approx([0.9, 0.9]), "seed 2 was not asked for"


def test_every_method_has_three_points_and_all_are_one_run(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[Any] = []
    study_type = importlib.import_module("trials").Study
    monkeypatch.setattr(study_type, "do", lambda ours, trials: done.extend(trials) or False)
    labels = [entry.name for entry in load(script.CONFIGS / "mnist_1000_10.toml").strategies]
    table = script.Comparison(
        study_type(tmp_path, (1, 2), 1, False), script.CONFIGS / "mnist_1000_10.toml", labels
    )
    assert table.tune() == (False, {})
    assert {len(set(rates)) for rates in table.rates.values()} == {3} and len(labels) == 8
    assert (
        table.rates["sasgd"] == script.OWN_RATES["sasgd"]
        and table.rates["wkafl"] == table.rates["k-async"] == script.RATES
    )
    (trial,) = done
    assert (
        len(trial.entries) == 24
        and len({entry["label"] for entry in trial.entries}) == 24
        and not trial.changes
    )
