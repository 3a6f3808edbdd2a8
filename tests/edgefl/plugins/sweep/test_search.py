"""Whole sweeps whose runs are invented: equal numbers of settings, edges, failures."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import orjson
import pytest

from edgefl.config.file import FACTS, Config, dump
from edgefl.errors import UserError
from edgefl.plugins.sweep.choice import metric
from edgefl.plugins.sweep.search import Sweep, SweepPlan, free_seed
from edgefl.plugins.sweep.settings import GridAxis
from edgefl.plugins.sweep.sweep_runs import Did, SweepRun

CONFIG = """
name = "many"
stop = { emulated_s = 10.0 }
[[strategies]]
strategy = "fedavg"
[[strategies]]
strategy = "fedasync"
"""
RATE = "training.learning_rate"
FINAL = metric("final_accuracy")
Score = Callable[[SweepRun], float | None]


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "many.toml"
    path.write_text(CONFIG)
    return path


def invented(score: Score, batches: list[list[SweepRun]]) -> Callable[[Sequence[SweepRun]], Did]:
    """Return a replacement of ``do`` that invents results, and notes the runs of each call."""

    def do_runs(runs: Sequence[SweepRun]) -> Did:
        batches.append([run for run in runs if not run.is_done])
        for run in batches[-1]:
            run.directory.mkdir(parents=True)
            facts = {FACTS: {"strategy": run.entry.name}}
            (run.directory / "config.toml").write_text(dump(run.experiment, facts))
            summary = {"label": run.entry.name, "finished": "emulated_s", "emulated_s": 10.0}
            summary["final_accuracy"] = score(run)
            (run.directory / "summary.json").write_bytes(orjson.dumps(summary))
        return Did()

    return do_runs


def peak(at: float) -> Callable[[float], float]:
    """Return an accuracy that is highest at the learning rate ``at``."""
    return lambda rate: 1.0 - abs(math.log10(rate / at)) / 10


def plan(config: Path, *axes: GridAxis, **more: Any) -> SweepPlan:
    return SweepPlan(Config.read(config), axes, metric=FINAL, **more)


def of_methods(run: SweepRun) -> float:
    best = {"fedavg": 10.0, "fedasync": 0.1}[run.entry.name]
    return peak(best)(run.experiment.training.learning_rate)


def test_methods_have_own_grids_and_get_equally_many_settings(config: Path, tmp_path: Path) -> None:
    axes = (
        GridAxis(RATE, (0.01, 0.1), methods=("fedavg",)),
        GridAxis(RATE, (0.03, 0.1, 0.3), methods=("fedasync",)),
    )
    with pytest.raises(UserError, match="--fair: .* fedavg 2, fedasync 3"):
        Sweep(plan(config, *axes, fair=True), tmp_path / "out")
    axes = (GridAxis(RATE, (0.01, 0.1, 1.0), methods=("fedavg",)), axes[1])
    wanted = plan(config, *axes, seeds=(1, 2), extend=5, only_best=True, fair=True)
    sweep, batches = Sweep(wanted, tmp_path / "out"), []
    assert sweep.do(invented(of_methods, batches)).to_the_end
    tried = {each.name: [setting[RATE] for setting in each.settings] for each in sweep.methods}
    # fedavg's best value moves from 1 to 10, and 100 is worse: so its best one is no edge any more
    assert tried == {
        "fedavg": [0.01, 0.1, 1.0, 10.0, 100.0],
        "fedasync": [0.03, 0.1, 0.3, 0.05477, 0.1732],
    }
    best = {each.name: sweep.best(each) for each in sweep.methods}
    assert {name: top and top.setting[RATE] for name, top in best.items()} == {
        "fedavg": 10.0,
        "fedasync": 0.1,
    }
    assert [len(batch) for batch in batches] == [6, 2, 2, 4]
    assert {run.experiment.seed for run in batches[-1]} == {1, 2}
    assert {run.experiment.seed for batch in batches[:-1] for run in batch} == {11}
    again: list[list[SweepRun]] = []
    Sweep(wanted, tmp_path / "out").do(invented(of_methods, again))
    assert not any(again), "nothing is run twice"


def test_a_fair_sweep_gives_no_method_more_than_another(config: Path, tmp_path: Path) -> None:
    axes = (
        GridAxis("training.epochs", (1, 2), methods=("fedavg",)),
        GridAxis("strategies.fedasync.staleness", ("constant", "polynomial")),
    )

    def score(run: SweepRun) -> float:
        return run.experiment.training.epochs / 10

    counts = {}
    for fair in (False, True):
        sweep = Sweep(plan(config, *axes, extend=2, fair=fair), tmp_path / str(fair))
        sweep.do(invented(score, []))
        counts[fair] = [len(each.settings) for each in sweep.methods]
    assert counts == {False: [4, 2], True: [2, 2]}, "words have no next value"


def test_all_times_must_be_equal_in_a_fair_sweep(config: Path, tmp_path: Path) -> None:
    axis = GridAxis("stop.emulated_s", (5.0, 10.0))
    with pytest.raises(UserError, match="--fair: .*: stop: expected emulated_s alone"):
        Sweep(plan(config, axis, fair=True), tmp_path / "out")


def test_a_grid_is_not_extended_beyond_what_the_key_allows(config: Path, tmp_path: Path) -> None:
    axis = GridAxis("strategies.fedasync.alpha", (0.25, 0.5, 1.0))

    def score(run: SweepRun) -> float:
        return float(run.entry.options().get("alpha", 0.0))

    sweep = Sweep(plan(config, axis, extend=3), tmp_path / "out")
    sweep.do(invented(score, []))
    (_, fedasync) = sweep.methods
    assert [setting["strategies.fedasync.alpha"] for setting in fedasync.settings] == list(
        axis.values
    )
    assert sweep.edges(fedasync) and not sweep.open_edges(fedasync)


def test_without_any_number_there_is_no_best_setting(config: Path, tmp_path: Path) -> None:
    sweep = Sweep(plan(config, GridAxis(RATE, (0.1, 1.0)), only_best=True), tmp_path / "out")
    batches: list[list[SweepRun]] = []
    sweep.do(invented(lambda run: None, batches))
    assert [sweep.best(each) for each in sweep.methods] == [None, None]
    assert [len(batch) for batch in batches] == [4, 0]


def test_nothing_is_chosen_from_half_a_grid(config: Path, tmp_path: Path) -> None:
    axes = (GridAxis(RATE, (0.1, 1.0)),)
    sweep = Sweep(plan(config, *axes, only_best=True, extend=3), tmp_path / "out")
    calls: list[int] = []

    def do_runs(runs: Sequence[SweepRun]) -> Did:
        calls.append(len(runs))
        invented(of_methods, [])(runs[:3])
        return Did(interrupted=True)

    assert sweep.do(do_runs).interrupted and calls == [4]


def test_a_config_that_changes_meanwhile_changes_nothing(config: Path, tmp_path: Path) -> None:
    axes = (GridAxis(RATE, (0.01, 0.1)),)
    sweep = Sweep(plan(config, *axes, extend=3), tmp_path / "out")
    seen: list[float | None] = []

    def do_runs(runs: Sequence[SweepRun]) -> Did:
        config.write_text(CONFIG.replace("10.0", "20.0"))
        seen.extend(run.experiment.stop.emulated_s for run in runs)
        return invented(of_methods, [])(runs)

    assert sweep.do(do_runs).to_the_end and {*seen} == {10.0}


def test_a_run_of_another_config_is_refused_in_every_batch(config: Path, tmp_path: Path) -> None:
    other = Config.read(config).changed(["training.epochs=2"])
    there = SweepPlan(other, (GridAxis(RATE, (10.0,)),), metric=FINAL, best_seed=None)
    Sweep(there, tmp_path / "out").do(invented(of_methods, []))
    told = r"learning_rate=10\.0/seed1: is a run of another config: training\.epochs is 1"
    extended = Sweep(plan(config, GridAxis(RATE, (0.1, 1.0)), extend=1), tmp_path / "out")
    with pytest.raises(UserError, match=told):
        extended.do(invented(of_methods, []))
    with pytest.raises(UserError, match=told):  # before the runs that choose
        Sweep(plan(config, GridAxis(RATE, (1.0, 10.0)), only_best=True), tmp_path / "out")


def test_the_seed_of_the_choice_is_none_of_the_table() -> None:
    assert (free_seed((1, 2)), free_seed((11, 12))) == (11, 13)
