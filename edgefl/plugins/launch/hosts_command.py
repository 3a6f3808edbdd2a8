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
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.filesize import decimal
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from edgefl.commands import show
from edgefl.commands.options import AcceptKeys, ConfigOrNone, InventoryPath, OverridesAsForRun
from edgefl.errors import UserError, printable
from edgefl.exit_status import FAILED, NOT_MET
from edgefl.results.forms import plain_table

if TYPE_CHECKING:
    from edgefl.config.experiment import Experiment
    from edgefl.plugins.launch.connections.connection import HostConnection, HostError
    from edgefl.plugins.launch.connections.opening import Ask
    from edgefl.plugins.launch.host_data import DataSync
    from edgefl.plugins.launch.installer import Installed
    from edgefl.plugins.launch.inventory import Host, Inventory
    from edgefl.plugins.launch.survey import Demand, Survey
    from edgefl.plugins.launch.wheels import OwnWheel

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
    overrides: OverridesAsForRun = None,
    accept_new_host_keys: AcceptKeys = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print everything that was found out, as JSON.")
    ] = False,
) -> None:
    """Reach every host, measure it and its network, and say which ones do not fit.

    With a CONFIG, also whether the hosts are enough for their part of the experiment. Exit status
    3 if a host cannot be reached or does not fit.
    """
    from edgefl.loading.file import base_of
    from edgefl.plugins.launch.connections.opening import asker
    from edgefl.plugins.launch.inventory import load_inventory
    from edgefl.plugins.launch.placement import load_placed

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
    from edgefl.clocks.setup.learning import learning  # imports torch
    from edgefl.plugins.launch.survey import demand

    one = placed.by_seed()[0]
    size = learning(one, base).layout.size
    return {host.name: demand(host, one, size) for host in inventory.hosts}


async def survey(inventory: Inventory, demands: Mapping[str, Demand], ask: Ask) -> list[Survey]:
    """Find out about all hosts; that of the coordinator is one of them, unless it is this one."""
    from edgefl.plugins.launch.connections.connection import HostConnection
    from edgefl.plugins.launch.connections.opening import open_connections
    from edgefl.plugins.launch.survey import Surveyor

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


PYTHON = r"3\.(\d+)"
OLDEST_MINOR = 11
Results = dict[str, "Installed | HostError"]


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
    from edgefl.loading.file import base_of
    from edgefl.plugins.launch.connections.opening import asker
    from edgefl.plugins.launch.host_data import DataSync
    from edgefl.plugins.launch.inventory import load_inventory
    from edgefl.plugins.launch.placement import load_placed
    from edgefl.plugins.launch.wheels import own_wheel

    found = load_inventory(inventory)
    if wheels is not None and not any(wheels.glob("*.whl")):
        raise UserError(f"--wheels {wheels}: no wheels in it; `edgefl hosts wheels` gets them")
    sync = None
    if config is not None:
        sync = DataSync(load_placed(found, config), base_of(config))
        sync.load()
    with tempfile.TemporaryDirectory(prefix="edgefl-wheel-") as scratch:
        own = own_wheel(Path(scratch) / "new")
        work = _Work(found.all_hosts(), own, wheels, sync)
        results = asyncio.run(work.run(asker(accept_new_host_keys)))
    show.rows(list(_texts(results).items()))
    if len(_failed(results)):
        raise typer.Exit(FAILED)
    show.hint(f"edgefl hosts check {inventory}, or edgefl launch {inventory} CONFIG")


def _failed(results: Mapping[str, Installed | HostError]) -> list[str]:
    return [name for name, result in results.items() if isinstance(result, Exception)]


def _texts(results: Mapping[str, Installed | HostError]) -> dict[str, str]:
    return {
        name: f"failed: {result.reason}" if isinstance(result, Exception) else result.text
        for name, result in results.items()
    }


