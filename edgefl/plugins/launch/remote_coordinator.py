"""A coordinator on another host: `edgefl coordinator`, started by an agent there.

Its results are written on that host and fetched at the end. If the connection is lost meanwhile,
it goes on; if the launch is killed, its results stay there.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from edgefl.archives import BadArchive, unpack
from edgefl.plugins.launch.agent_messages import EdgeEnded, HostLine
from edgefl.plugins.launch.connections.connection import HostConnection, HostError
from edgefl.plugins.launch.host_session import HostSession, SessionEvent, Unread
from edgefl.plugins.launch.inventory import CoordinatorPlace, Host
from edgefl.plugins.launch.launch_plan import FileToSend
from edgefl.plugins.launch.run_places import results_folder
from edgefl.record.files import EXPERIMENT

NAME = "coordinator"  # of its log
FETCH_S = 600.0
MOST_BYTES, MOST_ENTRIES = 1 << 34, 100_000  # of results: a host must not fill this machine
PACK = 'cd -- "$1" && tar -cf "$1.tar" .'


class RemoteCoordinator:
    """The coordinator of a run on another host. Coroutines run in the thread of the hosts."""

    def __init__(
        self, place: CoordinatorPlace, run: str, log: Callable[[str, str, str], None]
    ) -> None:
        self.place, self.log = place, log
        self.session = HostSession(place.host, f"{run}-{NAME}", self._take)
        self.results = results_folder(place.host.folder, run)
        self.status: int | None = None  # of the command there, once it has ended
        self.failure = ""  # why its host is lost
        self.lines = Unread[str]()  # what it prints; the log has all

    async def begin(
        self, connection: HostConnection, interpreter: str, files: Sequence[FileToSend]
    ) -> None:
        """Start the agent, and copy the files. HostError if that fails."""
        await self.session.begin(connection, interpreter)
        await self.session.send(files, lambda size: None)

    async def start(self, config: str) -> None:
        """Start the coordinator. ``config``: the experiment, as TOML."""
        connection = self._connection()
        await connection.put(config.encode(), f"{self.session.folder}/code/{NAME}.toml")
        words = [f"{NAME}.toml", "--keys", "../keys", "--out", self.results, "--no-table"]
        await self.session.start_coordinator(words)

    async def fetch(self, name: str, target: Path) -> None:
        """Copy the results of the experiment ``name`` into ``target``; remove them there."""
        connection, archive = self._connection(), f"{self.results}.tar"
        done = await connection.run(["sh", "-c", PACK, "sh", self.results], timeout_s=FETCH_S)
        if done.status:
            raise HostError(self.place.host.name, f"no results in {self.results} ({done.said()})")
        with tempfile.TemporaryDirectory(prefix="edgefl-results-") as folder:
            packed = Path(folder) / "results.tar"
            await connection.get(archive, packed, MOST_BYTES)
            try:
                await asyncio.to_thread(_unpack, packed, Path(folder) / "runs", name, target)
            except BadArchive as error:
                reason = f"the archive of its results {error}: not unpacked, and left in {archive}"
                raise HostError(self.place.host.name, reason) from error
            except OSError as error:
                reason = f"its results cannot be unpacked ({error}): they stay in {archive}"
                raise HostError(self.place.host.name, reason) from error
        await connection.run(["rm", "-rf", "--", self.results, archive])

    def printed(self) -> list[str]:
        """Return the lines that it has printed since the last call."""
        return self.lines.take()

    def _connection(self) -> HostConnection:
        if self.session.connection is None:
            raise HostError(self.place.host.name, "no connection")
        return self.session.connection

    def _take(self, host: Host, message: Any) -> None:
        match message:
            case HostLine(_, text):
                self.log(NAME, "", text)
                self.lines.put(text)
            case EdgeEnded(_, status, _, _):
                self.status = status
            case SessionEvent(text):
                self.log(NAME, "", text)
                self.lines.put(f"{host.name}: {text}")
                self.failure = self.session.failed or ""


def _unpack(packed: Path, folder: Path, name: str, target: Path) -> None:
    """Unpack the archive of another machine, and move the results of ``name`` to ``target``.

    experiment.toml stays as this machine has written it: it says which code a resumption runs.
    """
    unpack(packed, folder, MOST_BYTES, MOST_ENTRIES)
    found = folder / name
    for path in sorted(found.rglob("*")):
        place = target / path.relative_to(found)
        if path.is_dir():
            place.mkdir(parents=True, exist_ok=True)
        elif path != found / EXPERIMENT:
            shutil.move(path, place)
