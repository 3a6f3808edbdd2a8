"""Trials of studies: run by the command line, not repeated, and run again after any change."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from paths import ROOT, STUDIES
from studies import pretended

from edgefl.errors import UserError
from edgefl.loading.file import load

BASE = ROOT / "configs" / "quickstart.toml"


@pytest.fixture
def trials(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(STUDIES)
    return importlib.import_module("trials")


def small(trials: ModuleType, **options: Any) -> Any:
    entry = {"strategy": "fedbuff", "buffer_size": 2} | options
    return trials.Trial(
        "small", BASE, [entry], {"stop": {"emulated_s": 3.0}, "edges": {"count": 3}}
    )


@pytest.mark.usefixtures("warm_python")
def test_a_trial_is_run_once_for_each_seed_and_again_when_it_changes(
    trials: ModuleType, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    study = trials.Study(tmp_path, (1, 2), 1, False)
    assert study.do([small(trials)])
    rows = study.results(small(trials), "fedbuff")
    assert [row.seed for row in rows] == [1, 2] and all(
        row.updates > 0 and row.late_accuracy is not None for row in rows
    )
    assert load(tmp_path / "configs" / "small.toml").seeds == (
        1,
        2,
    )  # to read, or to run by hand
    capfd.readouterr()
    assert study.do([small(trials)])
    assert "done before (fedbuff)" in capfd.readouterr().err
    whole, missing = study._missing(small(trials, server_learning_rate=0.5))
    assert missing == ["fedbuff"] and whole.name == "small"
    summary = tmp_path / "small" / "fedbuff" / "seed2" / "summary.json"
    summary.write_text(json.dumps(json.loads(summary.read_text()) | {"finished": "interrupted"}))
    assert study._missing(small(trials))[1] == ["fedbuff"]


@pytest.mark.usefixtures("warm_python")
def test_seeds_that_were_not_asked_for_and_what_another_config_left_are_no_results(
    trials: ModuleType, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    study = trials.Study(tmp_path, (1, 2, 3), 1, False)
    assert study.do([small(trials)])
    fewer = trials.Study(tmp_path, (1, 3), 1, False)
    assert fewer.do([small(trials)]) and "done before" in capfd.readouterr().err
    assert [run.name for run in fewer.runs(small(trials), "fedbuff")] == [
        "seed1",
        "seed3",
    ] and fewer.results(small(trials), "elsewhere") == []
    alone = trials.Study(tmp_path, (2,), 1, False)
    assert alone.do([small(trials)]) and "done before" in capfd.readouterr().err, (
        "or the others would be taken away"
    )
    assert [row.seed for row in alone.results(small(trials), "fedbuff")] == [2] and len(
        fewer.results(small(trials), "fedbuff")
    ) == 2
    moved = trials.Study(tmp_path, (1, 2, 3), 1, False, ("data.name=mnist", f"data.dir={tmp_path}"))
    assert not moved.do([small(trials)])
    assert (tmp_path / "small" / "fedbuff" / "seed1" / "summary.json").is_file(), (
        "the refused run has left it there"
    )
    assert (
        moved.results(small(trials), "fedbuff") == []
        and "seeds are missing of: fedbuff" in capfd.readouterr().err
    )


@pytest.mark.usefixtures("warm_python")
def test_a_run_that_fails_is_told_and_the_others_go_on(
    trials: ModuleType, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    broken = trials.Trial(
        "broken",
        BASE,
        [{"strategy": "fedavg"}],
        {"data": {"name": "mnist", "dir": str(tmp_path)}, "stop": {"emulated_s": 1.0}},
    )
    assert not trials.Study(tmp_path, (1,), 1, False).do([broken])
    told = capfd.readouterr().err
    assert (
        "failed (exit status 2)" in told
        and "no file train-images-idx3-ubyte" in told
        and "failed: broken" in told
    )


def test_a_quick_study_is_short_and_lies_elsewhere(trials: ModuleType, tmp_path: Path) -> None:
    options = trials.arguments(None, "x", (1,)).parse_args(
        ["--quick", "--out", str(tmp_path / "x"), "--seeds", "3,4"]
    )
    study = trials.study(options)
    assert study.folder == tmp_path / "x-quick" and study.seeds == (3, 4)
    assert study._missing(small(trials))[0].stop.emulated_s == trials.QUICK["stop"]["emulated_s"]


@pytest.mark.usefixtures("warm_python")
def test_what_is_set_on_the_command_line_holds_for_every_trial(
    trials: ModuleType, tmp_path: Path
) -> None:
    options = trials.arguments(None, "x", (1,)).parse_args(
        ["--out", str(tmp_path), "--set", "stop.updates=4", "--set", "training.learning_rate=0.01"]
    )
    study = trials.study(options)
    assert study.do([small(trials)]) and study._missing(small(trials))[1] == []
    ran = load(tmp_path / "small" / "fedbuff" / "config.toml")
    assert (ran.stop.updates, ran.training.learning_rate) == (4, 0.01)
    assert trials.Study(tmp_path, (1,), 2, False)._missing(small(trials))[1] == [
        "fedbuff"
    ]  # because it is another experiment


@pytest.mark.usefixtures("warm_python")
def test_the_table_says_what_is_reconstructed(trials: ModuleType, tmp_path: Path) -> None:
    table = importlib.import_module("table_fedasmu")
    study, trial = (
        trials.Study(tmp_path, (1,), 1, False),
        trials.Trial("small", BASE, [{"strategy": "fedsa"}], {"stop": {"emulated_s": 1.0}}),
    )
    assert study.do([trial])
    assert table.result(study, trial, "fedsa")[0] == "fedsa (reconstructed)"


def test_the_table_of_a_config_without_a_target_or_without_a_time(
    trials: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both are reported before an hour of runs, not after it."""
    table, config = importlib.import_module("table_fedasmu"), tmp_path / "no_target.toml"
    config.write_text('strategies = [{strategy = "fedavg"}]\nstop = {versions = 2}\n')
    monkeypatch.setattr(trials.Study, "do", lambda ours, trials: True)
    words = ["table", "--config", str(config), "--out", str(tmp_path / "out")]
    monkeypatch.setattr(sys, "argv", words)
    with pytest.raises(UserError, match="expected stop.emulated_s"):
        table.main()
    monkeypatch.setattr(sys, "argv", [*words, "--emulated-s", "5"])
    titles: list[str] = []
    monkeypatch.setattr(table, "tell", lambda title, *rest: titles.append(title))
    table.main()
    assert titles == ["run: 5 emulated s, seeds 1, 2"]


