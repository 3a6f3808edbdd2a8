"""All hosts of a run, for the thread that runs the coordinator: connections, agents, edges.

asyncio runs in a thread of its own, because the coordinator here blocks the main one. A host that
fails is reported and does not stop the others.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import wait
from contextlib import suppress
from pathlib import Path
from threading import Lock, Thread
from typing import Any, TypeVar

from edgefl.clocks.process_messages import InjectFault
from edgefl.clocks.processes import group_name
from edgefl.errors import UserError, printable
from edgefl.plugins.launch.agent_messages import (
    EdgeEnded,
    EdgeStarted,
    HostLine,
    PrepareEdges,
    StartEdges,
)
from edgefl.plugins.launch.connections.addresses import coordinator_address
from edgefl.plugins.launch.connections.connection import HostConnection, HostError
from edgefl.plugins.launch.connections.opening import Ask, open_connections
from edgefl.plugins.launch.host_data import DataSync
from edgefl.plugins.launch.host_session import (
    MOST_UNREAD,
    HostSession,
    RemoteCoordinator,
    SessionEvent,
    unread,
)
from edgefl.plugins.launch.installer import interpreter
from edgefl.plugins.launch.inventory import Host, Inventory
from edgefl.plugins.launch.launch_plan import FileToSend

FOLDER = "hosts"
MOST_BYTES = 64 << 20  # of one log; a host must not fill this machine's disk
MOST_EARLY = 1000  # lines of all hosts before ``open``


class HostLogs:
    """Writes the logs. May be used by several threads.

    Lines that come before the folder may be written are kept until ``open``. ``clock`` returns the
    seconds that each line begins with.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self.clock = clock
        self._folder: Path | None = None
        self._early = deque[tuple[str, str]]()
        self._sizes = Counter[str]()
        self._failed = False  # a full disk; the run itself reports that
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
            while self._early:
                self._write(self._folder, *self._early.popleft())

    def add(self, host: str, edge: str, text: str) -> None:
        """Add a line. ``edge``: empty if it is about the host."""
        shown = printable(text).removeprefix(f"{edge}: ")
        line = f"{self.clock():10.3f} {edge or '-'}: {shown}\n"
        with self._lock:
            if self._folder is not None:
                self._write(self._folder, host, line)
            elif len(self._early) < MOST_EARLY:
                self._early.append((host, line))

    def _write(self, folder: Path, host: str, line: str) -> None:
        if self._failed or self._sizes[host] > MOST_BYTES:
            return
        self._sizes[host] += len(line.encode())
        if self._sizes[host] > MOST_BYTES:
            line = f"the log ends here: more than {MOST_BYTES >> 20} MiB\n"
        try:
            with (folder / f"{host.replace('/', '_')}.log").open("a", encoding="utf-8") as file:
                file.write(line)
        except OSError:
            self._failed = True


