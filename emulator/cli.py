"""The command ``emulator``: links, slots and devices, in a shell."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from emulator.capacity.constant import Constant
from emulator.commands import kernel
from emulator.commands.calibrate import calibrate
from emulator.commands.profiles import profiles
from emulator.commands.proxy import proxy
from emulator.commands.tdma import tdma
from emulator.delay.latency import Latency
from emulator.errors import BadValue
from emulator.links.link import Link
from emulator.links.network import Network, Transfer
from emulator.units import FOREVER, parse_duration, parse_rate, parse_size, seconds_text

app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
app.command(epilog="Example: emulator calibrate --command './train.py --epochs 1' --samples 2000")(
    calibrate
)
app.add_typer(kernel.app, name="kernel")
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


@app.callback(epilog="Example: emulator transfer 0.25MB --rate 2mbit --latency 30ms")
def emulator() -> None:
    """Links, TDMA slots and devices, emulated: in closed form, in front of any TCP program, or
    by the Linux kernel.
    """


@app.command(epilog="Example: emulator transfer 0.25MB --rate 2mbit --latency 30ms")
def transfer(
    size: Annotated[
        str, typer.Argument(help="Bytes to carry, such as 0.25MB or 256KiB.", metavar="SIZE")
    ],
    rate: Annotated[str, typer.Option(help="Rate of the link, such as 2mbit or 500kbit.")],
    latency: Annotated[str, typer.Option(help="One-way delay, such as 30ms.")] = "0ms",
) -> None:
    """When the first and the last byte arrive over a link."""
    size_bytes, rate_bit_s, delay_ns = parse_size(size), parse_rate(rate), parse_duration(latency)
    network = Network()
    network.add_link("edge", "up", Link(Constant(rate_bit_s), Latency(delay_ns)))
    whole = Transfer(number=0, edge="edge", direction="up", size=size_bytes, kind="file")
    network.offer(whole, now=0)
    typer.echo(f"{size_bytes} bytes at {rate_bit_s} bit/s, {seconds_text(delay_ns)} s away")
    typer.echo(f"first byte  {_moment(network.due_at(whole, min(1, size_bytes)))}")
    typer.echo(f"last byte   {_moment(network.due_at(whole, size_bytes))}")
    typer.echo(
        f"Next: ten times as fast: emulator transfer {size} --rate {10 * rate_bit_s}bit --latency"
        f" {latency}"
    )


def _moment(ns: int) -> str:
    return f"{seconds_text(ns):>16} s" if ns < FOREVER else "never (not within 292 years)"


def run(args: list[str]) -> int:
    """Carry out one command line and return its exit status; bad input is one line on stderr and
    status 2.
    """
    try:
        return app(args or ["--help"], prog_name="emulator", standalone_mode=False) or 0
    except BadValue as error:
        message = str(error)
    except typer.TyperException as error:
        context = getattr(error, "ctx", None)
        message = (
            f"{' '.join(error.format_message().split()).rstrip('.')} (see:"
            f" {context.command_path if context else 'emulator'} --help)"
        )
    except typer.Abort:
        return 130
    print(f"emulator: {message}", file=sys.stderr)
    return 2


def main() -> None:
    """Entry point of the command."""
    sys.exit(run(sys.argv[1:]))
