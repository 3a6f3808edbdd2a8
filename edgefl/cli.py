"""The command line: the commands, and errors of the user in one line.

A command's module is imported when the command is used, not for the list of the commands.
"""

from __future__ import annotations

import errno
import importlib
import importlib.util
import os
import re
import sys
from collections.abc import Sequence
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from edgefl import __version__
from edgefl.clocks.ctrl_c import ended_like_ctrl_c
from edgefl.errors import UNREADABLE, Bug, UserError, nearest, printable, told, users_place
from edgefl.exit_status import BAD_INPUT, FAILED, INTERRUPTED, OVER
from emulator.errors import BadValue

COMMANDS = {  # name -> where it is; `edgefl --help` lists them in this order
    "run": "edgefl.commands.run:run",
    "sweep": "edgefl.commands.sweep:sweep",
    "check": "edgefl.commands.check:check",
    "coordinator": "edgefl.commands.run:coordinator",
    "edge": "edgefl.commands.edge:edge",
    "launch": "edgefl.commands.launch:launch",
    "compare": "edgefl.commands.look:compare",
    "plot": "edgefl.commands.look:plot",
    "view": "edgefl.commands.look:view",
    "report": "edgefl.commands.look:report",
    "export": "edgefl.commands.look:export",
    "replay": "edgefl.commands.look:replay",
    "profile": "edgefl.commands.check:profile",
    "jobs": "edgefl.commands.check:jobs",
    "configs": "edgefl.commands.lists:configs",
    "new": "edgefl.commands.lists:new",
    "strategies": "edgefl.commands.lists:strategies",
    "models": "edgefl.commands.lists:models",
    "datasets": "edgefl.commands.lists:datasets",
    "data": "edgefl.commands.data:app",
    "keys": "edgefl.commands.edge:app",
    "hosts": "edgefl.commands.hosts:app",
}
WITH_LIVE_PAGE = ("run", "coordinator", "launch")
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
NO_TEMPORARY = "No usable temporary directory"  # of tempfile: no folder that it knows takes a file


APP = "app"  # what a module calls its group of commands
DOCSTRING = re.compile(r'\) -> None:\n    """(.+?)(?:\n\n|""")', re.DOTALL)  # first paragraph


class Commands(TyperGroup):
    """All commands. Its help and completion import none of them.

    Prints a line after Ctrl-C, which Typer does not.
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings | {"commands": dict.fromkeys(COMMANDS)})
        self._loads = True

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in COMMANDS:
            return None
        if self._loads:
            return loaded(cmd_name)
        return TyperCommand(name=cmd_name, help=first_paragraph(COMMANDS[cmd_name]))

    def format_help(self, ctx: Any, formatter: Any) -> None:
        self._loads = False
        super().format_help(ctx, formatter)

    def shell_complete(self, ctx: Any, incomplete: str) -> Any:
        self._loads = False
        return super().shell_complete(ctx, incomplete)

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            print("edgefl: interrupted", file=sys.stderr)
            raise typer.Exit(INTERRUPTED) from None


@cache
def loaded(name: str) -> Any:
    """Import the command ``name``, or the group of commands."""
    module, _, attribute = COMMANDS[name].partition(":")
    found = getattr(importlib.import_module(module), attribute)
    if attribute == APP:
        group = typer.main.get_command(found)
        group.name = name
        return group
    cls: type[TyperCommand] | None = None
    if name in WITH_LIVE_PAGE:
        from edgefl.commands.run import LiveCommand

        cls = LiveCommand
    alone = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    alone.command(name, cls=cls)(found)
    return typer.main.get_command(alone)


def first_paragraph(place: str) -> str:
    """Return the first paragraph of the help of the command at ``place``, without importing it.

    The help of a group of commands is that of its callback. Parsing all files would take as long
    as everything else that `edgefl --help` does; so this searches in their text.
    """
    module, _, attribute = place.partition(":")
    spec = importlib.util.find_spec(module)
    assert spec is not None and spec.origin is not None  # a module of this package
    begin = f"@{APP}.callback()\ndef " if attribute == APP else f"\ndef {attribute}("
    source = Path(spec.origin).read_text(encoding="utf-8").partition(begin)[2]
    found = DOCSTRING.search(source)
    if found is None:
        raise LookupError(place)
    return found[1]


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"edgefl {__version__}")
        raise typer.Exit


app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


@app.callback()
def edgefl(
    version: Annotated[
        bool,
        typer.Option("--version", help="Print the version.", is_eager=True, callback=_version),
    ] = False,
) -> None:
    """Federated learning, measured on the wall clock over a real network."""


def main() -> None:
    """Run the command in sys.argv.

    Bad input: one line on stderr, exit status 2 or what the error says. A bug: all that is known,
    exit status 1.
    """
    try:
        with ended_like_ctrl_c():
            status = app(args=sys.argv[1:] or ["--help"], prog_name="edgefl", standalone_mode=False)
    except typer.Abort:
        sys.exit(INTERRUPTED)
    except (UserError, BadValue) as error:
        _refuse(str(error), getattr(error, "status", BAD_INPUT))
    except OSError as error:
        if error.errno in UNREADABLE and error.filename is not None:
            _refuse(f"{error.filename}: cannot be read or written ({error.strerror})")
        if error.errno not in NO_ROOM and NO_TEMPORARY not in str(error):
            raise
        _flush_or_give_up()
        printed = "a result, or what is printed,"
        what = error.filename or ("a temporary file" if NO_TEMPORARY in str(error) else printed)
        _refuse(f"{what} cannot be written ({error.strerror})")
    except SystemExit as error:
        place = users_place(error)
        if not place:
            raise
        _refuse(f"the run has ended itself: {told(error)}{place}", FAILED)
    except Bug as bug:
        print(f"{bug.tell()}\nedgefl: {bug.blame()}", file=sys.stderr)
        sys.exit(FAILED)
    except Exception as error:
        if not hasattr(
            error, "format_message"
        ):  # of click's errors, for bad words on the command line; typer does not export the class
            raise
        _refuse(explained(error, sys.argv[1:]))
    sys.exit(status if isinstance(status, int) else OVER)


def _flush_or_give_up() -> None:
    """Redirect stdout to /dev/null if it accepts nothing, so that Python's exit does not fail."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _refuse(message: str, status: int = BAD_INPUT) -> None:
    if message:  # empty if a group of commands without a command has printed its help
        print(f"edgefl: {printable(' '.join(message.split()))}", file=sys.stderr)
    sys.exit(status)


