"""`edgefl --help` and completion import no command; a command imports only what it needs."""

from __future__ import annotations

import subprocess
import sys
from inspect import cleandoc

import pytest
from paths import ROOT
from typer.core import TyperCommand

from edgefl.cli import COMMANDS, WITH_LIVE_PAGE, Commands
from edgefl.commands.lazy_commands import LazyCommands, LazyGroup, first_paragraph

# Each of these takes longer to import than Typer and rich together.
HEAVY = {"numpy", "orjson", "psutil", "pydantic", "matplotlib", "sklearn", "torch", "zmq"}
IMPORTED = """
import sys
from edgefl import cli
sys.argv = ["edgefl", *{words}]
try:
    cli.main()
except SystemExit as ended:
    assert not ended.code, ended.code
print(*sys.modules)
"""


def imported(*words: str, **environment: str) -> set[str]:
    """The modules that a process of ``edgefl WORDS`` has imported."""
    done = subprocess.run(
        [sys.executable, "-c", IMPORTED.format(words=words)],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
        env=environment or None,
    )
    return set(done.stdout.splitlines()[-1].split())


@pytest.mark.processes
def test_help_imports_no_command_and_nothing_heavy() -> None:
    modules = imported("--help")
    assert modules & HEAVY == set()
    ours = {name for name in modules if name.startswith(("edgefl.commands.", "emulator."))}
    assert ours == {"edgefl.commands.lazy_commands", "emulator.errors"}


@pytest.mark.processes
def test_a_listing_imports_no_other_command() -> None:
    modules = imported("models")
    assert "edgefl.commands.list" in modules and modules & (HEAVY - {"pydantic"}) == set()
    assert not modules & {"edgefl.commands.run", "edgefl.config.experiment"}


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_that_is_listed_is_that_of_the_command(name: str) -> None:
    whole = LazyCommands(COMMANDS, lambda name: None)[name]
    listed = cleandoc(first_paragraph(COMMANDS[name]))
    assert listed == (whole.help or "").partition("\n\n")[0] and whole.name == name


def test_only_commands_that_serve_a_page_take_a_bare_live() -> None:
    made = Commands(name="edgefl").commands
    with_live = {
        name
        for name in COMMANDS
        if any("--live" in each.opts for each in getattr(made[name], "params", ()))
    }
    assert with_live == set(WITH_LIVE_PAGE)
    assert {name for name in COMMANDS if type(made[name]).__name__ == "LiveCommand"} == with_live


def test_lazy_commands_are_a_mapping() -> None:
    commands = LazyCommands({"models": "edgefl.commands.list:models"}, lambda name: None)
    assert "models" in commands and "strategies" not in commands
    assert commands.get("strategies") is None and commands["models"] is commands["models"]
    commands["own"] = own = TyperCommand(name="own")
    assert list(commands) == ["models", "own"] and commands["own"] is own and len(commands) == 2
    del commands["models"]
    assert [*commands.items()] == [("own", own)]


def test_a_place_without_such_a_command_is_an_error() -> None:
    with pytest.raises(LookupError, match="list:modls"):
        first_paragraph("edgefl.commands.list:modls")


def test_after_its_help_a_group_has_its_commands_again() -> None:
    group = LazyGroup(name="edgefl")
    group.commands = LazyCommands({"models": "edgefl.commands.list:models"}, lambda name: None)
    with group._only_listed():
        assert isinstance(group.commands, dict) and group.commands["models"].callback is None
    assert group.commands["models"].callback is not None
