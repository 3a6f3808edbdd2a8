"""Where a run may write, which old files it removes, and which commit it records."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from builders import experiment, layout, vector

from edgefl.clocks.setup.plan import fidelity
from edgefl.clocks.setup.resumption import clear
from edgefl.clocks.setup.rundir import OpenRun, RunSoFar
from edgefl.errors import UserError


def opened(directory: Path, payloads: bool = True) -> OpenRun:
    return OpenRun(
        experiment(record={"payloads": payloads}), 0, directory, None, vector(0, 0, 0), layout()
    )


def finished(directory: Path) -> None:
    """Write a complete run directory by hand."""
    run, given = opened(directory), experiment()
    run.begin("virtual", fidelity(given))
    run.coordinator.finish("interrupted", 0)
    run.end("virtual", 0, 0.0, fidelity(given).summary())


def files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


# ------------------------------------------------------------------ folders that cannot be written
@pytest.mark.parametrize(
    "name",
    [
        "events.jsonl",
        "links.csv",
        "metrics.csv",
        "summary.json",
        "model.safetensors",
        "journal/journal-000000.bin",
    ],
)
def test_a_file_that_cannot_be_written_is_one_line(tmp_path: Path, name: str) -> None:
    (tmp_path / name / "in the way").mkdir(parents=True)
    with pytest.raises(
        UserError,
        match=rf"{name}: cannot be written \(.*\); expected --out DIR that can be written$",
    ):
        opened(tmp_path)


def test_a_resumed_run_is_not_sent_to_another_directory(tmp_path: Path) -> None:
    (tmp_path / "events.jsonl" / "in the way").mkdir(parents=True)
    with pytest.raises(UserError, match=r"make it writable, for a run goes on in its own dir.*$"):
        OpenRun(
            experiment(),
            0,
            tmp_path,
            None,
            vector(0, 0, 0),
            layout(),
            done=RunSoFar({}, 0.0),
        )


# ------------------------------------------------------------------ earlier runs


def test_what_no_run_of_ours_has_written_stays(tmp_path: Path) -> None:
    """Keep other files in a run directory, directories of the same name and links elsewhere.

    A folder without any run is not touched.
    """
    finished(tmp_path / "out" / "fedavg")
    (tmp_path / "out" / "fedavg" / "notes.md").touch()
    (tmp_path / "out" / "fedprox").mkdir()
    (tmp_path / "out" / "fedprox" / "events.jsonl").write_text("[1, 2]\n")
    (tmp_path / "out" / "fedbuff").mkdir()
    (tmp_path / "out" / "fedbuff" / "summary.json").touch()
    finished(tmp_path / "elsewhere")
    elsewhere = files(tmp_path / "elsewhere")
    (tmp_path / "out" / "fedasync").symlink_to(tmp_path / "elsewhere", target_is_directory=True)
    assert clear(tmp_path / "out") == ["fedavg"]
    assert {name for name in files(tmp_path / "out") if "fedasync" not in name} == {
        "fedavg/notes.md",
        "fedprox/events.jsonl",
        "fedbuff/summary.json",
    }
    assert (tmp_path / "out" / "fedasync").is_symlink() and files(
        tmp_path / "elsewhere"
    ) == elsewhere
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "comparison.csv").touch()
    assert clear(tmp_path / "mine") == [] and files(tmp_path / "mine") == {"comparison.csv"}


# ------------------------------------------------------------------ the commit
def commit(top: Path) -> None:
    (top / "site-packages" / "edgefl").mkdir(parents=True)
    (top / "file").touch()
    who = ["-c", "user.name=n", "-c", "user.email=e@example.org"]
    for command in (["init", "-q"], ["add", "file"], [*who, "commit", "-q", "-m", "m"]):
        subprocess.run(["git", *command], cwd=top, check=True)