@dataclass(slots=True)
class _Work:
    hosts: list[Host]
    own: OwnWheel
    wheels: Path | None
    sync: DataSync | None

    async def run(self, ask: Ask) -> Results:
        """Install on all hosts at the same time; a host that fails does not stop the others."""
        from edgefl.plugins.launch.connections.connection import HostError
        from edgefl.plugins.launch.connections.opening import open_connections

        opened = await open_connections(self.hosts, ask)
        results: Results = {
            name: each for name, each in opened.items() if isinstance(each, HostError)
        }
        connections = {
            name: each for name, each in opened.items() if not isinstance(each, HostError)
        }
        try:
            with hosts_progress([host.name for host in self.hosts]) as rows:
                for name in results:
                    rows[name].end("failed")
                done = await asyncio.gather(
                    *(self._install(each, rows) for each in connections.values())
                )
                results |= dict(zip(connections, done))
                well = {
                    name: each for name, each in connections.items() if name not in _failed(results)
                }
                if self.sync is not None:
                    results |= await self._send(well, results, rows)
        finally:
            await asyncio.gather(*(each.close() for each in connections.values()))
        return {host.name: results[host.name] for host in self.hosts}

    async def _install(self, connection: HostConnection, rows: Rows) -> Installed | HostError:
        from edgefl.plugins.launch.connections.connection import HostError
        from edgefl.plugins.launch.installer import Installer

        row = rows[connection.host.name]
        try:
            result = await Installer(connection, self.own, self.wheels, row).run()
        except HostError as error:
            row.end("failed")
            return error
        row.end("done" if result.changed else "unchanged")
        return result

    async def _send(
        self, connections: Mapping[str, HostConnection], results: Results, rows: Rows
    ) -> Results:
        """Send shares of the data to the hosts that have edges and were installed."""
        from edgefl.plugins.launch.connections.connection import HostError
        from edgefl.plugins.launch.installer import Installed, interpreter

        assert self.sync is not None
        self.sync.sent = lambda name, size: rows[name].sent(size)
        found: Results = {}
        with_edges, pythons = {}, {}
        for name, each in connections.items():
            if each.host.edges:
                try:
                    pythons[name], with_edges[name] = await interpreter(each), each
                except HostError as error:
                    found[name] = error
                    rows[name].end("failed")
        for name, each in with_edges.items():
            rows[name].stage("sending data")
            rows[name].sending(self.sync.share_bytes(each.host))
        for name, data in (await self.sync.run(with_edges, pythons)).items():
            before = results[name]
            if isinstance(data, HostError) or isinstance(before, HostError):
                found[name] = data if isinstance(data, HostError) else before
            else:
                text = f"{before.text}; {data.text(connections[name].host)}"
                found[name] = Installed(before.changed or data.sent_bytes > 0, text)
            rows[name].end("failed" if isinstance(data, HostError) else "done")
        return found


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
    from edgefl.plugins.launch.wheels import Target, fetched, own_wheel

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
        for old in folder.glob("edgefl-*.whl"):
            old.unlink()
        shutil.copy(own.path, folder)  # for hosts where edgefl is installed by hand
    show.hint(f"edgefl hosts install INVENTORY --wheels {folder}")


def _python_version(text: str | None) -> tuple[int, int]:
    if text is None:
        return sys.version_info[:2]
    found = re.fullmatch(PYTHON, text)
    if found is None or int(found[1]) < OLDEST_MINOR:
        raise UserError(f"--python {text}: expected 3.{OLDEST_MINOR} or newer, such as 3.13")
    return 3, int(found[1])


BAR_WIDTH = 24
Rows = Mapping[str, "HostRow"]


@dataclass(slots=True)
class HostRow:
    """What one host does now, and a bar of the bytes that are sent to it."""

    name: str
    bars: Progress
    task: TaskID
    _stage: str = ""

    def stage(self, text: str, detail: str = "") -> None:
        """The host begins another step; ``detail`` is not printed in lines."""
        self.bars.update(self.task, stage=f"{text} {detail}".rstrip())
        if self._stage != text:
            self._stage = text
            self._line(text)

    def sending(self, total_bytes: int) -> None:
        """So many bytes are going to be sent to the host."""
        self.bars.update(self.task, total=max(total_bytes, 1), completed=0)
        self._line(f"{decimal(total_bytes)} to send")

    def sent(self, size: int) -> None:
        """So many more bytes were sent to the host."""
        self.bars.advance(self.task, size)

    def end(self, text: str) -> None:
        """The host is done, or has failed."""
        self.bars.update(self.task, total=1, completed=1, stage=text)
        self.bars.stop_task(self.task)
        self._line(text)

    def _line(self, text: str) -> None:
        if self.bars.disable:
            self.bars.console.print(Text(f"{self.name}: {text}"), soft_wrap=True)


@contextmanager
def hosts_progress(hosts: Sequence[str]) -> Iterator[Rows]:
    """Show a row for each host while the block works; without a terminal, each step is a line."""
    console = Console(stderr=True)
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(BAR_WIDTH),
        TimeElapsedColumn(),
        TextColumn("{task.fields[stage]}", markup=False),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    ) as bars:
        yield {
            name: HostRow(name, bars, bars.add_task(name, total=None, stage="connecting"))
            for name in hosts
        }
