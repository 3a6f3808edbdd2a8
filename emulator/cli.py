"""The command ``emulator``: links, TDMA slots and devices on the command line."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from emulator.commands import kernel, lab, traces
from emulator.commands.calibrate import calibrate
from emulator.commands.profiles import profiles
from emulator.commands.proxy import proxy
from emulator.commands.tdma import tdma
from emulator.commands.transfer import transfer
from emulator.errors import NO_ROOM, BadValue, flush_or_give_up

app = typer.Typer(rich_markup_mode=None, pretty_exceptions_enable=False)
app.command(epilog="Example: emulator calibrate --command './train.py --epochs 1' --samples 2000")(
    calibrate
)
app.add_typer(kernel.app, name="kernel")
app.add_typer(lab.app, name="lab")
app.command(epilog="Example: emulator profiles lte")(profiles)
app.command(
    epilog=(
        "Example: emulator proxy --listen 127.0.0.1:9000 --to 127.0.0.1:8000 --up 2mbit --down"
        " 20mbit --latency 30ms"
    )
)(proxy)
app.command(
    epilog="Example: emulator tdma --N 20 --S 1 --r 1 --tau-comp 4 --T 100000 --delay auto"
)(tdma)
app.add_typer(traces.app, name="traces")
app.command(
    epilog=(
        "Examples: emulator transfer 0.25MB --rate 2mbit --latency 30ms; emulator transfer 0.25MB"
        " --trace drive.csv"
    )
)(transfer)


def _version(wanted: bool) -> None:
    if wanted:
        from edgefl_testbed import VERSION  # here: the library stands alone

        typer.echo(f"emulator {VERSION}")
        raise typer.Exit


@app.callback(epilog="Example: emulator transfer 0.25MB --rate 2mbit --latency 30ms")
def emulator(
    version: Annotated[
        bool,
        typer.Option("--version", help="Print the version.", is_eager=True, callback=_version),
    ] = False,
) -> None:
    """Emulate links, TDMA slots and devices.

    It works in closed form, in front of any TCP program, or with the Linux kernel.
    """


def run(args: list[str]) -> int:
    """Run one command line and return its exit status.

    Invalid input gives one line on stderr and status 2.
    """
    try:
        return app(args or ["--help"], prog_name="emulator", standalone_mode=False) or 0
    except BadValue as error:
        message = str(error)
    except typer.Abort:
        return 130
    except OSError as error:
        if error.errno not in NO_ROOM:
            raise
        flush_or_give_up()
        message = f"{error.filename or 'what is printed'}: cannot be written ({error.strerror})"
    except Exception as error:
        if not hasattr(error, "format_message"):  # of click; typer 0.20 has no name for its errors
            raise
        context = getattr(error, "ctx", None)
        message = (
            f"{' '.join(error.format_message().split()).rstrip('.')} (see:"
            f" {context.command_path if context else 'emulator'} --help)"
        )
    print(f"emulator: {message}", file=sys.stderr)
    return 2


def main() -> None:
    """Entry point of the command."""
    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
