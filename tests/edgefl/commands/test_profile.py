"""``edgefl profile``: what it prints, and its errors in one line."""

from __future__ import annotations

from pathlib import Path

import pytest
from native_runs import write_run
from typer.testing import CliRunner

from edgefl.cli import app
from edgefl.commands.profile import profile
from edgefl.errors import UserError
from edgefl.profile.repeat import Match


def test_it_prints_a_table_and_the_next_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = write_run(tmp_path / "runs" / "pis" / "fedavg", slower=2.0)
    monkeypatch.chdir(tmp_path)
    told = CliRunner().invoke(app, ["profile", str(run), "--match", "rate"])
    assert told.exit_code == 0, told.output
    rows = {words[0]: words[1:] for line in told.stdout.splitlines() if (words := line.split())}
    assert rows["pi-1"][:5] == ["0.5", "1", "20.00", "-", "320"]
    assert rows["pi-2"][:5] == ["0.25", "0.5", "20.00", "-", "160"]
    assert told.stdout.splitlines()[-2:] == [
        "wrote pis-repeat/pis-repeat.toml",
        "next: edgefl run pis-repeat/pis-repeat.toml --clock virtual",
    ]
    assert (tmp_path / "pis-repeat" / "pis-repeat.toml").is_file()


def test_only_rates_of_the_wire_leave_something_to_warn_about(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = write_run(tmp_path / "pis" / "fedavg")
    profile(run, tmp_path / "rate", Match.rate)
    assert "pi-1 37 %" in (warning := capsys.readouterr().err) and "--match time" in warning
    profile(run, tmp_path / "time", Match.time)
    assert capsys.readouterr().err == ""


def test_a_device_whose_speed_varied_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = write_run(tmp_path / "pis" / "fedavg", edges=("pi-1",))
    with (run / "measured.csv").open("a") as rows:
        rows.writelines(f"training,pi-1,9,50,{50 + seconds},640\n" for seconds in (4, 8, 8))
    profile(run, tmp_path / "out")
    assert "which one number cannot hold: pi-1 (80 to 320 samples/s)" in capsys.readouterr().err


def test_it_writes_nothing_if_the_run_is_not_one(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no such directory"):
        profile(tmp_path / "missing", tmp_path / "out")
    run = write_run(tmp_path / "pis" / "fedavg", links="emulated", devices="emulated")
    with pytest.raises(UserError, match="emulated, so nothing was measured"):
        profile(run, tmp_path / "out")
    assert not (tmp_path / "out").exists()
