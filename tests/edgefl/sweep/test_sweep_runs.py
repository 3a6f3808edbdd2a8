"""Single runs of a sweep: done once, replaced if of another config, with shared data."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest
from paths import SUPPORT

from edgefl.commands.sweep import SweepLines
from edgefl.errors import UserError
from edgefl.hosts.choices import Power
from edgefl.hosts.setup.resumption import RunStage
from edgefl.hosts.virtual import run_batch
from edgefl.loading.file import load
from edgefl.sweep.sweep_runs import Did, SharedData, SweepRun, do

CONFIG = f"""
task = "{SUPPORT / "own_task.py"}:build"
edges = {{ count = 2 }}
stop = {{ versions = 2 }}
strategies = [{{strategy = "fedavg"}}, {{strategy = "fedprox"}}]
"""


def run_of(folder: Path, index: int = 0, *overrides: str) -> SweepRun:
    (folder / "one.toml").write_text(CONFIG)
    return SweepRun(load(folder / "one.toml", overrides), index, folder / f"run{index}", folder)


@pytest.mark.processes
def test_a_run_is_done_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = [run_of(tmp_path), run_of(tmp_path, 1)]
    assert [run.stage() for run in runs] == [RunStage.not_begun] * 2
    assert do(runs, Power(), SweepLines()) == Did(whole=True, interrupted=False)
    assert all(run.is_done for run in runs)
    monkeypatch.setattr(run_batch, "run_virtual", None)  # it would fail
    assert do(runs, Power(), SweepLines()).to_the_end


@pytest.mark.processes
def test_a_directory_of_another_run_is_no_result_and_is_replaced(tmp_path: Path) -> None:
    first, other = run_of(tmp_path), run_of(tmp_path, 0, "training.epochs=2")
    do([first], Power(), SweepLines())
    (first.directory / "notes.txt").write_text("the user's own")
    assert other.stage() is None and not other.is_done
    with pytest.raises(UserError, match=r"training\.epochs is 2, the run has 1; choose another"):
        other.refuse_another()
    do([other], Power(), SweepLines())
    assert other.is_done and first.stage() is None
    assert (first.directory / "notes.txt").is_file()


@pytest.mark.processes
def test_a_run_of_another_strategy_or_without_an_end_is_no_result(tmp_path: Path) -> None:
    run = run_of(tmp_path)
    do([run], Power(), SweepLines())
    assert SweepRun(run.experiment, 1, run.directory, run.base).stage() is None
    path = run.directory / "summary.json"
    summary = orjson.loads(path.read_bytes())
    path.write_bytes(orjson.dumps(summary | {"finished": "interrupted"}))
    assert run.stage() is RunStage.broken_off
    path.unlink()
    assert run.stage() is RunStage.broken_off and not run.is_done


@pytest.mark.processes
def test_an_older_config_without_a_newer_key_is_the_same_run(tmp_path: Path) -> None:
    run = run_of(tmp_path)
    do([run], Power(), SweepLines())
    config = run.directory / "config.toml"
    lines = config.read_text().splitlines()
    assert "momentum = 0.0" in lines
    config.write_text("\n".join(line for line in lines if line != "momentum = 0.0"))
    assert run.is_done
    config.unlink()
    assert not run.is_done


@pytest.mark.processes
def test_the_data_of_most_runs_are_loaded_once(tmp_path: Path) -> None:
    runs = [
        run_of(tmp_path, 0, 'model={name = "mlp", hidden = [8]}'),
        run_of(tmp_path, 0, "seed=2"),
        run_of(tmp_path, 0, 'strategies=[{strategy = "fedprox", mu = 0.5}]'),
    ]
    shared = SharedData.of(runs)
    assert shared.first == runs[1], "the model is part of what is shared"
    shared.load()
    found = [shared.learned(run, resume=False) for run in runs]
    assert found[1].workspace is found[2].workspace is not found[0].workspace
    assert [each.experiment for each in found] == [run.experiment for run in runs]
    rules = [type(each.rule(0)).__name__ for each in found]
    assert rules[0] == rules[1] != rules[2], "the strategy is not shared"
