"""Standard features of a command line: a version, and completion."""

from __future__ import annotations

import pytest
from typer import Typer
from typer.testing import CliRunner

from edgefl import __version__
from edgefl.cli import app
from emulator.cli import app as emulator_app


@pytest.mark.parametrize(("program", "name"), [(app, "edgefl"), (emulator_app, "emulator")])
def test_the_version(program: Typer, name: str) -> None:
    told = CliRunner().invoke(program, ["--version"])
    assert (told.exit_code, told.output.strip()) == (0, f"{name} {__version__}")


@pytest.mark.parametrize(
    ("program", "name", "begun", "whole"),
    [(app, "edgefl", "strat", "strategies"), (emulator_app, "emulator", "cali", "calibrate")],
)
def test_the_shell_can_complete_a_command(
    program: Typer, name: str, begun: str, whole: str
) -> None:
    asked = {
        f"_{name.upper()}_COMPLETE": "complete_bash",
        "COMP_WORDS": f"{name} {begun}",
        "COMP_CWORD": "1",
    }
    told = CliRunner().invoke(program, [], prog_name=name, env=asked)
    assert told.output.split() == [whole]