VIRTUAL = "a coordinator is always on the wall clock; use edgefl run CONFIG --clock virtual"
INSTEAD = {  # (command, option) -> what to write
    ("run", "--virtual"): "say --clock virtual",
    ("run", "--wall"): "say --clock wall",
    ("run", "--keys"): "keys are for edges elsewhere: edgefl coordinator CONFIG --keys DIR",
    ("run", "--continue"): "say --resume DIR",
    ("run", "--restart"): "say --resume DIR",
    ("coordinator", "--continue"): "say --resume DIR",
    ("launch", "--continue"): "say --resume DIR",
    ("sweep", "--resume"): "give the same command again: finished runs are skipped",
    ("sweep", "--clock"): "a sweep uses the virtual clock",
    ("sweep", "--seed"): "say --grid seed=1,2,3",
    ("sweep", "--seeds"): "say --grid seed=1,2,3",
    ("coordinator", "--virtual"): VIRTUAL,
    ("coordinator", "--clock"): VIRTUAL,
    ("edge", "--name"): "say --id NAME",
    ("edge", "--edge"): "say --id NAME",
    ("edge", "--host"): "say --connect tcp://HOST:PORT",
    ("edge", "--port"): "say --connect tcp://HOST:PORT",
    ("edge", "--address"): "say --connect tcp://HOST:PORT",
    ("edge", "--dir"): "say --data DIR",
}
CHOICE = re.compile(r"(?:Value error, )?'(.*)' is not one of (.*?)\.?")


def explained(error: Any, words: Sequence[str]) -> str:
    """Return the message for ``error`` of typer; ``words``: the command line."""
    message = " ".join(error.format_message().split())
    option = getattr(error, "option_name", None)
    if option is not None and getattr(error, "ctx", None) is not None:
        return _unknown_option(error, str(option), words, message)
    choice = CHOICE.fullmatch(getattr(error, "message", ""))
    if choice is not None:
        given, valid = choice[1], re.findall(r"'([^']*)'", choice[2])
        head = message.partition(": ")[0]
        return f"{head}: expected one of {', '.join(valid)}, found {given!r}{_near(given, valid)}"
    return message


def _unknown_option(error: Any, option: str, words: Sequence[str], message: str) -> str:
    command = error.ctx.info_name
    said = f"No such option: {option}"
    if (command, option) in INSTEAD:
        return f"{said} ({INSTEAD[command, option]})"
    from edgefl.config.errors import meant  # it imports every key of a config

    options = [name for each in error.ctx.command.params for name in each.opts if name[:1] == "-"]
    close = get_close_matches(option, options, n=1, cutoff=0.8)
    if close:
        return f"{said}{nearest(close[0], close)}"
    takes_settings = any(each.name == "overrides" for each in error.ctx.command.params)
    key = meant(option) if takes_settings else None
    if key is not None:
        return f"{said} (say {key}={_value(option, words)}: settings are KEY=VALUE)"
    others = _commands_with(option, error.ctx)
    return f"{said} (an option of: {', '.join(others)})" if others else message


def _value(option: str, words: Sequence[str]) -> str:
    """Return the value after the option on the command line."""
    for word, following in zip(words, [*words[1:], ""]):
        if word.startswith(f"{option}="):
            return word.partition("=")[2]
        if word == option and following and not following.startswith("-"):
            return following
    return "VALUE"


def _commands_with(option: str, context: Any) -> list[str]:
    """Return the other commands that have this option."""
    above = context.parent
    if above is None:  # an option before the command
        return []
    return [
        f"{above.command_path} {name}"
        for name in sorted(above.command.list_commands(above))
        if any(option in each.opts for each in above.command.get_command(above, name).params)
    ]


def _near(given: str, valid: Sequence[str]) -> str:
    close = get_close_matches(given.lower(), valid, n=1)
    return nearest(close[0], close) if close else ""


if __name__ == "__main__":
    main()
