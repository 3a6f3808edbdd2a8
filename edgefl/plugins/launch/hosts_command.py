"""``edgefl hosts``: the hosts of an inventory.

``check``: which hosts can do their part, and if not, why. ``install`` and ``wheels``: edgefl on the
hosts.
"""

from __future__ import annotations

import asyncio
import json
import platform
import re
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.filesize import decimal
from rich.table import Table
from rich.text import Text

from edgefl.commands import show
from edgefl.commands.options import AcceptKeys, ConfigOrNone, InventoryPath, Overrides
from edgefl.config.file import base_of
from edgefl.errors import UserError, printable
from edgefl.exit_status import FAILED, NOT_MET
from edgefl.plugins.launch.connections import HostConnection, HostError
from edgefl.plugins.launch.host_data import DataSync
from edgefl.plugins.launch.installer import HostRow, Installer, hosts_progress, interpreter
from edgefl.plugins.launch.inventory import Host, Inventory, load_inventory
from edgefl.plugins.launch.launch_plan import load_placed
from edgefl.plugins.launch.opening import Ask, asker, open_connections
from edgefl.plugins.launch.survey import Demand, Survey, Surveyor, demand
from edgefl.plugins.launch.wheels import OwnWheel, Target, fetched, own_wheel
from edgefl.results.tables import plain_table
from edgefl_testbed import WHEELS

app = typer.Typer(no_args_is_help=True, help="The hosts of an inventory: what they are and need.")


@app.callback()
def hosts() -> None:
    """The hosts of an inventory: what they are and need."""


INSTALL = "`edgefl hosts install`"  # in a problem that this command solves
UNLIMITED = 1000  # columns
PIPE_WIDTH = 160  # columns of the table where nothing says how many there are
MACHINE = ("system", "cores", "memory", "disk", "Python", "edgefl", "torch")
NETWORK = ("clock", "RTT", "up", "down", "samples/s")
HEADINGS = ("host", *MACHINE, *NETWORK, "fits")
LEFT = ("host", "system", "fits")


@app.command()
def check(
    inventory: InventoryPath,
    config: ConfigOrNone = None,
    overrides: Overrides = None,
    accept_new_host_keys: AcceptKeys = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print everything that was found out, as JSON.")
    ] = False,
) -> None:
    """Reach every host, measure it and its network, and say which ones do not fit.

    With a CONFIG, also whether the hosts are enough for their part of the experiment. Exit status
    3 if a host cannot be reached or does not fit.
    """
    hosts = load_inventory(inventory)
    demands: dict[str, Demand] = {}
    if config is not None:
        from edgefl.clocks.setup.learning import learning  # imports torch

        one = load_placed(hosts, config, overrides or ()).by_seed()[0]
        size = learning(one, base_of(config)).layout.size
        demands = {host.name: demand(host, one, size) for host in hosts.hosts}
    surveys = asyncio.run(survey(hosts, demands, asker(accept_new_host_keys)))
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


async def survey(inventory: Inventory, demands: Mapping[str, Demand], ask: Ask) -> list[Survey]:
    """Find out about all hosts; that of the coordinator is one of them, unless it is this one."""
    opened = await open_connections(inventory.all_hosts(), ask)
    try:
        if sys.stderr.isatty():
            print(f"edgefl: measuring {len(opened)} hosts ...", file=sys.stderr, flush=True)
        return await Surveyor(inventory.coordinator, demands).run(opened)
    finally:
        connections = [each for each in opened.values() if isinstance(each, HostConnection)]
        await asyncio.gather(*(each.close() for each in connections))


def print_tables(surveys: Sequence[Survey]) -> None:
    """Print a row per host; two tables where the terminal is too narrow for one."""
    console = Console()
    if not console.is_terminal:
        console = Console(width=PIPE_WIDTH)
    one = table(surveys, HEADINGS)
    if console.measure(one, options=Console(width=UNLIMITED).options).maximum <= console.width:
        console.print(one)
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


