"""``--resume`` with bad input: one line each, exit status 2, and nothing is started or changed."""

from __future__ import annotations

from pathlib import Path

import pytest
from broken_off import begin_folder, begin_run
from builders import experiment
from typer.testing import CliRunner

from edgefl import __version__
from edgefl.cli import app
from edgefl.clocks.choices import COORDINATOR, LAUNCH, RUN, VIRTUAL, WALL
from edgefl.clocks.setup.resumption import Origin, RunFolder
from edgefl.commands.running import go_on, go_on_of
from edgefl.config.experiment import Experiment
from edgefl.errors import UserError

TWO = [{"strategy": "fedavg"}, {"strategy": "fedasync"}]
INVENTORY = """
[[hosts]]
host = "here"
via = "local"
names = {names}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return Path("runs") / "run"


def broken_off(folder: Path, given: Experiment | None = None, origin: Origin | None = None) -> None:
    """The first run of the experiment is broken off."""
    given = given or experiment(strategies=TWO)
    begin_folder(folder, given, origin or Origin(RUN, WALL, Path()))
    begin_run(folder, given)


def files(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def refused(*words: str) -> str:
    """The error of the command, which changes no file."""
    before = files(Path())
    result = CliRunner().invoke(app, words)
    assert isinstance(result.exception, UserError), result.output
    assert files(Path()) == before
    return str(result.exception)


def test_a_folder_that_is_no_run(folder: Path) -> None:
    broken_off(folder)
    for command in ("run", "coordinator"):
        said = refused(command, "--resume", "runs/rum")
        assert said == "--resume runs/rum: no such directory (nearest: runs/run)"


def test_runs_of_another_command_name_the_right_one(folder: Path) -> None:
    broken_off(folder, origin=Origin(COORDINATOR, WALL, Path(), ("--insecure",)))
    assert refused("run", "--resume", "runs/run") == (
        "--resume runs/run: was begun by edgefl coordinator; resume it with: edgefl coordinator"
        " --resume runs/run --insecure"
    )
    broken_off(Path("runs/other"))
    assert refused("coordinator", "--resume", "runs/other").endswith(
        "was begun by edgefl run; resume it with: edgefl run --resume runs/other"
    )


@pytest.mark.parametrize(("clock", "other"), [(WALL, VIRTUAL), (VIRTUAL, WALL)])
def test_the_clock_cannot_change(folder: Path, clock: str, other: str) -> None:
    broken_off(folder, origin=Origin(RUN, clock, Path()))
    assert refused("run", "--resume", "runs/run", "--clock", other) == (
        f"--clock {other}: the runs in runs/run use the {clock} clock, and cannot change it; resume"
        " them with: edgefl run --resume runs/run"
    )


SEVEN = "stop.versions=7"


@pytest.mark.parametrize("words", [["run.toml"], ["run.toml", SEVEN], [SEVEN]])
def test_a_run_cannot_become_shorter(folder: Path, words: list[str]) -> None:
    Path("run.toml").write_text('stop = { versions = 7 }\n[[strategies]]\nstrategy = "fedavg"\n')
    given = experiment(strategies=[{"strategy": "fedavg"}], edges={"count": 10})
    broken_off(folder, given)
    assert refused("run", *words, "--resume", "runs/run") == (
        "stop.versions: a run can only be lengthened: expected more than 1000, found 7"
    )


@pytest.mark.parametrize("word", ["training.epochs=2", "seed=4", "name=other"])
def test_only_stop_keys_may_change(folder: Path, word: str) -> None:
    broken_off(folder)
    key, _, value = word.partition("=")
    for words in ([word, "stop.versions=2000"], ["stop.versions=2000", word]):
        said = refused("run", *words, "--resume", "runs/run")
        assert said.startswith(
            f"{word}: differs from the config of the runs in runs/run, of which only stop keys may"
            f" change: {key} is {value}, the run has "
        )


def test_the_same_config_is_no_reason_against_it(folder: Path) -> None:
    """It goes on to the next check."""
    Path("run.toml").write_text('stop = { versions = 9 }\n[[strategies]]\nstrategy = "fedavg"\n')
    given = experiment(edges={"count": 10}, stop={"versions": 9})
    begin_folder(folder, given, Origin(RUN, WALL, Path()))
    begin_run(folder, given, finished="versions")
    for words in ([], ["run.toml"], ["run.toml", "stop.versions=9"], ["stop.versions=9"]):
        assert refused("run", *words, "--out", "runs", "--resume", "runs/run") == (
            "--resume runs/run: nothing to resume: its runs are finished (edgefl compare runs/run)"
        )


def test_without_a_journal_a_broken_run_cannot_go_on(folder: Path) -> None:
    broken_off(folder, experiment(record={"durability": "off"}))
    assert refused("run", "--resume", "runs/run") == (
        "--resume runs/run: fedavg was broken off and kept no journal (record.durability = "
        '"off"): remove runs/run/fedavg, and it runs anew'
    )


def test_another_version_and_a_live_run_are_refused(folder: Path) -> None:
    broken_off(folder, origin=Origin(RUN, WALL, Path(), edgefl="9.9"))
    assert f"was begun by edgefl 9.9, and this is edgefl {__version__}" in refused(
        "run", "--resume", "runs/run"
    )
    broken_off(Path("runs/live"))
    live = RunFolder(Path("runs/live"))
    live.resume = True
    live.claim()
    assert "runs/live: another run writes to it" in refused("run", "--resume", "runs/live")
    live.release()


def test_keys_that_are_gone_are_asked_for(folder: Path) -> None:
    Path("keys").mkdir()
    broken_off(folder, origin=Origin(COORDINATOR, WALL, Path(), keys=Path("keys")))
    Path("keys").rmdir()
    assert "expected --keys DIR" in refused("coordinator", "--resume", "runs/run")


@pytest.mark.parametrize("command", ["coordinator", "launch"])
def test_without_resume_a_config_is_needed(folder: Path, command: str) -> None:
    Path("hosts.toml").write_text(INVENTORY.format(names=["a", "b", "c"]))
    words = ["hosts.toml"] if command == "launch" else []
    assert refused(command, *words).startswith("CONFIG: missing: an experiment file")


# ---------------------------------------------------------------------- launches
def launched(folder: Path, **facts: str) -> None:
    Path("hosts.toml").write_text(INVENTORY.format(names=["a", "b", "c"]))
    Path("hosts.keys").mkdir()
    origin = Origin(
        LAUNCH, WALL, Path(), inventory=Path("hosts.toml"), keys=Path("hosts.keys"), **facts
    )
    broken_off(folder, origin=origin)


def test_an_inventory_with_other_edges_is_refused(folder: Path) -> None:
    launched(folder)
    Path("other.toml").write_text(INVENTORY.format(names=["a", "b"]))
    said = refused("launch", "other.toml", "--resume", "runs/run")
    assert said.startswith("other.toml: no host has 'c' of the config's edges.names")


def test_an_inventory_with_other_links_is_refused(folder: Path) -> None:
    launched(folder)
    text = INVENTORY.format(names=["a", "b", "c"])
    Path("other.toml").write_text(f'{text}links = "native"\n')
    assert refused("launch", "other.toml", "--resume", "runs/run") == (
        "other.toml: gives a, b, c other links or devices than the run has: expected the inventory"
        " with which it began"
    )


def test_a_coordinator_elsewhere_is_not_resumed_from_here(folder: Path) -> None:
    launched(folder, place="pi-1 (/home/pi/.edgefl/results/run-1a2b)")
    assert "coordinator of this launch is on pi-1 (/home/pi/.edgefl/results/run-1a2b)" in refused(
        "launch", "hosts.toml", "--resume", "runs/run"
    )


def test_runs_of_this_machine_need_their_coordinator_here(folder: Path) -> None:
    launched(folder)
    text = '[coordinator]\nhost = "pi-1"\nvia = "ssh"\n'
    Path("other.toml").write_text(text + Path("hosts.toml").read_text())
    said = refused("launch", "other.toml", "--resume", "runs/run")
    assert "the coordinator is on pi-1" in said and "expected no [coordinator]" in said


# ---------------------------------------------------------------------- the hint
def test_the_hint_is_the_whole_command(folder: Path) -> None:
    given = experiment(strategies=TWO)
    broken_off(folder, given, Origin(RUN, WALL, Path(), ("--force",)))
    expected = "edgefl run --resume runs/run --force"
    assert go_on(folder, given) == expected == go_on_of(folder) == go_on_of(folder / "fedavg")
    shown = CliRunner().invoke(app, ["compare", "runs/run"])
    assert shown.output.splitlines()[-1] == f"next: {expected}"


def test_there_is_no_hint_without_anything_to_resume(folder: Path) -> None:
    given = experiment()
    assert go_on(folder, given) == go_on_of(folder) == ""
    begin_folder(folder, given, Origin(RUN, WALL, Path()))
    assert go_on(folder, given) == "", "not begun"
    begin_run(folder, given, finished="versions")
    assert go_on(folder, given) == "", "finished"
    off = experiment(record={"durability": "off"})
    broken_off(Path("runs/off"), off)
    assert go_on(Path("runs/off"), off) == ""


def test_a_live_run_has_no_hint(folder: Path) -> None:
    broken_off(folder)
    live = RunFolder(folder, resume=True)
    live.claim()
    assert go_on_of(folder) == ""
    live.release()
    assert go_on_of(folder) != ""
