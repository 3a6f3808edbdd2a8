"""The lock on an experiment's folder, and what happens to earlier runs in it."""

from __future__ import annotations

from pathlib import Path

import pytest
from broken_off import begin_folder
from builders import experiment, layout, vector

from edgefl.errors import UserError
from edgefl.hosts.setup.plan import fidelity
from edgefl.hosts.setup.resumption import RunFolder
from edgefl.hosts.setup.rundir import OpenRun


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


def test_a_resumption_leaves_all_where_it_is(tmp_path: Path) -> None:
    folder = tmp_path / "quick"
    begin_folder(folder, experiment())
    begun(folder / "fedavg", ends=False)
    there = files(folder)
    claim = RunFolder(folder, "other", resume=True)
    claim.claim()
    assert claim.begin() == [] == claim.undo()
    claim.release()
    assert files(folder) == there and (folder / "experiment.toml").read_text() != "other"


@pytest.mark.parametrize(
    "name", ["comparison.csv", "sweep.toml", "fedavg/summary.json", "fedavg/seed1/metrics.csv"]
)
def test_what_runs_leave_is_moved_aside(tmp_path: Path, name: str) -> None:
    path = tmp_path / "quick" / name
    path.parent.mkdir(parents=True)
    path.touch()
    assert len(claimed(tmp_path / "quick")) == 1 and not path.exists()
    assert (tmp_path / "quick.1" / name).exists()


def test_a_folder_without_results_stays_where_it_is(tmp_path: Path) -> None:
    folder = tmp_path / "quick"
    begun(folder / "fedavg", ends=False)
    (folder / "fedavg" / "events.jsonl").write_bytes(b"")
    (folder / "fedavg" / "metrics.csv").unlink()
    (folder / "notes.md").touch()
    assert claimed(folder) == [], "it broke off before anything happened"
    assert files(folder) == {"notes.md"}


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