@pytest.mark.parametrize("words", [["--workers", "0"], ["--seeds", "1,1"], ["--seeds", "x"]])
def test_wrong_options_are_refused(trials: ModuleType, words: list[str]) -> None:
    with pytest.raises(SystemExit):
        trials.arguments(None, "x", (1,)).parse_args(words)


def test_entries_come_from_the_config_with_their_options(trials: ModuleType) -> None:
    assert trials.entries(BASE, "fedbuff") == [
        {"strategy": "fedbuff", "dispatch": "replace", "concurrency": 10, "buffer_size": 5}
    ]
    with pytest.raises(UserError, match="no strategy 'fedbof'"):
        trials.entries(BASE, "fedbof")


@pytest.mark.parametrize("script", ["map_dissemination", "scarce_links", "tune_fedasmu"])
def test_what_the_studies_would_run_are_configs(
    trials: ModuleType, tmp_path: Path, script: str
) -> None:
    module = importlib.import_module(script)
    found = {
        "map_dissemination": lambda: [module.trial(ratio, 0.6) for ratio in (5.0, 440.0)],
        "scarce_links": lambda: [module.trial(50.0)],
        "tune_fedasmu": lambda: [module.trial(method) for method in module.POINTS],
    }[script]()
    for trial in found:
        whole, missing = trials.Study(tmp_path, (7,), 1, False)._missing(trial)
        assert (
            missing == [entry.name for entry in whole.strategies]
            and whole.stop.emulated_s == 3500.0
        )
    if script == "map_dissemination":  # 3000 samples on the slowest device
        assert [
            3000 / each.devices.samples_per_s * each.devices.slowest_ratio
            for each in map(load, sorted(tmp_path.glob("configs/*.toml")))
        ] == [200.0, 200.0]


def test_late_accuracy_is_over_time_and_not_over_evaluations(trials: ModuleType) -> None:
    module = importlib.import_module("trial_results")
    points = [
        (0.0, 0.1),
        (2900.0, 0.4),
        (3100.0, 0.6),
        (3400.0, 0.8),
    ]  # of the last 500 s: 100 s at 0.4, 300 s at 0.6, 100 s at 0.8
    assert module.late_accuracy(points, 3500.0) == pytest.approx(
        (100 * 0.4 + 300 * 0.6 + 100 * 0.8) / 500
    )
    assert module.late_accuracy([(0.0, 0.1)], 3500.0) == pytest.approx(0.1)
    assert module.late_accuracy([(0.0, 0.1), (100.0, 0.3)], 200.0) == pytest.approx(
        0.2
    )  # a run shorter than that
    assert module.late_accuracy([], 3500.0) is None


def test_a_gain_needs_both_to_reach_the_target(trials: ModuleType, tmp_path: Path) -> None:
    module = importlib.import_module("map_dissemination")
    trial, study = module.trial(5.0, 0.6), trials.Study(tmp_path, (1,), 1, False)
    reached = {
        "fedasmu": (300.0, 0.75),
        "fedasync": (400.0, 0.7),
        "fedbuff": (None, 0.5),
        "fedasmu-0": (None, 0.5),
    }

    def leave(run: Path, entry: dict[str, Any], seed: int) -> dict[str, Any]:
        time_s, accuracy = reached[run.name]
        (run / "metrics.csv").write_text(f"emulated_s,accuracy\n0.0,0.1\n100.0,{accuracy}\n")
        return {
            "staleness": {"0": 1, "2": 1, "7": 3},
            "time_to_target_s": time_s,
            "convergence_accuracy": 0.9,
            "final_accuracy": 0.9,
            "emulated_s": 3500.0,
        }

    pretended(leave)(study, [trial])
    (tmp_path / trial.name / "fedasmu-0" / "summary.json").unlink()
    found = module.gain(study, trial, "fedasync")
    assert (found.time, found.accuracy, found.staleness) == (0.25, pytest.approx(0.05), 7)
    assert module.gain(study, trial, "fedbuff").time is None and module.gain(
        study, trial, "fedbuff"
    ).accuracy == pytest.approx(0.25)
    assert module.gain(study, trial, "fedasmu-0").accuracy is None  # not run yet
    assert module.draw([found], 0.6, tmp_path / "map.png").stat().st_size > 1000
