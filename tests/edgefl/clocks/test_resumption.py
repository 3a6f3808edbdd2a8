"""What a folder says about a resumption: the stage of each run, and every reason against it."""

from __future__ import annotations

import subprocess
from pathlib import Path
from shutil import which
from typing import Any

import pytest
from broken_off import begin_folder, begin_run
from builders import experiment, layout, vector

from edgefl.clocks.choices import COORDINATOR, WALL
from edgefl.clocks.setup.network import with_patterns
from edgefl.clocks.setup.plan import fidelity
from edgefl.clocks.setup.resumption import (
    Origin,
    RunFolder,
    RunStage,
    check_data,
    differences,
    git_commit,
    read_resumption,
    run_stage,
)
from edgefl.clocks.setup.rundir import OpenRun
from edgefl.config.experiment import Experiment
from edgefl.errors import UserError
from edgefl_testbed import NAME

TWO = [{"strategy": "fedavg"}, {"strategy": "fedasync"}]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return Path("runs") / "quick"


def of_seed(given: Experiment, seed: int) -> Experiment:
    return given.model_copy(update={"seed": seed})


def stages(path: Path) -> dict[str, str]:
    return {run.name: run.stage.value for run in read_resumption(path).runs}


def test_a_run_with_the_times_of_a_file_is_of_the_config_with_that_file(folder: Path) -> None:
    """That is the config of a run with edges on other machines. The draw is that of its seed."""
    base = folder.parent
    base.mkdir()
    (base / "phones.csv").write_text("".join(f"phone{n},{n},{n + 2}\n" for n in range(5)))
    where = {"kind": "file", "file": "phones.csv", "draw": True, "scale": 0.5}
    edges = {"names": ["a", "b", "c"], "availability": where}
    given = experiment(seeds=[3, 4], edges=edges, stop={"emulated_s": 9.0, "versions": 5})
    begin_folder(folder, given)
    begin_run(folder, with_patterns(of_seed(given, 3), base), 0, finished="versions")
    begin_run(folder, with_patterns(of_seed(given, 4), base), 0)
    assert stages(folder) == {"fedavg seed 3": "finished", "fedavg seed 4": "broken off"}
    begin_run(folder, with_patterns(of_seed(given, 5), base).model_copy(update={"seed": 4}), 0)
    with pytest.raises(UserError, match="is of another config than .*patterns"):
        read_resumption(folder)


# ---------------------------------------------------------------------- which runs are left
def test_a_run_is_finished_broken_off_or_not_begun(folder: Path) -> None:
    given = experiment(strategies=TWO, seeds=[3, 4])
    begin_folder(folder, given)
    begin_run(folder, of_seed(given, 3), 0, finished="versions")
    begin_run(folder, of_seed(given, 3), 1)
    found = read_resumption(folder)
    assert [(run.name, run.seed, run.index, run.stage) for run in found.runs] == [
        ("fedavg seed 3", 3, 0, RunStage.finished),
        ("fedasync seed 3", 3, 1, RunStage.broken_off),
        ("fedavg seed 4", 4, 0, RunStage.not_begun),
        ("fedasync seed 4", 4, 1, RunStage.not_begun),
    ]
    assert found.told() == (
        "resuming runs/quick: going on with fedasync seed 3; finished before: fedavg seed 3; still"
        " to run: fedavg seed 4, fedasync seed 4"
    )
    assert found.experiment == found.asked == given


def test_other_code_than_that_which_began_a_run_is_told(folder: Path) -> None:
    given = experiment()
    begin_folder(folder, given)
    begin_run(folder, given, facts={"git_commit": "0087f57c0ffe"})
    told = read_resumption(folder).told()
    if git_commit() == "unknown":  # the sources are in no checkout
        assert "commit" not in told
    else:
        assert f"begun by commit 0087f57c0ffe, this is {git_commit()}: expected the same" in told
    begin_run(folder, given, facts={"git_commit": "0087f57c0ffe"}, finished="versions")
    assert "commit" not in read_resumption(folder).told()  # all is done


@pytest.mark.skipif(which("git") is None, reason="git is not installed")
def test_the_commit_is_marked_if_the_code_was_changed_and_not_its_results(tmp_path: Path) -> None:
    def git(*words: str) -> str:
        who = ["-c", "user.name=a", "-c", "user.email=a@b.c"]
        return subprocess.run(
            ["git", *who, *words], cwd=tmp_path, check=True, capture_output=True, text=True
        ).stdout

    code = tmp_path / "edgefl"
    code.mkdir()
    for file in (code / "a.py", tmp_path / "results.csv"):
        file.write_text("1")
    (tmp_path / "pyproject.toml").write_text(f'[project]\nname = "{NAME}"\n')
    git("init", "-q")
    git("add", ".")
    git("commit", "-q", "-m", "one")
    commit = git("rev-parse", "HEAD")[:12]
    (tmp_path / "results.csv").write_text("2")
    assert git_commit(code) == commit
    (code / "b.py").write_text("2")
    assert git_commit(code) == f"{commit}+"
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "other"\n')
    assert git_commit(code) == "unknown"


