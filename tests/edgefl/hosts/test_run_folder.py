"""The lock on an experiment's folder, and what happens to an unfinished run."""

from __future__ import annotations

from pathlib import Path

import pytest
from broken_off import begin_folder
from builders import experiment, layout, vector

from edgefl.errors import UserError
from edgefl.hosts.setup.plan import fidelity
from edgefl.hosts.setup.run_folder import RunFolder
from edgefl.hosts.setup.rundir import OpenRun, clear


def begun(directory: Path, ends: bool) -> None:
    given = experiment()
    run = OpenRun(given, 0, directory, None, vector(0, 0, 0), layout())
    run.begin("virtual", fidelity(given))
    run.record.fact(0, {"fact": "edge_waits"})
    run.record.flush()
    if ends:
        run.coordinator.finish("interrupted", 0)
        run.end("virtual", 0, 0.0, fidelity(given).summary())


def claimed(folder: Path, *names: str) -> list[str]:
    claim = RunFolder(folder, names)
    told = claim.claim()
    claim.release()
    return told


def files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("within", ["", "seed3"])
def test_what_has_not_ended_is_moved_aside_whole(tmp_path: Path, within: str) -> None:
    """It moves with finished strategies, logs and all other files."""
    folder = tmp_path / "quick"
    for number in (1, 2, 3):
        begun(folder / "fedavg", ends=True)
        begun(folder / "fedasync" / within, ends=False)
        (folder / "edges.log").write_text("e001: died")
        there = files(folder)
        (told,) = claimed(folder, "fedavg", "fedasync")
        aside = tmp_path / f"quick.{number}"
        assert told == f"{folder} held an unfinished run: moved to {aside}"
        assert files(aside) == there and not list(folder.iterdir())


def test_the_message_says_how_to_go_on_with_it(tmp_path: Path) -> None:
    folder = tmp_path / "quick"
    begin_folder(folder, experiment())
    begun(folder / "fedavg", ends=False)
    (told,) = claimed(folder, "fedavg")
    aside = tmp_path / "quick.1"
    assert told.endswith(f"moved to {aside}; to go on with it: edgefl run --resume {aside}")


def test_a_resumption_leaves_all_where_it_is(tmp_path: Path) -> None:
    folder = tmp_path / "quick"
    begin_folder(folder, experiment())
    begun(folder / "fedavg", ends=False)
    there = files(folder)
    claim = RunFolder(folder, ["fedavg"], "other", resume=True)
    assert claim.claim() == []
    claim.begin()
    claim.undo()
    claim.release()
    assert files(folder) == there and (folder / "experiment.toml").read_text() != "other"


def test_a_new_run_in_an_emptied_folder_keeps_the_lock(tmp_path: Path) -> None:
    folder = tmp_path / "quick"
    begun(folder / "fedavg", ends=True)
    claim = RunFolder(folder, ["fedavg"], "text")
    claim.claim()
    clear(folder, ["fedavg"])
    claim.begin()
    assert (folder / "experiment.toml").read_text() == "text"
    with pytest.raises(UserError, match="another run writes to it"):
        RunFolder(folder, ["fedavg"]).refuse_if_in_use()
    claim.release()


def test_what_has_ended_stays_for_the_rule_of_old(tmp_path: Path) -> None:
    begun(tmp_path / "quick" / "fedavg", ends=True)
    assert claimed(tmp_path / "quick", "fedavg") == []
    assert clear(tmp_path / "quick", ["fedavg"]) == [] and not list(tmp_path.iterdir())


def test_only_runs_of_the_experiment_that_have_begun_count(tmp_path: Path) -> None:
    folder = tmp_path / "quick"
    begun(folder / "fedavg", ends=False)
    assert claimed(folder, "fedprox") == [], "another strategy's: left, as ever"
    (folder / "fedavg" / "events.jsonl").write_bytes(b"")
    assert claimed(folder, "fedavg") == [], "it broke off before anything happened"
    (folder / "fedavg" / "events.jsonl").write_text("[1]\n")
    assert claimed(folder, "fedavg") == [], "no run of ours"


def test_a_link_to_another_disk_stays(tmp_path: Path) -> None:
    begun(tmp_path / "disk" / "here" / "fedavg", ends=False)
    (tmp_path / "quick").symlink_to(tmp_path / "disk" / "here", target_is_directory=True)
    (told,) = claimed(tmp_path / "quick", "fedavg")
    assert told.endswith(f"moved to {tmp_path / 'disk' / 'here.1'}")
    assert (tmp_path / "quick").is_symlink() and not list((tmp_path / "quick").iterdir())


def test_one_run_at_a_time(tmp_path: Path) -> None:
    folder = tmp_path / "runs" / "quick"
    first, second = RunFolder(folder, ["fedavg"]), RunFolder(folder, ["fedbuff"])
    first.refuse_if_in_use()
    assert first.claim() == [] == list(folder.iterdir())
    begun(folder / "fedavg", ends=False)
    for attempt in (second.refuse_if_in_use, second.claim, RunFolder(folder, ["fedavg"]).claim):
        with pytest.raises(UserError, match=r"quick: another run writes to it; wait for its"):
            attempt()
    assert files(folder) and not (tmp_path / "runs" / "quick.1").exists(), "nothing was touched"
    first.release()
    second.refuse_if_in_use()
    assert second.claim() == []


def test_folders_made_for_nothing_go_again(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    for folder in (tmp_path / "runs" / "quick", tmp_path / "mine" / "quick"):
        claim = RunFolder(folder, ["fedavg"])
        claim.claim()
        claim.undo()
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]
    kept = RunFolder(tmp_path / "runs" / "quick", ["fedavg"])
    kept.claim()
    (tmp_path / "runs" / "quick" / "edges.log").touch()
    kept.undo()
    assert (tmp_path / "runs" / "quick" / "edges.log").exists()


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match=r"quick: cannot be made \(Not a directory\)"):
        RunFolder(tmp_path / "file" / "quick", ["fedavg"]).claim()
