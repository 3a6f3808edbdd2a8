"""``edgefl sweep``: a directory a run, nothing run twice, the best setting, bad input in a line."""

from __future__ import annotations

import csv
import os
import signal
import sys
from pathlib import Path
from typing import Any

import orjson
import pytest
from paths import SUPPORT
from typer.testing import CliRunner

from edgefl.cli import app
from edgefl.clocks.virtual import run_batch
from edgefl.commands.running import ProgressLines
from edgefl.config.file import load
from edgefl.errors import UserError

CONFIG = f"""
name = "tiny"
task = "{SUPPORT / "own_task.py"}:build"
stop = {{ versions = 3 }}
edges = {{ count = 3 }}
evaluation = {{ every_versions = 1 }}
[[strategies]]
strategy = "fedavg"
[[strategies]]
strategy = "fedprox"
"""
RATES = ("--grid", "training.learning_rate=0.01,0.1")
OUT = Path("runs/tiny-sweep")


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tiny.toml").write_text(CONFIG)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the runs that are done, in order."""
    names: list[str] = []

    def run_virtual(learned: Any, index: int, directory: Path, *rest: Any) -> dict[str, Any]:
        names.append(
            "/".join(directory.parts[-3:] if "choice" in str(directory) else directory.parts[-2:])
        )
        return original(learned, index, directory, *rest)

    original = run_batch.run_virtual
    monkeypatch.setattr(run_batch, "run_virtual", run_virtual)
    return names


