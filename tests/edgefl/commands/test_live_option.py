from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from edgefl.cli import app
from edgefl.commands.live_option import port_of, with_value
from edgefl.errors import UserError


@pytest.mark.parametrize(
    ("given", "read"),
    [
        (["x.toml", "--live"], ["x.toml", "--live="]),
        (["--live", "x.toml"], ["--live=", "x.toml"]),
        (["--live", "8050", "x.toml"], ["--live", "8050", "x.toml"]),
        (["--live", "0"], ["--live", "0"]),
        (["--live=8050", "x.toml"], ["--live=8050", "x.toml"]),
        (["x.toml", "--live", "seed=3"], ["x.toml", "--live=", "seed=3"]),
        (["x.toml", "--live", "--force"], ["x.toml", "--live=", "--force"]),
        ([], []),
    ],
)
def test_live_may_stand_without_a_port(given: list[str], read: list[str]) -> None:
    assert list(with_value(given)) == read


@pytest.mark.parametrize(("text", "port"), [("", None), ("0", 0), ("8050", 8050), ("65535", 65535)])
def test_a_port(text: str, port: int | None) -> None:
    assert port_of(text, "--live") == port


@pytest.mark.parametrize("text", ["65536", "-1", "abc", "80.5", "٣", "1" * 20])
def test_anything_else_is_no_port(text: str) -> None:
    with pytest.raises(UserError, match=r"^--port .*: expected a port, 0 to 65535 \(0: any free"):
        port_of(text, "--port")


@pytest.mark.parametrize("command", ["run", "coordinator", "launch"])
def test_the_option_is_in_the_help(command: str) -> None:
    told = CliRunner().invoke(app, [command, "--help"], env={"COLUMNS": "200", "NO_COLOR": "1"})
    assert told.exit_code == 0 and "--live" in told.output and "[PORT]" in told.output


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["view", "nowhere/at/all"], "nowhere/at/all: no such directory"),
        pytest.param(
            ["run", "configs/quickstart.toml", "--live=x"],
            "--live x: expected a port, 0 to 65535",
            marks=pytest.mark.processes,
        ),
    ],
    ids=["no run", "no port"],
)
def test_bad_input_is_one_line(words: list[str], line: str, tmp_path: Path) -> None:
    words = [*words, "--out", str(tmp_path / "out")] if words[0] == "run" else words
    told = CliRunner().invoke(app, words)
    assert isinstance(told.exception, UserError) and line in str(told.exception)
    assert not (tmp_path / "out").exists()
