"""``edgefl new``: its files work without changes, and it overwrites nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from paths import ROOT
from typer.testing import CliRunner

from edgefl.cli import app
from edgefl.commands.new import NewKind, new
from edgefl.errors import UserError


@pytest.mark.processes
def test_the_tests_that_it_writes_pass(tmp_path: Path) -> None:
    for kind in NewKind:
        told = CliRunner().invoke(app, ["new", kind, f"my-{kind}", "--in", str(tmp_path)])
        assert told.exit_code == 0 and f"pytest test_my_{kind}.py" in told.output
        assert told.output.splitlines()[-1].startswith("next: cd ")
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    assert run.returncode == 0 and "5 passed" in run.stdout, run.stdout + run.stderr


def test_a_file_that_is_there_stays(tmp_path: Path) -> None:
    (tmp_path / "test_mine.py").write_text("precious")
    with pytest.raises(UserError, match="test_mine.py: already exists"):
        new(NewKind.model, "mine", tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["test_mine.py"]


@pytest.mark.parametrize("name", ["9lives", "My", "a b", "../up", ""])
def test_a_name_that_python_could_not_import_is_one_line(name: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="expected lower-case letters"):
        new(NewKind.data, name, tmp_path)
