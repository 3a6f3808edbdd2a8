"""All hosts of a run, for the thread that runs the coordinator: connections, agents, edges.

asyncio runs in a thread of its own. A host that fails is reported and does not stop the others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from concurrent.futures import wait
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock, Thread
from typing import Any, TextIO, TypeVar

from edgefl.clocks.process_messages import InjectFault
from edgefl.errors import UserError, printable
from edgefl.plugins.launch.agent_messages import EdgeEnded, EdgeStarted, HostLine, PrepareEdges
from edgefl.plugins.launch.connections.addresses import coordinator_address
from edgefl.plugins.launch.connections.connection import HostConnection, HostError
from edgefl.plugins.launch.connections.opening import Ask, open_connections
from edgefl.plugins.launch.host_data import DataSync
from edgefl.plugins.launch.host_session import HostSession, SessionEvent, Unread
from edgefl.plugins.launch.installer import interpreter
from edgefl.plugins.launch.inventory import Host, Inventory
from edgefl.plugins.launch.launch_plan import FileToSend
from edgefl.plugins.launch.remote_coordinator import RemoteCoordinator

FOLDER = "hosts"
MOST_BYTES = 64 << 20  # of one log; a host must not fill this machine's disk
MOST_EARLY = 1000  # lines of all hosts before ``open``


class HostLogs:
    """Writes the logs. May be used by several threads.

    Lines that come before the folder may be written are kept until ``open``. ``clock`` gives the
    seconds that each line begins with.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self.clock = clock
        self.failed: OSError | None = None
        self._folder: Path | None = None
        self._early: list[tuple[str, str]] = []
        self._files: dict[str, TextIO] = {}
        self._sizes: dict[str, int] = {}
        self._lock = Lock()

    def open(self, run: Path, keep: bool = False) -> None:
        """Write into the folder ``run`` from now on. ``keep``: after the logs that are there.

        Else those are of an earlier run, and are removed.
        """
        with self._lock:
            if self._folder is not None:
                return
            self._folder = run / FOLDER
            self._folder.mkdir(exist_ok=True)
            for old in () if keep else self._folder.glob("*.log"):
                old.unlink()
            for host, line in self._early:
                self._write(host, line)
            self._early.clear()

    def add(self, host: str, edge: str, text: str) -> None:
        """Add a line. ``edge``: empty if it is about the host."""
        shown = printable(text).removeprefix(f"{edge}: ")
        line = f"{self.clock():10.3f} {edge or '-'}: {shown}\n"
        with self._lock:
            if self._folder is not None:
                self._write(host, line)
            elif len(self._early) < MOST_EARLY:
                self._early.append((host, line))

    def flush(self) -> None:
        with self._lock, suppress(OSError):
            for file in self._files.values():
                file.flush()

    def close(self) -> None:
        with self._lock, suppress(OSError):
            for file in self._files.values():
                file.close()
            self._files.clear()

    def _write(self, host: str, line: str) -> None:
        assert self._folder is not None
        self._sizes[host] = size = self._sizes.get(host, 0) + len(line.encode())
        if self.failed is not None or size - len(line.encode()) > MOST_BYTES:
            return
        if size > MOST_BYTES:
            line = f"the log ends here: more than {MOST_BYTES >> 20} MiB\n"
            self._sizes[host] += MOST_BYTES
        try:
            if host not in self._files:
                path = self._folder / f"{host.replace('/', '_')}.log"
                self._files[host] = path.open("a", encoding="utf-8")
            self._files[host].write(line)
        except OSError as error:
            self.failed = error  # a full disk; the run itself reports that


# ---------------------------------------------------------------------- all hosts
Answer = TypeVar("Answer")
LONGEST_END_S = 60.0
WATCH_S = 0.25
WANTED = ("stopped", "fault:")  # ends of an edge that are no failure


@dataclass(frozen=True, slots=True)
class HostNews:
    """News of a host. ``edge``: empty if it is about the host itself."""

    host: str
    edge: str
    text: str

    def __str__(self) -> str:
        return ": ".join(filter(None, (self.host, self.edge, self.text)))


