"""FedEcho's study: every method is tuned on a separate seed, and its best point is in the table.

All methods have the same emulated time.
"""

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

BEST = {"fedecho": "local-0.01-distil-0.0003", "fadas": "server-0.0003"}


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(STUDIES)
    return importlib.import_module("table_fedecho")


def accuracy(entry: dict[str, Any], seed: int) -> float:
    good = (entry.get("distil_learning_rate"), entry.get("local_learning_rate")) == (
        3e-4,
        0.01,
    ) or entry.get("server_learning_rate") == 3e-4
    return (0.8 if good else 0.5) + (0.1 if seed == 2 else 0.0)


def leave(run: Path, entry: dict[str, Any], seed: int) -> dict[str, Any]:
    """Write a run with a slow device that has only label 1, for which accuracy is 0.2 lower."""
    value = accuracy(entry, seed)
    (run / "metrics.csv").write_text(f"emulated_s,accuracy\n700.0,{value}\n")
    (run / "edges.csv").write_text(
        "edge,runtime,label_0,label_1\ne000,short,9,0\ne001,long (mild),0,9\n"
    )
    rows = "".join(
        f"{version},{version}.0,0.9,{0.1 if version < 5 else value - 0.2}\n"
        for version in range(15)
    )
    (run / "labels.csv").write_text(f"version,emulated_s,label_0,label_1\n{rows}")
    return {
        "convergence_accuracy": value,
        "final_accuracy": value,
        "updates_discarded": {"not finite": 2},
    }


def test_the_best_point_of_each_method_goes_into_the_table(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study_type, drawn = importlib.import_module("trials").Study, []
    monkeypatch.setattr(study_type, "do", pretended(leave))
    monkeypatch.setattr(
        gallery, "leave", lambda runs, names: drawn.extend(out.name for out in names.values()) or []
    )
    table = script.Comparison(
        study_type(tmp_path, (1, 2), 1, False, ("data.dir=elsewhere",)),
        script.CONFIGS / "cifar10_lenet.toml",
        list(BEST),
        700.0,
    )
    assert table.tune(script.MAIN, 240.0) == (True, BEST)
    assert len(list((tmp_path / "fedecho-fmnist-lenet-tuning").iterdir())) == 6 and all(
        len(points) == 3 for points in script.POINTS.values()
    )
    assert table.compare(BEST)
    rows = list(csv.DictReader((tmp_path / "fedecho-cifar10-lenet-700s.csv").open()))
    assert [(row["method"], row["point"]) for row in rows] == list(BEST.items())
    assert [
        float(rows[0][key]) for key in ("accuracy", "accuracy_dev", "long_accuracy", "long_dev")
    ] == pytest.approx([0.85, 0.0707107, 0.65, 0.0707107])
    assert float(rows[0]["discarded"]) == 2 and len(drawn) == 3


def test_all_methods_have_the_same_time_and_tuning_hears_of_no_other_config_s_overrides(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[tuple[Any, Any]] = []
    study_type = importlib.import_module("trials").Study
    monkeypatch.setattr(
        study_type,
        "do",
        lambda ours, trials: done.extend((ours, trial) for trial in trials) or False,
    )
    best = {
        label: next(iter(script.POINTS[label.removesuffix("-adaptive")]))
        for label in script.METHODS
    }
    for config in (script.MAIN, script.CONFIGS / "cifar10_lenet.toml"):
        table = script.Comparison(
            study_type(tmp_path, (1, 2), 1, False, ("data.dir=elsewhere",)),
            config,
            list(script.METHODS),
            700.0,
        )
        assert table.tune(script.MAIN, 240.0) == (False, {}) and not table.compare(best)
    assert [ours.overrides for ours, _ in done] == [
        ("data.dir=elsewhere",),
        ("data.dir=elsewhere",),
        (),
        ("data.dir=elsewhere",),
    ]
    assert [(len(trial.entries), trial.changes["stop"]["emulated_s"]) for _, trial in done] == [
        (18, 240.0),
        (6, 700.0),
    ] * 2
    assert {ours.seeds for ours, _ in done[::2]} == {(11,)}
    for ours, trial in done:
        whole = load(ours._write(trial))
        assert (
            whole.evaluation.every_versions == 5
            and whole.evaluation.by_label
            and whole.stop.versions == 1000
        )
