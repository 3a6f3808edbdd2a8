"""The command line: the commands, and errors of the user in one line.

A command's module is imported when the command is used, not for the list of the commands.
"""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from difflib import get_close_matches
from functools import cache
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from edgefl import __version__, entry_points
from edgefl.clocks.ctrl_c import ended_like_ctrl_c
from edgefl.entry_points import entries
from edgefl.errors import UNREADABLE, Bug, UserError, nearest, printable, told, users_place
from edgefl.exit_status import BAD_INPUT, FAILED, INTERRUPTED, OVER
from emulator.errors import NO_ROOM, BadValue, flush_or_give_up

# panel of `edgefl --help` -> name -> where it is, None: in a plug-in; in the order of the help
PANELS: dict[str, dict[str, str | None]] = {
    "Main": {
        "run": "edgefl.commands.run:run",
        "check": "edgefl.commands.check:check",
        "compare": "edgefl.commands.look:compare",
        "sweep": None,
        "configs": "edgefl.commands.lists:configs",
        "new": "edgefl.commands.new:new",
        "doctor": "edgefl.commands.doctor:doctor",
    },
    "Look at runs": {
        "view": None,
        "plot": "edgefl.commands.look:plot",
        "report": None,
        "artifact": None,
        "export": None,
    },
    "What a config can name": {
        "strategies": "edgefl.commands.lists:strategies",
        "selections": "edgefl.commands.lists:selections",
        "models": "edgefl.commands.lists:models",
        "datasets": "edgefl.commands.lists:datasets",
        "partitions": "edgefl.commands.lists:partitions",
        "compressions": "edgefl.commands.lists:compressions",
    },
    "Many machines": {
        "hosts": None,
        "launch": None,
        "coordinator": "edgefl.commands.run:coordinator",
        "edge": "edgefl.commands.edge:edge",
        "keys": "edgefl.commands.edge:app",
    },
    "Advanced": {
        "data": "edgefl.commands.data:app",
        "replay": "edgefl.commands.look:replay",
        "profile": None,
        "jobs": "edgefl.commands.check:jobs",
        "schema": "edgefl.commands.lists:schema",
    },
}
OTHERS = "Of other packages"  # the panel of commands that are not listed above
COMMANDS = {name: place for commands in PANELS.values() for name, place in commands.items()}
PANEL_OF = {name: panel for panel, commands in PANELS.items() for name in commands}
GROUP = "edgefl.commands"  # of the entry points of other commands: a function, or a typer.Typer
LIVE = "--live"
NO_TEMPORARY = "No usable temporary directory"  # of tempfile: no folder that it knows takes a file
APP = "app"  # what a module calls its group of commands
DOCSTRING = re.compile(r'\) -> None:\n    """(.+?)(?:\n\n|""")', re.DOTALL)  # first paragraph


def command_names() -> list[str]:
    """Return the names of all commands, those of plug-ins too, in the order of the help."""
    added = entries(GROUP)
    core = [name for name, place in COMMANDS.items() if place is not None or name in added]
    return [*core, *sorted(added.keys() - COMMANDS)]


class Command(TyperCommand):
    """A command. Its --live, if it has that option, may stand without a value."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if any(LIVE in each.opts for each in self.params):
            args = [*with_value(args)]
        return super().parse_args(ctx, args)


def with_value(args: Sequence[str]) -> Iterator[str]:
    """Give a bare --live an empty value, unless a port follows it."""
    for word, following in zip(args, [*args[1:], ""]):
        yield f"{LIVE}=" if word == LIVE and not following.isdecimal() else word


class Commands(TyperGroup):
    """All commands. Its help and completion import none of them.

    Prints a line after Ctrl-C, which Typer does not.
    """

    _loads = True

    def list_commands(self, ctx: Any) -> list[str]:
        return command_names()

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        place = COMMANDS.get(cmd_name)
        if place is None:
            names: Any = dict.fromkeys(command_names())
            self.commands = names  # typer looks for a near one in these
            if cmd_name not in names:
                return None
        if self._loads:
            return loaded(cmd_name)
        try:
            panel = PANEL_OF.get(cmd_name, OTHERS)
            text = first_paragraph(cmd_name)
            return TyperCommand(name=cmd_name, help=text, rich_help_panel=panel)
        except UserError as error:  # a plug-in that cannot be loaded
            print(f"edgefl: warning: {error}", file=sys.stderr)
            return None

    def format_help(self, ctx: Any, formatter: Any) -> None:
        self._loads = False
        super().format_help(ctx, formatter)

    def shell_complete(self, ctx: Any, incomplete: str) -> Any:
        self._loads = False
        return super().shell_complete(ctx, incomplete)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and COMMANDS.get(args[0], "") is None and args[0] not in entries(GROUP):
            raise UserError(f"{args[0]}: the plug-in for it is not installed")
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            print("edgefl: interrupted", file=sys.stderr)
            raise typer.Exit(INTERRUPTED) from None


@cache
def loaded(name: str) -> Any:
    """Import the command ``name``, or the group of commands. UserError if a plug-in fails."""
    place = COMMANDS.get(name)
    if place is None:
        found = entry_points.loaded(entries(GROUP)[name])
    else:
        module, _, attribute = place.partition(":")
        found = getattr(importlib.import_module(module), attribute)
    if isinstance(found, typer.Typer):
        group = typer.main.get_command(found)
        group.name = name
        return group
    alone = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    alone.command(name, cls=Command)(found)
    return typer.main.get_command(alone)


def first_paragraph(name: str) -> str:
    """Return the first paragraph of a command's help, without importing the command if possible.

    The help of a group of commands is that of its callback. Parsing all files would take as long
    as everything else that `edgefl --help` does; so this searches in their text. A command of
    another package that is written in another form is imported.
    """
    place = COMMANDS.get(name) or entries(GROUP)[name].value
    attribute = place.partition(":")[2]
    begin = f"@{APP}.callback()\ndef " if attribute == APP else f"\ndef {attribute}("
    try:
        text = DOCSTRING.search(entry_points.source(place).partition(begin)[2])
    except Exception:  # the packages of a plug-in fail; the line about it is that of ``loaded``
        text = None
    return text[1] if text is not None else (loaded(name).help or "").partition("\n\n")[0]


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
        flush_or_give_up()
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
    if hasattr(error.__cause__, "errors"):  # pydantic's, in newer versions of typer
        from edgefl.config.section import found, in_words

        detail = error.__cause__.errors(include_url=False)[0]
        head = message.partition(": ")[0]
        return f"{head}: {in_words(detail)}, found {found(detail['input'])}"
    return message


def _unknown_option(error: Any, option: str, words: Sequence[str], message: str) -> str:
    command = error.ctx.info_name
    said = f"No such option: {option}"
    if (command, option) in INSTEAD:
        return f"{said} ({INSTEAD[command, option]})"
    from edgefl.config.keys import meant  # it imports every key of a config

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
    found = []
    for name in sorted(above.command.list_commands(above)):
        with suppress(UserError):  # a plug-in that cannot be loaded
            if any(option in each.opts for each in above.command.get_command(above, name).params):
                found.append(f"{above.command_path} {name}")
    return found


def _near(given: str, valid: Sequence[str]) -> str:
    close = get_close_matches(given.lower(), valid, n=1)
    return nearest(close[0], close) if close else ""


if __name__ == "__main__":
    main()