@dataclass(slots=True)
class EdgesLeft:
    """Which edges may still take part; does no input or output.

    The end of a run and a fault of the config take no edge away.
    """

    left: set[str] = field(default_factory=set)

    def take(self, message: Any) -> None:
        match message:
            case EdgeStarted(edge, _):
                self.left.add(edge)
            case EdgeEnded(edge, status, why, None) if status and not why.startswith(WANTED):
                self.left.discard(edge)


class HostsThread:
    """The sessions of all hosts. Its methods may be called from one other thread.

    ``log(host, edge, text)`` is called with every line that a host prints, in this thread.
    """

    def __init__(
        self,
        inventory: Inventory,
        run: str,
        log: Callable[[str, str, str], None],
        former: str = "",
    ) -> None:
        """``former``: the name of an earlier launch of the run, whose edges end first."""
        hosts, place = inventory.hosts, inventory.coordinator
        self.hosts, self.place, self.log = list(hosts), place, log
        self.sessions = {host.name: HostSession(host, run, self._take, former) for host in hosts}
        # None: the coordinator runs in this process
        self.coordinator = None if place.host.via == "local" else RemoteCoordinator(place, run, log)
        self._to_coordinator: HostConnection | None = None
        self.connections: dict[str, HostConnection] = {}
        self.lost: dict[str, str] = {}  # host -> why it takes no part
        self.told: set[str] = set()  # lost hosts that the user knows of
        self.reports = Unread[HostNews]()  # the logs have all
        self.edges = EdgesLeft({edge for host in hosts for edge in host.edges})
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._loop.run_forever, name="hosts", daemon=True)
        self._thread.start()

    # ------------------------------------------------------------------ before the run
    def connect(self, ask: Ask) -> None:
        """Connect to all hosts. ``lost`` names those that cannot be reached, with the reason.

        UserError if the coordinator's cannot be reached.
        """
        if self.coordinator is not None:
            (made,) = self.call(open_connections([self.place.host], ask)).values()
            if isinstance(made, HostError):
                raise UserError(f"coordinator: {made}")
            self._to_coordinator = made
        found = self.call(open_connections(self.hosts, ask))
        for name, connection in found.items():
            if isinstance(connection, HostError):
                self.lose(name, connection.reason)
            else:
                self.connections[name] = connection

    def addresses(self) -> dict[str, str]:
        """Find the coordinator's address for the edges of each host."""
        found: dict[str, str] = {}

        async def one(session: HostSession) -> None:
            connection = self.connections[session.host.name]
            found[session.host.name] = await coordinator_address(
                self.place, self._to_coordinator, connection
            )

        self._each(one)
        return found

    def begin(self, files: Sequence[FileToSend]) -> None:
        """Start the agents. ``files``: for the coordinator's host.

        UserError if the coordinator's agent does not start.
        """

        async def one(session: HostSession) -> None:
            connection = self.connections[session.host.name]
            await session.begin(connection, await interpreter(connection))

        async def coordinator() -> None:
            made = self._to_coordinator
            if made is not None and self.coordinator is not None:
                await self.coordinator.begin(made, await interpreter(made), files)

        try:
            self.call(coordinator())
        except HostError as error:
            raise UserError(f"coordinator: {error}") from None
        self._each(one)

    def sync(self, data: DataSync, say: Callable[[str], None]) -> dict[str, str | None]:
        """Send hosts the shares of their edges where needed; return where they are on each host.

        UserError if the data cannot be loaded here.
        """
        ready = {name: each for name, each in self.connections.items() if name not in self.lost}
        pythons = {name: self.sessions[name].interpreter for name in ready}
        shards: dict[str, str | None] = {}
        for name, found in self.call(data.run(ready, pythons)).items():
            if isinstance(found, HostError):
                self.lose(name, found.reason)
                continue
            shards[name] = found.shards
            say(f"{name}: {found.text(ready[name].host)}")
        return shards

    def lose(self, name: str, reason: str) -> None:
        """A host takes no part any more."""
        self.lost[name] = reason
        self.edges.left -= set(self.sessions[name].host.edges)

    def send(
        self,
        files: Mapping[str, Sequence[FileToSend]],
        sent: Callable[[str, int], None] = lambda host, size: None,
    ) -> None:
        """Copy the files of each host into the run's folder there."""

        def one(session: HostSession) -> Awaitable[None]:
            name = session.host.name
            return session.send(files[name], lambda size: sent(name, size))

        self._each(one)

    def prepare(self, orders: Mapping[str, PrepareEdges]) -> None:
        """Let the edges' data be loaded."""
        self._each(lambda session: session.prepare(orders[session.host.name]))

    def _each(self, work: Callable[[HostSession], Awaitable[Any]]) -> None:
        async def one(session: HostSession) -> None:
            try:
                await work(session)
            except HostError as error:
                self.lose(session.host.name, error.reason)

        async def of_all() -> None:
            ready = [name for name in self.connections if name not in self.lost]
            await asyncio.gather(*(one(self.sessions[name]) for name in ready))

        self.call(of_all())

    # ------------------------------------------------------------------ during the run
    def start_edges(self, addresses: Mapping[str, str]) -> None:
        """Start the edges of all hosts that are ready. ``addresses``: of the coordinator."""
        for name, session in self.sessions.items():
            if name not in self.lost:
                self._soon(session.start_edges(addresses[name]))

    def inject(self, fault: InjectFault) -> None:
        """Pass a fault of the config to the host of its edge."""
        for session in self.sessions.values():
            if fault.edge in session.host.edges:
                self._soon(session.order(fault))

    @property
    def all_gone(self) -> bool:
        """Whether no edge can take part any more."""
        return not self.edges.left

    def news(self) -> list[HostNews]:
        """Return what has happened since the last call."""
        return self.reports.take()

    def _take(self, host: Host, message: Any) -> None:
        """Called in this thread with each message of an agent."""
        about = getattr(message, "edge", "")
        if about and about not in host.edges:
            self.log(host.name, "", f"left out: a message about {about!r}, which is no edge of it")
            return
        self.edges.take(message)
        match message:
            case HostLine(edge, text):
                self.log(host.name, edge, text)
            case SessionEvent(text):
                self._report(host, "", text)
                if self.sessions[host.name].failed is not None:
                    self.lose(host.name, text)
            case EdgeEnded(edge, status, why, again):
                follows = "" if again is None else f"; starts again in {again:g} s"
                said = f"{why}{follows}"
                self.log(host.name, edge, said)
                if status and not why.startswith(WANTED):
                    self._report(host, edge, said)
            case EdgeStarted(edge, pid):
                self.log(host.name, edge, f"started (process {pid})")

    def _report(self, host: Host, edge: str, text: str) -> None:
        self.log(host.name, edge, text)
        self.reports.put(HostNews(host.name, edge, text))

    # ------------------------------------------------------------------ the end
    def end(self, at_once: bool = False, watch: Callable[[], None] = lambda: None) -> None:
        """End all edges, agents and connections, in order or at once.

        ``watch`` is called every WATCH_S until then.
        """

        async def of_all() -> None:
            with suppress(TimeoutError):
                async with asyncio.timeout(LONGEST_END_S):
                    sessions = [*self.sessions.values()]
                    if self.coordinator is not None:
                        sessions.append(self.coordinator.session)
                    # also a bug in one of them must not leave the others' processes behind
                    ends = await asyncio.gather(
                        *(session.end(at_once) for session in sessions), return_exceptions=True
                    )
                    # those whose agent was not started yet; the others are closed already
                    unused = [*self.connections.values(), self._to_coordinator]
                    await asyncio.gather(*(each.close() for each in unused if each is not None))
                    for failure in filter(None, ends):
                        raise failure

        self.call(of_all(), watch)

    def close(self) -> None:
        """End the thread."""

        async def last() -> None:
            others = asyncio.all_tasks() - {asyncio.current_task()}
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)
            await self._loop.shutdown_asyncgens()
            await self._loop.shutdown_default_executor()

        self.call(last())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def call(
        self, work: Coroutine[Any, Any, Answer], watch: Callable[[], None] | None = None
    ) -> Answer:
        """Run a coroutine in the thread, and return its result.

        An exception here, such as KeyboardInterrupt, cancels it.
        """
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            while watch is not None and not future.done():
                wait([future], timeout=WATCH_S)
                watch()
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def _soon(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop)
