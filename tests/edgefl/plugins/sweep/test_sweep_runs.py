"""Single runs of a sweep: done once, replaced if of another config, shared data, the time left."""

from __future__ import annotations

from pathlib import Path

import pytest
from paths import SUPPORT

from edgefl.clocks.choices import Power
from edgefl.config.file import load
from edgefl.errors import UserError
from edgefl.plugins.sweep.command import SweepLines, TimeLeft
from edgefl.plugins.sweep.sweep_runs import SharedData, SweepRun, do

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


def test_one_at_a_time() -> None:
    left = TimeLeft(runs=4, at_once=1, began_s=100.0)
    assert left.left_s(105.0) is None, "nothing is known before the first has ended"
    left.ended(110.0)
    assert left.left_s(110.0) == 30.0 and left.left_s(114.0) == 26.0
    left.ended(130.0)  # it took 20 s, so the mean is 15 s
    assert left.left_s(130.0) == 30.0 and left.done == 2
    assert left.left_s(150.0) == 15.0, "a run that takes longer than the mean ends soon"
    left.ended(150.0), left.ended(160.0)
    assert left.left_s(160.0) == 0.0


def test_two_at_a_time() -> None:
    left = TimeLeft(runs=5, at_once=2, began_s=0.0)
    left.ended(10.0)
    # of 10 s: the other one should end now, one has just begun, and two wait
    assert left.left_s(10.0) == (0.0 + 10.0 + 20.0) / 2
    left.ended(10.0)
    assert left.left_s(10.0) == 15.0