def sweep(*words: str, config: str = "tiny.toml") -> str:
    result = CliRunner().invoke(app, ["sweep", config, *words], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def refused(*words: str, config: str = "tiny.toml") -> str:
    with pytest.raises(UserError) as error:
        CliRunner().invoke(app, ["sweep", config, *words], catch_exceptions=False)
    return str(error.value)


def table(name: str = "settings.csv") -> list[dict[str, str]]:
    return list(csv.DictReader((OUT / name).open()))


@pytest.mark.processes
def test_every_setting_is_run_with_every_seed_and_nothing_twice(ran: list[str]) -> None:
    words = (*RATES, "--grid", "strategies.fedprox.mu=0.01,1")
    told = sweep(*words)
    schemes = [f"fedavg,learning_rate={rate}" for rate in (0.01, 0.1)]
    schemes += [f"fedprox,learning_rate={rate},mu={mu}" for rate in (0.01, 0.1) for mu in (0.01, 1)]
    assert ran == [
        *(f"choice,seed11/{scheme}/seed11" for scheme in schemes),
        *(f"{scheme}/seed1" for scheme in schemes),
    ]
    assert "[11 of 12 runs, about 0:00:0" in told and "[12 of 12 runs]" in told
    assert "different numbers of settings, which is no fair comparison: fedavg 2, fedprox 4" in told
    config = load(OUT / "fedprox,learning_rate=0.1,mu=1" / "seed1" / "config.toml")
    assert (config.seed, config.training.learning_rate) == (1, 0.1)
    assert [(entry.name, entry.options()["mu"]) for entry in config.strategies] == [("fedprox", 1)]
    files = {path: path.read_bytes() for path in sorted(OUT.rglob("*")) if path.is_file()}
    ran.clear()
    assert "done before: 12 of 12 runs" in sweep(*words) and ran == []
    assert {path: path.read_bytes() for path in sorted(OUT.rglob("*")) if path.is_file()} == files
    sweep("--grid", "training.learning_rate=0.01,0.1,1.0", *words[2:])
    assert len(ran) == 6 and all("learning_rate=1.0" in name for name in ran), "the new value alone"


@pytest.mark.processes
def test_a_run_of_a_sweep_writes_the_bytes_of_edgefl_run() -> None:
    sweep(*RATES, "--no-best")
    words = ["run", "tiny.toml", "--clock", "virtual", "training.learning_rate=0.1"]
    assert CliRunner().invoke(app, words, catch_exceptions=False).exit_code == 0
    for method in ("fedavg", "fedprox"):
        for name in ("events.jsonl", "links.csv", "model.safetensors"):
            ours = OUT / f"{method},learning_rate=0.1" / "seed1" / name
            assert ours.read_bytes() == (Path("runs/tiny") / method / name).read_bytes()
    models = {path.read_bytes() for path in OUT.rglob("model.safetensors")}
    assert len(models) == 4, "no run is another one's"


@pytest.mark.processes
def test_the_best_setting_is_the_best_of_its_own_seed(ran: list[str]) -> None:
    told = sweep(*RATES, "--grid", "seed=1,2", "--metric", "final_accuracy", "--best-seed", "5")
    for method in ("fedavg", "fedprox"):
        rows = [row for row in table() if row["strategy"] == method]
        scores = {
            rate: orjson.loads(
                (
                    OUT / f"choice,seed5/{method},learning_rate={rate}/seed5/summary.json"
                ).read_bytes()
            )["final_accuracy"]
            for rate in ("0.01", "0.1")
        }
        assert [float(row["score"]) for row in rows] == list(scores.values())
        best = max(scores, key=lambda rate: scores[rate])
        assert [row["training.learning_rate"] for row in rows if row["best"] == "1"] == [best]
        assert (
            f"best setting of {method} by final_accuracy on seed 5: training.learning_rate = {best}"
            in told
        )
        chosen = load(OUT / f"best-{method}.toml")
        assert chosen.training.learning_rate == float(best) and chosen.seeds == (1, 2)
        assert [entry.name for entry in chosen.strategies] == [method]
        of_seeds = [
            orjson.loads(
                (OUT / f"{method},learning_rate={best}/seed{seed}/summary.json").read_bytes()
            )
            for seed in (1, 2)
        ]
        mean = sum(each["final_accuracy"] for each in of_seeds) / 2
        (row,) = (row for row in rows if row["best"] == "1")
        assert float(row["mean"]) == pytest.approx(mean) and row["n"] == "2"
    assert len(table("runs.csv")) == 12
    shown = CliRunner().invoke(app, ["compare", str(OUT)])
    assert shown.exit_code == 0 and "seed11" not in shown.output, (
        "the seed of the choice is no result"
    )


@pytest.mark.processes
def test_runs_csv_has_the_columns_of_comparison_csv_in_the_names_of_the_score() -> None:
    sweep("--grid", "training.learning_rate=0.1", "--no-best", "evaluation.metric=f1")
    names = list(table("runs.csv")[0])
    assert {"final_f1", "best_f1"} <= {*names}
    assert not {"final_accuracy", "metric", "ages"} & {*names}


@pytest.mark.processes
def test_seeds_alone_choose_nothing(ran: list[str]) -> None:
    told = sweep("--grid", "seed=4,5")
    assert ran == ["fedavg/seed4", "fedprox/seed4", "fedavg/seed5", "fedprox/seed5"]
    assert "best" not in told and not list(OUT.glob("best-*"))


@pytest.mark.processes
def test_a_sweep_goes_on_after_ctrl_c_in_the_run_that_was_broken_off(
    ran: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = 0

    def ticker(*_: Any) -> Any:
        def tick(now_ns: int, run: Any) -> None:
            nonlocal steps
            steps += 1
            if steps == 40:
                os.kill(os.getpid(), signal.SIGINT)

        return tick

    words = ["sweep", "tiny.toml", *RATES, "--grid", "seed=1,2"]
    with monkeypatch.context() as patch:
        patch.setattr(ProgressLines, "ticker", ticker)
        patch.setattr(sys, "argv", ["edgefl", *words])  # the hint repeats the command
        result = CliRunner().invoke(app, words)
    assert result.exit_code == 130 and "next: edgefl sweep tiny.toml " in result.output
    first, broken = list(ran), ran[-1]
    assert 1 < len(first) < 12
    ran.clear()
    assert f"done before: {len(first) - 1} of 12 runs" in sweep(*words[2:])
    assert ran[0] == broken and not set(ran) & set(first[:-1])
    place = OUT / broken
    sweep(*words[2:], "--out", "unbroken")
    for name in ("events.jsonl", "links.csv", "model.safetensors"):
        other = Path("unbroken") / broken / name
        assert (place / name).read_bytes() == other.read_bytes()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "--grid: missing: expected at least one"),
        (["--grid", "training.epochs="], "--grid training.epochs=: is empty"),
        (["--grid", "strategies.fedprox.muh=1"], "strategies[1].muh: unknown key (nearest: 'mu')"),
        ([*RATES, "--trials", "5"], "--trials 5: expected --sampler random or --sampler optuna"),
        ([*RATES, "--sampler", "radnom"], "unknown sampler (nearest: 'random')"),
        ([*RATES, "--metric", "final_acuracy"], "unknown metric (nearest: 'final_accuracy')"),
        ([*RATES, "evaluation.metric=perplexity"], "better when lower: expected final_loss"),
        (
            [*RATES, "evaluation.metric=perplexity", "--metric", "worst_tenth"],
            "--metric worst_tenth: evaluation.metric is perplexity, which is better when lower",
        ),
        ([*RATES, "--metric", "worst_tenth"], "expected [evaluation.edges] in the config"),
        (
            [*RATES, "--metric", "time_to_target_s"],
            "--metric time_to_target_s: expected evaluation.target in the config",
        ),
        (
            [*RATES, "--metric", "joules_to_target", "evaluation.target=0.5"],
            "expected [devices.energy] or [links.radio] in the config",
        ),
        ([*RATES, "--best-seed", "1"], "--best-seed 1: is a seed of the table"),
        ([*RATES, "--no-best", "--sampler", "random"], "chooses by a metric: leave --no-best out"),
        ([*RATES, "--out", "tiny.toml"], "--out tiny.toml: is no directory"),
    ],
)
def test_bad_input_is_one_line(words: list[str], said: str) -> None:
    assert said in refused(*words)
    assert not Path("runs").exists(), "nothing was begun"