# ---------------------------------------------------------------------- all hosts
Answer = TypeVar("Answer")
LONGEST_END_S = 60.0
WATCH_S = 0.25
WANTED = ("stopped", "fault:")  # ends of an edge that are no failure


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
        self.hosts, self.place, self._log = list(hosts), place, log
        self._sessions = {host.name: HostSession(host, run, self._take, former) for host in hosts}
        # None: the coordinator runs in this process
        self.coordinator = None if place.host.via == "local" else RemoteCoordinator(place, run, log)
        self._to_coordinator: HostConnection | None = None
        self._connections: dict[str, HostConnection] = {}
        self.lost: dict[str, str] = {}  # host -> why it takes no part
        # edges that may still take part: no end of a run or fault of the config takes one away
        self.left = {edge for host in hosts for edge in host.edges}
        self._news = deque[str](maxlen=MOST_UNREAD)  # the logs have all
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._loop.run_forever, name="hosts", daemon=True)
        self._thread.start()

    # ------------------------------------------------------------------ before the run
    def connect(self, ask: Ask) -> None:
        """Connect to all hosts. ``lost`` names those that cannot be reached, with the reason.

        UserError if the coordinator's cannot be reached.
        """
        if self.coordinator is not None:
            (opened,) = self.call(open_connections([self.place.host], ask)).values()
            if isinstance(opened, HostError):
                raise UserError(f"coordinator: {opened}")
            self._to_coordinator = opened
        for name, connection in self.call(open_connections(self.hosts, ask)).items():
            if isinstance(connection, HostError):
                self._lose(name, connection.reason)
            else:
                self._connections[name] = connection

    def begin_coordinator(self, files: Sequence[FileToSend]) -> None:
        """Start the agent of a coordinator elsewhere, with these files.

        UserError if that fails.
        """

        async def begin(session: HostSession, connection: HostConnection) -> None:
            await session.begin(connection, await interpreter(connection))
            await session.send(files)

        if self.coordinator is not None and self._to_coordinator is not None:
            try:
                self.call(begin(self.coordinator.session, self._to_coordinator))
            except HostError as error:
                raise UserError(f"coordinator: {error}") from None

    def prepare(
        self,
        files: Mapping[str, Sequence[FileToSend]],
        data: DataSync | None,
        order: Callable[[Host, str | None], PrepareEdges],
    ) -> tuple[dict[str, str], dict[str, str]]:
        """Bring each host to the point where its edges can start; ``lost`` has those that fail.

        ``data``: loaded; None: no shares are sent. ``order(host, shards)``: what its agent is to
        load. Returns the coordinator's address for each host, and what was done with its data.
        """
        addresses, texts = {}, {}

        async def one(name: str, connection: HostConnection) -> None:
            host, session = connection.host, self._sessions[name]
            try:
                addresses[name] = await coordinator_address(
                    self.place, self._to_coordinator, connection
                )
                python = await interpreter(connection)
                await session.begin(connection, python)
                await session.send(files[name])
                shards = None
                if data is not None:
                    sent = await data.serve(connection, python)
                    shards, texts[name] = sent.shards, sent.text(host)
                await session.prepare(order(host, shards))
            except HostError as error:
                self._lose(name, error.reason)

        async def of_all() -> None:
            await asyncio.gather(*(one(*item) for item in self._connections.items()))

        self.call(of_all())
        return addresses, texts

    def _lose(self, name: str, reason: str) -> None:
        """A host takes no part any more."""
        self.lost[name] = reason
        self.left -= set(self._sessions[name].host.edges)

    # ------------------------------------------------------------------ during the run
    def start_edges(self, addresses: Mapping[str, str]) -> None:
        """Start the edges of all hosts that are ready. ``addresses``: of the coordinator."""
        for name, session in self._sessions.items():
            if name not in self.lost:
                self._soon(session.start(StartEdges(addresses[name])))

    def inject(self, fault: InjectFault) -> None:
        """Pass a fault of the config to the host of its edge."""
        for session in self._sessions.values():
            if fault.edge in session.host.edges:
                self._soon(session.order(fault))

    @property
    def all_gone(self) -> bool:
        """Whether no edge can take part any more."""
        return not self.left

    def news(self) -> list[str]:
        """Return what has happened since the last call, in lines for the user."""
        return unread(self._news)

    def _take(self, host: Host, message: Any) -> None:
        """Called in this thread with each message of an agent."""
        edge: str = getattr(message, "edge", "")
        edges: tuple[str, ...] = getattr(message, "edges", ()) or (edge,)
        if strange := next((each for each in edges if each and each not in host.edges), None):
            line = f"left out: a message about {strange!r}, which is no edge of it"
            self._log(host.name, "", line)
            return
        name = edge if len(edges) == 1 else group_name(edges)
        match message:
            case HostLine(edge, text):
                self._log(host.name, edge, text)
            case SessionEvent(text):
                self._report(host, "", text)
                if self._sessions[host.name].failed is not None:
                    self._lose(host.name, text)
            case EdgeEnded(status=status, why=why, again=again):
                text = why if again is None else f"{why}; starts again in {again:g} s"
                if not status or why.startswith(WANTED):
                    self._log(host.name, name, text)
                    return
                self._report(host, name, text)
                if again is None:
                    self.left.difference_update(edges)
            case EdgeStarted(pid=pid):
                self.left.update(edges)
                self._log(host.name, name, f"started (process {pid})")

    def _report(self, host: Host, edge: str, text: str) -> None:
        self._log(host.name, edge, text)
        self._news.append(": ".join(filter(None, (host.name, edge, text))))

    # ------------------------------------------------------------------ the end
    def end(self, at_once: bool = False, watch: Callable[[], None] = lambda: None) -> None:
        """Stop all edges, agents and connections, cleanly or at once.

        ``watch`` is called every WATCH_S until then.
        """

        async def of_all() -> None:
            with suppress(TimeoutError):
                async with asyncio.timeout(LONGEST_END_S):
                    sessions = [*self._sessions.values()]
                    if self.coordinator is not None:
                        sessions.append(self.coordinator.session)
                    # also a bug in one of them must not leave the others' processes behind
                    ends = await asyncio.gather(
                        *(session.end(at_once) for session in sessions), return_exceptions=True
                    )
                    # those whose agent was not started yet; the others are closed already
                    unused = filter(None, [*self._connections.values(), self._to_coordinator])
                    await asyncio.gather(*(each.close() for each in unused))
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