@pytest.mark.parametrize(
    ("finished", "expected"),
    [
        ("versions", RunStage.finished),
        ("emulated_s", RunStage.finished),
        ("interrupted", RunStage.broken_off),
        ("launcher gone", RunStage.broken_off),
        ("no edge left", RunStage.broken_off),
        ("", RunStage.broken_off),
    ],
)
def test_ctrl_c_and_lost_processes_break_a_run_off(
    folder: Path, finished: str, expected: RunStage
) -> None:
    assert run_stage(begin_run(folder, experiment(), finished=finished)) is expected


def test_the_chosen_speed_and_a_port_that_edges_know_stay(folder: Path) -> None:
    auto = experiment(speed="auto")
    begin_folder(folder, auto, Origin(COORDINATOR, WALL, folder.parent))
    begin_run(folder, auto.model_copy(update={"speed": 0.25}), facts={"port": 7123})
    found = read_resumption(folder)
    assert (found.experiment.speed, found.experiment.network.port) == (0.25, 7123)
    assert found.speed_auto and found.asked.speed == "auto"


# ---------------------------------------------------------------------- what is no run
def refused(path: Path | str) -> str:
    with pytest.raises(UserError) as caught:
        read_resumption(Path(path))
    return str(caught.value)


def test_a_folder_that_is_no_run_names_the_nearest(folder: Path) -> None:
    begin_folder(folder, experiment())
    begin_folder(folder.with_name("other"), experiment())
    (folder.parent / "empty").mkdir()
    Path("file.txt").touch()
    near = "(nearest: runs/quick)"
    assert refused("runs/quik") == f"--resume runs/quik: no such directory {near}"
    assert refused("quik") == f"--resume quik: no such directory {near}"
    kind = "expected the directory of an experiment, such as runs/NAME, or of one of its runs"
    assert refused("runs").startswith(f"--resume runs: is no run: {kind} (there: ")
    assert refused("runs/empty").startswith(f"--resume runs/empty: is no run: {kind} (there: ")
    assert refused("file.txt").startswith("--resume file.txt: is no directory (there: ")


@pytest.mark.parametrize("text", ["", "[run", "name = 1", "[run]\ncommand = 'run'"])
def test_a_damaged_experiment_file_is_one_line(folder: Path, text: str) -> None:
    begin_folder(folder, experiment())
    (folder / "experiment.toml").write_text(text)
    assert refused(folder).startswith("runs/quick/experiment.toml: is damaged (")


@pytest.mark.parametrize("text", [None, "[run"])
def test_a_run_that_has_lost_its_config_is_not_begun_anew(folder: Path, text: str | None) -> None:
    begin_folder(folder, experiment())
    run = begin_run(folder, experiment())
    if text is None:
        (run / "config.toml").unlink()
    else:
        (run / "config.toml").write_text(text)
    said = "is missing or damaged, but the run has begun: bring the file back, or remove"
    assert refused(folder) == f"{run / 'config.toml'}: {said} {run}, and it runs anew"


# ---------------------------------------------------------------------- what has changed
def test_another_version_of_edgefl_is_named(folder: Path) -> None:
    origin = Origin("run", WALL, folder.parent, edgefl="0.0.9")
    begin_folder(folder, experiment(), origin)
    assert "was begun by edgefl 0.0.9, and this is edgefl" in refused(folder)


def test_a_run_of_another_config_says_what_differs(folder: Path) -> None:
    begin_folder(folder, experiment(training={"epochs": 2}))
    begin_run(folder, experiment(seed=9, speed=0.5))
    assert refused(folder) == (
        "runs/quick/fedavg/config.toml: is of another config than experiment.toml above it:"
        " training.epochs is 2, the run has 1"
    )


def test_changed_and_missing_code_is_named(folder: Path) -> None:
    own = Path("mine.py")
    own.write_text("from edgefl.strategies.fedasync import FedAsync as Mine\n")
    given = experiment(strategies=[{"strategy": "mine.py:Mine"}])
    begin_folder(folder, given, Origin("run", WALL, Path()))
    assert stages(folder) == {"mine": "not begun"}
    own.write_text(f"{own.read_text()}# another\n")
    assert "mine.py has changed" in refused(folder)
    own.unlink()
    assert "mine.py" in refused(folder)  # the check of names comes first


def test_other_data_are_refused(folder: Path) -> None:
    run = begin_run(folder, experiment(), facts={"data_digest": "aa11"})
    check_data(run, "aa11")
    with pytest.raises(UserError, match=r"fedavg: the data have changed .* aa11, now bb22"):
        check_data(run, "bb22")


