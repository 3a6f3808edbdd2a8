"""From runs to experiments and claims, and what is refused."""

from __future__ import annotations

import math
import subprocess
from pathlib import Path
from statistics import stdev
from typing import Any

import pytest
from compared_runs import evaluated_run

from edgefl.config.file import load
from edgefl.errors import UserError
from edgefl.plugins.artifact import contents
from edgefl.plugins.artifact.contents import Contents, Study, of_runs, tolerance

STRATEGIES = {"strategies": [{"strategy": "fedavg"}, {"strategy": "fedasync"}]}


def as_run_of(label: str, run: Path) -> None:
    """Make a run of ``evaluated_run`` one of another strategy of its experiment."""
    config = run / "config.toml"
    text = config.read_text().replace('[run]\nstrategy = "fedavg"', f'[run]\nstrategy = "{label}"')
    config.write_text(text)


@pytest.fixture
def compared(tmp_path: Path) -> Path:
    """Two strategies with three seeds; one run of fedasync does not reach the target of 0.8."""
    curves = {
        "fedavg": [[0.1, 0.5, 0.8, 0.9], [0.1, 0.8, 0.9, 0.9], [0.1, 0.5, 0.8, 0.85]],
        "fedasync": [[0.1, 0.85, 0.9, 0.9], [0.1, 0.8, 0.9, 0.95], [0.1, 0.5, 0.7, 0.75]],
    }
    for label, of_seeds in curves.items():
        for seed, accuracies in enumerate(of_seeds, 1):
            run = tmp_path / "study" / label / f"seed{seed}"
            evaluated_run(run, seed, accuracies, config=STRATEGIES)
            as_run_of(label, run)
    return tmp_path / "study"


def texts(contents: Contents) -> list[str]:
    return [claim["text"] for claim in contents.claims]


def test_each_strategy_claims_its_score_time_and_bytes_over_the_seeds(compared: Path) -> None:
    found = of_runs([compared])
    (study,) = found.studies
    assert (study.labels, study.seeds, study.clock) == (
        ["fedavg", "fedasync"],
        [1, 2, 3],
        "virtual",
    )
    assert texts(found) == [
        "fedavg: accuracy over the last tenth of the run",
        "fedavg: time to accuracy 0.8",
        "fedavg: sent in both directions",
        "fedasync: accuracy over the last tenth of the run",
        "fedasync: runs that reach accuracy 0.8, of 3",
        "fedasync: sent in both directions",
    ]
    time = found.claims[1]
    assert time["expected"] == pytest.approx(5 / 3) and time["values"] == [2.0, 1.0, 2.0]
    assert time["interval"][0] < 5 / 3 < time["interval"][1] and time["exact"]
    assert time["run"] == f"{study.name}/fedavg" and time["hours"] == pytest.approx(3 / 3600)
    assert (found.claims[4]["expected"], found.claims[4]["tolerance"]) == (2.0, 1.0)
    assert [claim["id"] for claim in found.claims] == ["C1", "C2", "C3", "C4", "C5", "C6"]


def test_a_baseline_adds_what_the_others_gain_over_it(compared: Path) -> None:
    two = [compared / label / f"seed{seed}" for label in ("fedavg", "fedasync") for seed in (1, 2)]
    found = of_runs(two, "fedavg")
    assert texts(found)[-2:] == [
        "fedasync: gain in accuracy over fedavg",
        "fedasync: times as fast to the target as fedavg",
    ]
    assert found.claims[-1]["expected"] == pytest.approx(math.sqrt(2.0))
    assert found.claims[-2]["expected"] == pytest.approx(0.05)
    # of a single seed the tolerances of both runs add up
    gain, faster = of_runs([two[0], two[2]], "fedavg").claims[-2:]
    assert gain["tolerance"] == pytest.approx(0.1 * (0.8 + 0.9))  # accuracies
    assert faster["tolerance"] == pytest.approx(2 * 0.1 * faster["expected"])
    assert texts(of_runs([compared], "fedavg"))[-1] == "fedasync: gain in accuracy over fedavg"
    with pytest.raises(UserError, match="--baseline fedav: there is no such .*nearest: 'fedavg'"):
        of_runs([compared], "fedav")


