"""The command line: registers the commands and reports errors of the user in one line."""

from __future__ import annotations

import errno
import os
import sys
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from edgefl.commands import (
    check,
    compare_runs,
    configs,
    data,
    edge,
    export,
    hosts,
    jobs,
    keys,
    launch,
    new,
    plot,
    profile,
    report,
    results,
    run,
    show,
    sweep,
    view,
)
from edgefl.commands import list as listings
from edgefl.commands.live_option import LiveCommand
from edgefl.commands.option_errors import explained
from edgefl.errors import Bug, UserError, printable
from edgefl.exit_status import BAD_INPUT, FAILED, INTERRUPTED, OVER
from edgefl.hosts.processes import ended_like_ctrl_c
from emulator.errors import BadValue

NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
NO_TEMPORARY = "No usable temporary directory"  # of tempfile: no folder that it knows takes a file


class Commands(TyperGroup):
    """Prints a line after Ctrl-C, which Typer does not."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            print("edgefl: interrupted", file=sys.stderr)
            raise typer.Exit(INTERRUPTED) from None


app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


@app.callback()
def edgefl(
    version: Annotated[
        bool,
        typer.Option("--version", help="Print the version.", is_eager=True, callback=show.version),
    ] = False,
) -> None:
    """Federated learning, measured on the wall clock over a real network."""


app.command(cls=LiveCommand)(run.run)
app.command()(sweep.sweep)
app.command()(check.check)
app.command(cls=LiveCommand)(run.coordinator)
app.command()(edge.edge)
app.command(cls=LiveCommand)(launch.launch)
app.command()(compare_runs.compare)
app.command()(plot.plot)
app.command()(view.view)
app.command()(report.report)
app.command()(export.export)
app.command()(results.replay)
app.command()(profile.profile)
app.command()(jobs.jobs)
app.command()(configs.configs)
app.command()(new.new)
app.command()(listings.strategies)
app.command()(listings.models)
app.command()(listings.datasets)
app.add_typer(data.app, name="data")
app.add_typer(keys.app, name="keys")
app.add_typer(hosts.app, name="hosts")


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
        if error.errno not in NO_ROOM and NO_TEMPORARY not in str(error):
            raise
        _flush_or_give_up()
        printed = "a result, or what is printed,"
        what = error.filename or ("a temporary file" if NO_TEMPORARY in str(error) else printed)
        _refuse(f"{what} cannot be written ({error.strerror})")
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


if __name__ == "__main__":
    main()
