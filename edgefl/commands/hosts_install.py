"""``edgefl hosts install`` and ``edgefl hosts wheels``: edgefl on the hosts of an inventory."""

from __future__ import annotations

import asyncio
import platform
import re
import shutil
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.filesize import decimal

from edgefl.commands import show
from edgefl.commands.configs import ConfigOrNone
from edgefl.commands.hosts_progress import HostsProgress
from edgefl.commands.inventories import AcceptKeys, InventoryPath
from edgefl.errors import UserError
from edgefl.exit_status import FAILED

if TYPE_CHECKING:
    from edgefl.launch.connections.connection import HostConnection, HostError
    from edgefl.launch.connections.opening import Ask
    from edgefl.launch.host_data import DataSync
    from edgefl.launch.installer import Installed
    from edgefl.launch.inventory import Host
    from edgefl.launch.wheels import OwnWheel

PYTHON = r"3\.(\d+)"
OLDEST_MINOR = 11
Results = dict[str, "Installed | HostError"]


class Platform(StrEnum):
    """Architectures for which all packages have wheels."""

    X86_64 = "x86_64"
    AARCH64 = "aarch64"


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
    from edgefl.launch.connections.opening import asker
    from edgefl.launch.host_data import DataSync
    from edgefl.launch.inventory import load_inventory
    from edgefl.launch.placement import load_placed
    from edgefl.launch.wheels import own_wheel
    from edgefl.loading.file import base_of

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
        from edgefl.launch.connections.connection import HostError
        from edgefl.launch.connections.opening import open_connections

        opened = await open_connections(self.hosts, ask)
        results: Results = {
            name: each for name, each in opened.items() if isinstance(each, HostError)
        }
        connections = {
            name: each for name, each in opened.items() if not isinstance(each, HostError)
        }
        try:
            with HostsProgress([host.name for host in self.hosts]) as progress:
                for name in results:
                    progress.end(name, "failed")
                done = await asyncio.gather(
                    *(self._install(each, progress) for each in connections.values())
                )
                results |= dict(zip(connections, done))
                well = {
                    name: each for name, each in connections.items() if name not in _failed(results)
                }
                if self.sync is not None:
                    results |= await self._send(well, results, progress)
        finally:
            await asyncio.gather(*(each.close() for each in connections.values()))
        return {host.name: results[host.name] for host in self.hosts}

    async def _install(
        self, connection: HostConnection, progress: HostsProgress
    ) -> Installed | HostError:
        from edgefl.launch.connections.connection import HostError
        from edgefl.launch.installer import Installer

        name = connection.host.name
        try:
            result = await Installer(
                connection, self.own, self.wheels, progress.watcher(name)
            ).run()
        except HostError as error:
            progress.end(name, "failed")
            return error
        progress.end(name, "done" if result.changed else "unchanged")
        return result

    async def _send(
        self,
        connections: Mapping[str, HostConnection],
        results: Results,
        progress: HostsProgress,
    ) -> Results:
        """Send shares of the data to the hosts that have edges and were installed."""
        from edgefl.launch.connections.connection import HostError
        from edgefl.launch.installer import Installed, interpreter

        assert self.sync is not None
        self.sync.sent = progress.advance
        found: Results = {}
        with_edges, pythons = {}, {}
        for name, each in connections.items():
            if each.host.edges:
                try:
                    pythons[name], with_edges[name] = await interpreter(each), each
                except HostError as error:
                    found[name] = error
                    progress.end(name, "failed")
        for name, each in with_edges.items():
            progress.watcher(name).stage("sending data")
            progress.watcher(name).sending(self.sync.share_bytes(each.host))
        for name, data in (await self.sync.run(with_edges, pythons)).items():
            before = results[name]
            if isinstance(data, HostError) or isinstance(before, HostError):
                found[name] = data if isinstance(data, HostError) else before
            else:
                text = f"{before.text}; {data.text(connections[name].host)}"
                found[name] = Installed(before.changed or data.sent_bytes > 0, text)
            progress.end(name, "failed" if isinstance(data, HostError) else "done")
        return found


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
    from edgefl.launch.wheels import Target, fetched, own_wheel

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
