"""``edgefl hosts check``: which hosts can do their part, and if not, why."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.filesize import decimal
from rich.table import Table
from rich.text import Text

from edgefl.commands import show
from edgefl.commands.configs import ConfigOrNone
from edgefl.commands.inventories import AcceptKeys, InventoryPath
from edgefl.errors import printable
from edgefl.exit_status import NOT_MET
from edgefl.results.forms import plain_table

if TYPE_CHECKING:
    from edgefl.config.experiment import Experiment
    from edgefl.launch.connections.opening import Ask
    from edgefl.launch.inventory import Inventory
    from edgefl.launch.survey import Demand, Survey

INSTALL = "`edgefl hosts install`"  # in a problem that this command solves
UNLIMITED = 1000  # columns
PIPE_WIDTH = 160  # columns of the table where nothing says how many there are
MACHINE = ("system", "cores", "memory", "disk", "Python", "edgefl", "torch")
NETWORK = ("clock", "RTT", "up", "down", "samples/s")
HEADINGS = ("host", *MACHINE, *NETWORK, "fits")
LEFT = ("host", "system", "fits")


def check(
    inventory: InventoryPath,
    config: ConfigOrNone = None,
    overrides: Annotated[
        list[str] | None,
        typer.Argument(metavar="[KEY=VALUE]...", help="Changes to the config, as for edgefl run."),
    ] = None,
    accept_new_host_keys: AcceptKeys = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print everything that was found out, as JSON.")
    ] = False,
) -> None:
    """Reach every host, measure it and its network, and say which ones do not fit.

    With a CONFIG, also whether the hosts are enough for their part of the experiment. Exit status
    3 if a host cannot be reached or does not fit.
    """
    from edgefl.launch.connections.opening import asker
    from edgefl.launch.inventory import load_inventory
    from edgefl.launch.placement import load_placed
    from edgefl.loading.file import base_of

    found = load_inventory(inventory)
    demands: dict[str, Demand] = {}
    if config is not None:
        placed = load_placed(found, config, overrides or ())
        demands = _demands(found, placed, base_of(config))
    surveys = asyncio.run(survey(found, demands, asker(accept_new_host_keys)))
    if as_json:
        print(json.dumps([each.to_json() for each in surveys], indent=2))
    else:
        print_tables(surveys)
        for each in surveys:
            for problem in each.problems:
                show.line(f"{each.host}: {problem}")
    if any(each.problems for each in surveys):
        if not as_json and any(INSTALL in each for one in surveys for each in one.problems):
            show.hint(f"edgefl hosts install {inventory}")
        raise typer.Exit(NOT_MET)
    if not as_json:
        show.hint(f"edgefl launch {inventory} {config or 'CONFIG'}")


def _demands(inventory: Inventory, placed: Experiment, base: Path | None) -> dict[str, Demand]:
    from edgefl.hosts.setup.learning import learning  # imports torch
    from edgefl.launch.survey import demand

    one = placed.by_seed()[0]
    size = learning(one, base).layout.size
    return {host.name: demand(host, one, size) for host in inventory.hosts}


async def survey(inventory: Inventory, demands: Mapping[str, Demand], ask: Ask) -> list[Survey]:
    """Find out about all hosts; that of the coordinator is one of them, unless it is this one."""
    from edgefl.launch.connections.connection import HostConnection
    from edgefl.launch.connections.opening import open_connections
    from edgefl.launch.survey import Surveyor

    found = await open_connections(inventory.all_hosts(), ask)
    try:
        if sys.stderr.isatty():
            print(f"edgefl: measuring {len(found)} hosts ...", file=sys.stderr, flush=True)
        return list((await Surveyor(inventory.coordinator, demands).run(found)).values())
    finally:
        opened = [each for each in found.values() if isinstance(each, HostConnection)]
        await asyncio.gather(*(each.close() for each in opened))


def print_tables(surveys: Sequence[Survey]) -> None:
    """Print a row per host; two tables where the terminal is too narrow for one."""
    console = Console()
    if not console.is_terminal:
        console = Console(width=PIPE_WIDTH)
    whole = table(surveys, HEADINGS)
    if console.measure(whole, options=Console(width=UNLIMITED).options).maximum <= console.width:
        console.print(whole)
    else:
        console.print(table(surveys, ("host", *MACHINE, "fits")))
        console.print()
        console.print(table(surveys, ("host", *NETWORK)))
    show.line(
        "clock: of the host, compared with this one; up, down: measured goodput, seen from the host"
    )


def table(surveys: Sequence[Survey], headings: Sequence[str]) -> Table:
    """A table with a row per host, and some of the columns."""
    shown = plain_table(gap=1)
    for heading in headings:
        left = heading in LEFT
        shown.add_column(heading, justify="left" if left else "right", no_wrap=heading != "system")
    for each in surveys:
        row = dict(zip(HEADINGS, cells(each)))
        shown.add_row(*(Text(printable(row[heading], 60)) for heading in headings))
    return shown


def cells(found: Survey) -> list[str]:
    """The texts of a row; "-" where nothing is known."""
    machine, clock, path = found.machine, found.clock, found.goodput
    fits = "no" if found.problems else "yes"
    if machine is None:
        reached = "no answer" if found.reachable else "not reached"
        return [found.host, reached, *["-"] * (len(HEADINGS) - 3), fits]
    return [
        found.host,
        f"{machine.board or machine.name}, {machine.machine}",
        str(machine.cores),
        "-" if machine.memory_bytes is None else decimal(machine.memory_bytes),
        decimal(machine.free_bytes),
        ".".join(map(str, machine.python)),
        machine.edgefl or "-",
        machine.torch or "-",
        "-" if clock is None else clock_text(clock.offset_ns, clock.uncertainty_ns),
        "-" if clock is None else f"{clock.rtt_ns / 1e6:.2f} ms",
        "-" if path is None else rate_text(path.up_bit_s),
        "-" if path is None else rate_text(path.down_bit_s),
        "-" if found.samples_per_s is None else f"{found.samples_per_s:.0f}",
        fits,
    ]


def clock_text(offset_ns: int, uncertainty_ns: int) -> str:
    """Format an offset in s if it is large, else in ms."""
    if abs(offset_ns) >= 10**9:
        return f"{offset_ns / 1e9:+.1f} s"
    return f"{offset_ns / 1e6:+.2f}±{uncertainty_ns / 1e6:.2f} ms"


def rate_text(rate_bit_s: float) -> str:
    """Format a rate with three digits and its unit."""
    mbit_s = rate_bit_s / 1e6
    return f"{mbit_s / 1000:.3g} Gbit/s" if mbit_s >= 1000 else f"{mbit_s:.3g} Mbit/s"