@pytest.mark.processes
def test_a_folder_of_another_config_is_refused(ran: list[str]) -> None:
    sweep(*RATES, "--no-best")
    assert "is a sweep of another config" in (found := refused(*RATES, "stop.versions=4"))
    assert "stop.versions is 4, the run has 3" in found
    ran.clear()
    sweep(*RATES, "--no-best", "training.learning_rate=5.0")  # each setting has its own
    assert ran == []
    sweep(*RATES, "--no-best", 'strategies=[{strategy="fedavg"}, {strategy="fedasync"}]')
    assert len(ran) == 2 and all(name.startswith("fedasync,") for name in ran)
    CliRunner().invoke(app, ["run", "tiny.toml", "--clock", "virtual"], catch_exceptions=False)
    found = refused(*RATES, "--out", "runs/tiny")
    assert "has runs and no sweep.toml" in found
    (OUT / "sweep.toml").unlink()
    (OUT / "fedavg,learning_rate=0.1" / "seed1" / "config.toml").write_text(
        (OUT / "fedavg,learning_rate=0.01" / "seed1" / "config.toml").read_text()
    )
    found = refused(*RATES, "--no-best")
    assert "is a run of another config: training.learning_rate is 0.1, the run has 0.01" in found


@pytest.mark.processes
def test_resume_of_a_run_of_a_sweep_says_what_to_do(ran: list[str]) -> None:
    sweep(*RATES)
    first, chooses = (
        "fedavg,learning_rate=0.1/seed1",
        "choice,seed11/fedavg,learning_rate=0.1/seed11",
    )
    for place in (OUT, OUT / first, OUT / chooses):
        with pytest.raises(UserError, match="is of a sweep: give the edgefl sweep command again"):
            CliRunner().invoke(app, ["run", "--resume", str(place)], catch_exceptions=False)


def test_options_of_other_commands_say_what_to_write() -> None:
    from edgefl.cli import explained

    with pytest.raises(Exception) as error:  # typer does not export its class
        app(args=["sweep", "tiny.toml", "--seeds", "x"], standalone_mode=False)
    assert "say --grid seed=1,2,3" in explained(error.value, ["--seeds", "x"])