def test_a_folder_that_a_command_writes_to_is_left_alone(folder: Path) -> None:
    begin_folder(folder, experiment())
    live = RunFolder(folder, resume=True)
    live.claim()
    assert "runs/quick: another run writes to it" in refused(folder)
    live.release()
    assert stages(folder) == {"fedavg": "not begun"}


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, []),
        ({"seeds": [1, 2]}, ["seeds is [1, 2], the run has not given"]),
        ({"strategies": TWO}, ["strategies[1].strategy is fedasync, the run has not given"]),
        ({"training": {"momentum": 0.5}}, ["training.momentum is 0.5, the run has 0.0"]),
    ],
)
def test_differences_name_the_key_and_both_values(change: Any, expected: list[str]) -> None:
    now, then = (
        given.model_dump(exclude_none=True) for given in (experiment(**change), experiment())
    )
    assert differences(now, then) == expected


# ---------------------------------------------------------------------- experiment.toml


# ------------------------------------------------------------------ the lock on an experiment's fo
def begun(directory: Path, ends: bool, reason: str = "interrupted") -> None:
    given = experiment()
    run = OpenRun(given, 0, directory, None, vector(0, 0, 0), layout())
    run.begin("virtual", fidelity(given))
    run.record.fact(0, {"fact": "edge_waits"})
    run.record.flush()
    if ends:
        run.coordinator.finish(reason, 0)
        run.end("virtual", 0, 0.0, fidelity(given).summary())


def claimed(folder: Path, overwrite: bool = False) -> list[str]:
    """What the user reads when a new run begins in ``folder``, which is then empty again."""
    claim = RunFolder(folder, overwrite=overwrite)
    claim.claim()
    folder.mkdir(exist_ok=True)
    told = claim.begin()
    claim.release()
    folder.mkdir(exist_ok=True)
    return told


def files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("within", ["", "seed3"])
def test_what_has_not_ended_is_moved_aside_whole(
    tmp_path: Path, within: str, overwrite: bool
) -> None:
    """It moves with finished strategies, logs and all other files."""
    folder = tmp_path / "quick"
    for number in (1, 2, 3):
        begun(folder / "fedavg", ends=True)
        begun(folder / "fedasync" / within, ends=False)
        (folder / "edges.log").write_text("e001: died")
        there = files(folder)
        (told,) = claimed(folder, overwrite)
        aside = tmp_path / f"quick.{number}"
        assert told == f"{folder} held an unfinished run: moved to {aside}"
        assert files(aside) == there and not list(folder.iterdir())


def test_the_message_says_how_to_go_on_with_it(tmp_path: Path) -> None:
    folder = tmp_path / "quick"
    begin_folder(folder, experiment())
    begun(folder / "fedavg", ends=False)
    (told,) = claimed(folder)
    aside = tmp_path / "quick.1"
    assert told.endswith(f"moved to {aside}; to go on with it: edgefl run --resume {aside}")


@pytest.mark.parametrize(
    "name", ["comparison.csv", "sweep.toml", "fedavg/summary.json", "fedavg/seed1/metrics.csv"]
)
def test_what_runs_leave_is_moved_aside(tmp_path: Path, name: str) -> None:
    path = tmp_path / "quick" / name
    path.parent.mkdir(parents=True)
    path.touch()
    assert len(claimed(tmp_path / "quick")) == 1 and not path.exists()
    assert (tmp_path / "quick.1" / name).exists()


def test_a_run_that_does_not_begin_leaves_all_as_it_was(tmp_path: Path) -> None:
    folder = tmp_path / "quick"
    begun(folder / "fedavg", ends=True)
    there = files(folder)
    claim = RunFolder(folder, "text")
    claim.claim()
    assert not list(folder.iterdir())
    assert claim.undo() == [] and files(folder) == there
    claim.release()
    assert [path.name for path in tmp_path.iterdir()] == ["quick"]


def test_a_config_in_the_folder_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "quick"
    begun(folder / "fedavg", ends=True, reason="versions")
    (folder / "code").mkdir()
    there = files(folder)
    with pytest.raises(UserError, match="is needed where it is: expected --overwrite, or another"):
        RunFolder(folder, base=folder / "code").claim()
    monkeypatch.chdir(folder)
    with pytest.raises(UserError, match="holds an earlier run, and is not moved aside"):
        RunFolder(folder).claim()
    assert files(folder) == there


def test_one_run_at_a_time(tmp_path: Path) -> None:
    folder = tmp_path / "runs" / "quick"
    first, second = RunFolder(folder), RunFolder(folder)
    first.refuse_if_in_use()
    first.claim()
    assert list(folder.iterdir()) == []
    begun(folder / "fedavg", ends=False)
    for attempt in (second.refuse_if_in_use, second.claim, second.lock):
        with pytest.raises(UserError, match=r"quick: another run writes to it; wait for its"):
            attempt()
    assert files(folder) and not (tmp_path / "runs" / "quick.1").exists(), "nothing was touched"
    first.release()
    second.refuse_if_in_use()
    second.claim()
    second.release()


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match=r"quick: cannot be made \(Not a directory\)"):
        RunFolder(tmp_path / "file" / "quick").claim()
