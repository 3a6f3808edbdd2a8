"""The command line: registers the commands and reports errors of the user in one line."""

from __future__ import annotations

import errno
import os
import sys
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from edgefl import __version__
from edgefl.commands.lazy_commands import LazyCommands, LazyGroup
from edgefl.errors import UNREADABLE, Bug, UserError, printable, told, users_place
from edgefl.exit_status import BAD_INPUT, FAILED, INTERRUPTED, OVER
from edgefl.hosts.ctrl_c import ended_like_ctrl_c
from emulator.errors import BadValue

COMMANDS = {  # name -> where it is; `edgefl --help` lists them in this order
    "run": "edgefl.commands.run:run",
    "sweep": "edgefl.commands.sweep:sweep",
    "check": "edgefl.commands.check:check",
    "coordinator": "edgefl.commands.run:coordinator",
    "edge": "edgefl.commands.edge:edge",
    "launch": "edgefl.commands.launch:launch",
    "compare": "edgefl.commands.compare_runs:compare",
    "plot": "edgefl.commands.plot:plot",
    "view": "edgefl.commands.view:view",
    "report": "edgefl.commands.report:report",
    "export": "edgefl.commands.export:export",
    "replay": "edgefl.commands.results:replay",
    "profile": "edgefl.commands.profile:profile",
    "jobs": "edgefl.commands.jobs:jobs",
    "configs": "edgefl.commands.configs:configs",
    "new": "edgefl.commands.new:new",
    "strategies": "edgefl.commands.list:strategies",
    "models": "edgefl.commands.list:models",
    "datasets": "edgefl.commands.list:datasets",
    "data": "edgefl.commands.data:app",
    "keys": "edgefl.commands.keys:app",
    "hosts": "edgefl.commands.hosts:app",
}
WITH_LIVE_PAGE = ("run", "coordinator", "launch")
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
NO_TEMPORARY = "No usable temporary directory"  # of tempfile: no folder that it knows takes a file


class Commands(LazyGroup):
    """Prints a line after Ctrl-C, which Typer does not."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings | {"commands": {}})
        self.commands = LazyCommands(COMMANDS, _class_of)

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            print("edgefl: interrupted", file=sys.stderr)
            raise typer.Exit(INTERRUPTED) from None


def _class_of(command: str) -> type[TyperCommand] | None:
    if command not in WITH_LIVE_PAGE:
        return None
    from edgefl.commands.live_option import LiveCommand

    return LiveCommand


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
        from edgefl.commands.option_errors import explained  # it imports every key of a config

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


if __name__ == "__main__":
    main()