def test_an_artifact_has_the_chosen_strategies_and_seeds_alone(compared: Path) -> None:
    (study,) = of_runs([compared / "fedasync" / "seed2"]).studies
    assert (study.labels, study.seeds, study.config["seed"]) == (["fedasync"], [2], 2)


def test_two_experiments_of_one_name_get_two_folders(compared: Path, tmp_path: Path) -> None:
    other = evaluated_run(tmp_path / "other", 1, [0.1, 0.9], config={"edges": {"count": 7}})
    names = [study.name for study in of_runs([compared, other]).studies]
    assert names == ["run", "run-2"]


def test_the_tolerance_is_two_standard_errors_of_a_difference_of_means() -> None:
    values = [4.0, 5.0, 7.0]
    assert tolerance(values) == pytest.approx(2 * stdev(values) * math.sqrt(2 / 3))
    assert tolerance([5.0]) == tolerance([-5.0]) == pytest.approx(0.5)  # a metric may be negative
    assert tolerance([5.0, 5.0]) == pytest.approx(0.05)


def test_unfinished_runs_are_named(compared: Path) -> None:
    (compared / "fedavg" / "seed2" / "summary.json").unlink()
    with pytest.raises(UserError, match="^fedavg seed 2: expected runs that came to their end"):
        of_runs([compared])
    (compared / "fedavg" / "seed1" / "config.toml").unlink()
    with pytest.raises(UserError, match="no config.toml that can be read"):
        of_runs([compared / "fedavg" / "seed1"])
    with pytest.raises(UserError, match="no such directory"):
        of_runs([compared / "nothing"])


def test_a_strained_run_is_a_warning(tmp_path: Path) -> None:
    verdict = {"verdict": "strained", "reasons": ["too slow"]}
    run = evaluated_run(tmp_path / "a", 1, [0.1, 0.9], clock="wall", fidelity=verdict)
    assert of_runs([run]).warnings == ("strained, so its times are doubtful: a",)


# ---------------------------------------------------------------------- the trial
def tried(tmp_path: Path, whole_s: float, **more: Any) -> tuple[float, list[str]]:
    """Try two strategies; the slowest device, for which fedavg waits, needs five seconds.

    Returns the emulated seconds of ``kick.toml``, and what was said.
    """
    config = {
        "data": {"name": "digits"},
        "edges": {"count": 3},
        "devices": {"samples_per_s": 1000.0, "slowest_ratio": 10.0},
        "stop": {"emulated_s": whole_s},
        **STRATEGIES,
        **more,
    }
    said: list[str] = []
    study = Study("mine", config, {}, None)
    (tmp_path / "experiments" / "mine").mkdir(parents=True)
    contents._tried(study, tmp_path, tmp_path / "data", tmp_path / "out", 1, said.append)
    kick = load(tmp_path / "experiments" / "mine" / "kick.toml")
    return kick.stop.emulated_s or 0.0, said


@pytest.mark.slow
@pytest.mark.processes
def test_a_trial_lasts_until_each_strategy_has_made_a_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contents, "UNKNOWN_SHARE", 0.2)
    seconds, said = tried(tmp_path / "long", 10.0)
    assert seconds == 8.0 and len(said) == 2, said
    with pytest.raises(UserError) as refused:
        tried(tmp_path / "short", 2.0)
    assert str(refused.value) == (
        "mine: no new model of fedavg in the first 2 emulated s, and kick-the-tires.sh needs one:"
        " give the runs of the other strategies alone"
    )


@pytest.mark.processes
def test_an_experiment_that_cannot_run_says_why_in_place_of_its_warnings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failed(words: list[str], **more: Any) -> subprocess.CompletedProcess[str]:
        said = "edgefl: no.csv: no such file\nedgefl: warning: speed is ignored\n"
        return subprocess.CompletedProcess(words, 2, "", said)

    monkeypatch.setattr(subprocess, "run", failed)
    with pytest.raises(UserError, match="does not run in the artifact: no.csv: no such file "):
        tried(tmp_path, 10.0)