def cells(survey: Survey) -> list[str]:
    """The texts of a row; "-" where nothing is known."""
    machine, clock, path = survey.machine, survey.clock, survey.goodput
    fits = "no" if survey.problems else "yes"
    if machine is None:
        reached = "no answer" if survey.reachable else "not reached"
        return [survey.host, reached, *["-"] * (len(HEADINGS) - 3), fits]
    return [
        survey.host,
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
        "-" if survey.samples_per_s is None else f"{survey.samples_per_s:.0f}",
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


FAILURE = "failed: "
PYTHON = r"3\.(\d+)"
OLDEST_MINOR = 11


class Platform(StrEnum):
    """Architectures for which all packages have wheels."""

    X86_64 = "x86_64"
    AARCH64 = "aarch64"


@app.command()
def install(
    inventory: InventoryPath,
    config: ConfigOrNone = None,
    wheels: Annotated[
        Path | None,
        typer.Option(
            "--wheels",
            metavar="DIR",
            help="Take all packages from this wheelhouse; the hosts need no internet.",
        ),
    ] = None,
    accept_new_host_keys: AcceptKeys = False,
) -> None:
    """Install this edgefl on all hosts, and with a CONFIG also send their shares of its data."""
    hosts = load_inventory(inventory)
    if wheels is not None and not any(wheels.glob("*.whl")):
        raise UserError(f"--wheels {wheels}: no wheels in it; `edgefl hosts wheels` gets them")
    data = None
    if config is not None:
        data = DataSync(load_placed(hosts, config), base_of(config))
        data.load()
    with tempfile.TemporaryDirectory(prefix="edgefl-wheel-") as scratch:
        own = own_wheel(Path(scratch) / "new")
        work = install_all(hosts.all_hosts(), own, wheels, data, asker(accept_new_host_keys))
        results = asyncio.run(work)
    show.rows(list(results.items()))
    if any(text.startswith(FAILURE) for text in results.values()):
        raise typer.Exit(FAILED)
    show.hint(f"edgefl hosts check {inventory}, or edgefl launch {inventory} CONFIG")


async def install_all(
    hosts: Sequence[Host], own: OwnWheel, wheels: Path | None, data: DataSync | None, ask: Ask
) -> dict[str, str]:
    """Install on all hosts at the same time, and send data; return what was done on each.

    A host that fails does not stop the others.
    """
    opened = await open_connections(hosts, ask)

    async def one(connection: HostConnection | HostError, row: HostRow) -> str:
        try:
            if isinstance(connection, HostError):
                raise connection
            result = await Installer(connection, own, wheels, row).run()
            text, changed = result.text, result.changed
            if data is not None and connection.host.edges:
                python = await interpreter(connection)
                row.stage("sending data")
                row.sending(data.share_bytes(connection.host))
                sent = await data.serve(connection, python, row.sent)
                text = f"{text}; {sent.text(connection.host)}"
                changed = changed or sent.sent_bytes > 0
        except HostError as error:
            row.end("failed")
            return f"{FAILURE}{error.reason}"
        row.end("done" if changed else "unchanged")
        return text

    with hosts_progress(list(opened)) as rows:
        try:
            texts = await asyncio.gather(*(one(each, rows[name]) for name, each in opened.items()))
        finally:
            connections = [each for each in opened.values() if not isinstance(each, HostError)]
            await asyncio.gather(*(each.close() for each in connections))
    return dict(zip(opened, texts))


@app.command()
def wheels(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder for the wheels.")],
    platforms: Annotated[
        list[Platform] | None,
        typer.Option(
            "--platform", help="Architecture of the hosts; may be repeated. Default: this one's."
        ),
    ] = None,
    python: Annotated[
        str | None,
        typer.Option("--python", metavar="3.N", help="Python of the hosts. Default: this one's."),
    ] = None,
) -> None:
    """Download the packages that edges need, for hosts without internet (a wheelhouse)."""
    version = _python_version(python)
    machines = [each.value for each in platforms or ()] or [platform.machine()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{folder}: cannot be made ({error.strerror})") from error
    with tempfile.TemporaryDirectory(prefix="edgefl-wheel-") as scratch:
        own = own_wheel(Path(scratch) / "new")
        for machine in machines:
            target = Target(machine, version)
            files = fetched(own.path, target, folder, show.line)
            size = sum(path.stat().st_size for path in files)
            show.line(f"{folder}: {len(files)} wheels for {target}, {decimal(size)}")
        for old in folder.glob(WHEELS):
            old.unlink()
        shutil.copy(own.path, folder)  # for hosts where edgefl is installed by hand
    show.hint(f"edgefl hosts install INVENTORY --wheels {folder}")


def _python_version(text: str | None) -> tuple[int, int]:
    if text is None:
        return sys.version_info[:2]
    match = re.fullmatch(PYTHON, text)
    if match is None or int(match[1]) < OLDEST_MINOR:
        raise UserError(f"--python {text}: expected 3.{OLDEST_MINOR} or newer, such as 3.13")
    return 3, int(match[1])
