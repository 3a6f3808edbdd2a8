"""One host during a run: its connection and its agent, as the launcher sees them.

If the connection is lost, the host's edges go on, and the session looks for them again. A
coordinator on another host is `edgefl coordinator`, started by an agent there: it goes on without a
connection, too. All coroutines run in one thread.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections import Counter, deque
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import wait
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Lock, Thread
from typing import Any, TypeVar

from edgefl import __version__
from edgefl.archives import BadArchive, unpack
from edgefl.clocks.process_messages import InjectFault
from edgefl.clocks.processes import ONE_THREAD, group_name
from edgefl.clocks.wall.edge.machine import HOST_NAME
from edgefl.errors import UserError, printable
from edgefl.exit_status import BAD_INPUT
from edgefl.plugins.launch.agent_messages import (
    CODE,
    COORDINATOR,
    KEYS,
    AgentOver,
    AgentReady,
    EdgeEnded,
    EdgesPrepared,
    EdgeStarted,
    HostLine,
    KillEdges,
    PrepareEdges,
    StartCoordinator,
    StartEdges,
    StillHere,
    StopEdges,
    from_line,
    run_folder,
    to_line,
)
from edgefl.plugins.launch.connections import (
    HostConnection,
    HostError,
    RemoteProcess,
    coordinator_address,
)
from edgefl.plugins.launch.host_data import DataSync
from edgefl.plugins.launch.installer import interpreter
from edgefl.plugins.launch.inventory import CoordinatorPlace, Host, Inventory
from edgefl.plugins.launch.launch_plan import FileToSend
from edgefl.plugins.launch.opening import Ask, open_connection, open_connections
from edgefl.plugins.launch.supervisor import GRACE_S
from edgefl.record.files import EXPERIMENT

READY_S = 300.0  # for the imports of an agent, on a slow host
PREPARED_S = 900.0  # for its data
HELLO_EVERY_S = 10.0
END_S, END_AT_ONCE_S = GRACE_S + 10.0, 3.0
SOON_S = 3.0  # from the request to end until the user is told who has not answered
LAST_S = 5.0  # from its last message to the end of an agent
AGAIN_S = (1.0, 10.0)  # between two attempts to reach a host again: first, and at most
MODULE = "edgefl.plugins.launch.agent"
NO_PROGRAM = (126, 127)  # exit statuses of a shell: it cannot be run here, or it is missing

# $1: process id. Another process may have got it meanwhile.
KILL = 'grep -aq edgefl.plugins.launch.agent "/proc/$1/cmdline" && kill -9 "$1"'
# $1: Python, $2: module of the agent, $3: folder of an earlier launch. An agent that does not
# answer has died, and its edges with it.
END_FORMER = """
[ -d "$3" ] || exit 0
"$1" -m "$2" "$3" --attach >/dev/null 2>&1 || exit 0
n=0
while [ -d "$3" ] && [ "$n" -lt 100 ]; do sleep 0.1; n=$((n + 1)); done
[ ! -d "$3" ]
"""
FORMER_S = 60.0  # the agent needs a Python with edgefl to be spoken with
MOST_UNREAD = 1000  # lines for another thread: a host must not fill this machine's memory


@dataclass(frozen=True, slots=True)
class SessionEvent:
    """What happened to a host, in one line for the user."""

    text: str


class HostSession:
    """One host. ``tell`` is called with every message of its agent, and with SessionEvent."""

    def __init__(
        self, host: Host, run: str, tell: Callable[[Host, Any], None], former: str = ""
    ) -> None:
        """``former``: the name of an earlier launch of the run, whose edges end first."""
        self.host, self.folder = host, run_folder(host.folder, run)
        self.former = run_folder(host.folder, former) if former else ""
        self._tell = tell
        self.connection: HostConnection | None = None
        self.failed: str | None = None  # why this host takes no part any more
        self.over = False
        self._begun: StartCoordinator | StartEdges | None = None  # the order that began the run
        self._agent: RemoteProcess | None = None
        self._pid = 0
        self._interpreter = ""
        self._ending = False
        self._last_words = ""  # of the agent's standard error
        self._awaited: dict[type, asyncio.Future[Any]] = {}
        self._tasks: list[asyncio.Task[None]] = []

    # ------------------------------------------------------------------ before the run
    async def begin(self, connection: HostConnection, interpreter: str) -> None:
        """Start the agent with this Python.

        HostError if that fails, or if it has another version of edgefl.
        """
        self.connection, self._interpreter = connection, interpreter
        if self.former:
            await self._end_former(connection)
        ready = self._await(AgentReady)
        await self._start_agent()
        self._tasks = [asyncio.create_task(self._listen()), asyncio.create_task(self._greet())]
        answer: AgentReady = await self._within(ready, READY_S, "its agent did not start")
        if answer.version != __version__:
            raise HostError(
                self.host.name,
                f"it has edgefl {answer.version}, expected {__version__}: edgefl hosts install",
            )

    async def _end_former(self, connection: HostConnection) -> None:
        """End the edges that an earlier launch has left: its process was killed.

        They would go on with the run next to the new ones.
        """
        done = await connection.run(
            ["sh", "-c", END_FORMER, "sh", self._interpreter, MODULE, self.former],
            stdin=to_line(KillEdges()),
            env=dict(self.host.env),
            timeout_s=FORMER_S,
        )
        if done.status:
            raise HostError(self.host.name, "the edges of the earlier launch have not ended yet")

    async def send(self, files: Sequence[FileToSend]) -> None:
        """Copy files into the run's folder. HostError if one cannot be written."""
        for file in files:
            target = f"{self.folder}/{file.target}"
            await self.reached().put(file.source, target, file.mode)

    async def prepare(self, order: PrepareEdges) -> None:
        """Let the agent load the data of its edges. HostError if they cannot take part."""
        prepared = self._await(EdgesPrepared)
        await self.order(order)
        answer = await self._within(prepared, PREPARED_S, "its edges did not load their data")
        if answer.problem:
            raise HostError(self.host.name, answer.problem)

    def reached(self) -> HostConnection:
        """The connection. HostError if there is none."""
        if self.connection is None:
            raise HostError(self.host.name, "no connection")
        return self.connection

    async def _start_agent(self, *words: str) -> None:
        argv = [self._interpreter, "-m", MODULE, self.folder, *words]
        env = ONE_THREAD | {HOST_NAME: self.host.name} | dict(self.host.env)
        self._agent = await self.reached().start(argv, env=env)

    def _await(self, kind: type) -> asyncio.Future[Any]:
        self._awaited[kind] = asyncio.get_running_loop().create_future()
        return self._awaited[kind]

    async def _within(self, answer: asyncio.Future[Any], limit_s: float, failure: str) -> Any:
        try:
            return await asyncio.wait_for(answer, limit_s)
        except TimeoutError:
            raise HostError(self.host.name, f"{failure} in {limit_s:g} s") from None

    # ------------------------------------------------------------------ during the run
    async def start(self, order: StartCoordinator | StartEdges) -> None:
        """Begin the run. The order is sent again if the connection is lost."""
        self._begun = order
        await self.order(order)

    @property
    def connected(self) -> bool:
        """Whether its agent can be reached, as far as is known."""
        return self._agent is not None

    async def order(self, message: Any) -> None:
        """Send an order. Without a connection, it is lost."""
        if self._agent is not None:
            with suppress(BrokenPipeError, HostError):
                await self._agent.write(to_line(message))

    async def _greet(self) -> None:
        while True:
            await asyncio.sleep(HELLO_EVERY_S)
            await self.order(StillHere())

    async def _listen(self) -> None:
        """Read the agent's messages until it has ended, over one connection after the other."""
        while self._agent is not None:
            agent = self._agent
            try:
                status = await self._until_its_end(agent)
            except HostError as lost:
                self._agent = None
                if self._begun is None:  # nothing runs there that is worth a wait
                    self._fail(lost.reason)
                else:
                    await self._come_back(lost)
            else:
                self._agent = None
                if not self.over:
                    self._fail(self._death(status))

    async def _until_its_end(self, agent: RemoteProcess) -> int:
        texts = asyncio.create_task(self._pass_on(agent))
        try:
            async for line in agent.lines():
                self._take(line)
            await texts
            return await agent.wait()
        finally:
            texts.cancel()
            await asyncio.gather(texts, return_exceptions=True)

    def _death(self, status: int) -> str:
        words = f" ({self._last_words})" if self._last_words else ""
        if self._pid:
            return f"its agent died with exit status {status}{words}, and its edges with it"
        if status in NO_PROGRAM:
            return f"no Python{words}: name one with `python` or `venv` in the inventory"
        if status == BAD_INPUT and words:
            return self._last_words
        return f"its agent did not start{words}: edgefl hosts install puts edgefl there"

    async def _pass_on(self, agent: RemoteProcess) -> None:
        async for line in agent.err_lines():
            self._last_words = line.decode(errors="replace")
            self._tell(self.host, HostLine("", self._last_words))

    def _take(self, line: bytes) -> None:
        message = from_line(line)
        if isinstance(message, AgentReady):
            if self._pid:
                self._say(f"reached again; {len(message.running)} edges run")
            self._pid = message.pid
        self.over = self.over or isinstance(message, AgentOver)
        answer = self._awaited.pop(type(message), None)
        if answer is not None and not answer.done():
            answer.set_result(message)
        self._tell(self.host, message or HostLine("", line.decode(errors="replace")))

    async def _come_back(self, lost: HostError) -> None:
        """Look for the host until it answers; its agent may have gone on."""
        if self._ending:
            return
        self._say(f"{lost.reason}; its edges go on, trying to reach it again")
        pause_s, reasons = AGAIN_S[0], {lost.reason}
        while self._agent is None and not self._ending:
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, AGAIN_S[1])
            try:
                await self.reached().close()
                self.connection = await open_connection(self.host)
                await self._start_agent("--attach")
                await self.order(self._begun)  # it was lost with the connection, or does nothing
            except HostError as error:
                if error.reason not in reasons:  # such as a key that has changed
                    reasons.add(error.reason)
                    self._say(f"not reached again: {error.reason}")

    def _fail(self, reason: str) -> None:
        """This host takes no part any more; the others go on."""
        self.failed = reason
        for answer in self._awaited.values():
            if not answer.done():
                answer.set_exception(HostError(self.host.name, reason))
        self._awaited.clear()
        self._say(reason)

    def _say(self, text: str) -> None:
        self._tell(self.host, SessionEvent(text))

    # ------------------------------------------------------------------ the end
    async def end(self, at_once: bool) -> None:
        """Stop edges and agent, cleanly or at once, and leave nothing on the host."""
        self._ending = True
        if self._agent is not None and not self.over:
            over = self._await(AgentOver)
            await self.order(KillEdges() if at_once else StopEdges())
            await self._await_the_end(over, END_AT_ONCE_S if at_once else END_S)
        if self.over:
            await asyncio.wait(self._tasks[:1], timeout=LAST_S)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self.connection is not None:
            swept = self.over or await self._swept(self.connection)
            if not swept and self._begun is not None:
                self._say(
                    "not reached at the end: its edges end by themselves in a minute or two, and"
                    " then the run's files there are removed"
                )
            await self.connection.close()

    async def _await_the_end(self, over: asyncio.Future[Any], limit_s: float) -> None:
        rest_s = limit_s - SOON_S
        with suppress(HostError, TimeoutError):
            try:
                await asyncio.wait_for(asyncio.shield(over), SOON_S)
            except TimeoutError:
                if rest_s > 0:
                    self._say(f"its edges have not ended yet; waiting for {rest_s:g} s at most")
                    await asyncio.wait_for(over, rest_s)

    async def _swept(self, connection: HostConnection) -> bool:
        """Kill an agent that does not answer, and remove its files. False if that is impossible."""
        if self._agent is not None:
            self._agent.kill()
        try:
            await connection.run(["sh", "-c", KILL, "sh", str(self._pid)], timeout_s=5.0)
            await connection.run(["rm", "-rf", "--", self.folder], timeout_s=10.0)
        except HostError:
            return False
        return True


# ---------------------------------------------------------------------- a coordinator elsewhere
FETCH_S = 600.0
MOST_BYTES, MOST_ENTRIES = 1 << 34, 100_000  # of results: a host must not fill this machine
PACK = 'cd -- "$1" && tar -cf "$1.tar" .'


class RemoteCoordinator:
    """The coordinator of a run on another host.

    Its results are written there and fetched at the end; if the launch is killed, they stay there.
    """

    def __init__(
        self, place: CoordinatorPlace, run: str, log: Callable[[str, str, str], None]
    ) -> None:
        self.place, self._log = place, log
        self.session = HostSession(place.host, f"{run}-{COORDINATOR}", self._take)
        self.results = f"{place.host.folder}/results/{run}"
        self.status: int | None = None  # of the command there, once it has ended
        self._lines = deque[str](maxlen=MOST_UNREAD)  # what it prints; the log has all

    async def start(self, config: str) -> None:
        """Start the coordinator. ``config``: the experiment, as TOML."""
        file = f"{COORDINATOR}.toml"
        folder = f"{self.session.folder}/{CODE}"
        await self.session.reached().put(config.encode(), f"{folder}/{file}")
        words = (file, "--keys", f"../{KEYS}", "--out", self.results, "--no-table")
        await self.session.start(StartCoordinator(words))

    async def fetch(self, name: str, target: Path) -> None:
        """Copy the results of the experiment ``name`` into ``target``; remove them there."""
        host, connection = self.place.host.name, self.session.reached()
        archive = f"{self.results}.tar"
        done = await connection.run(["sh", "-c", PACK, "sh", self.results], timeout_s=FETCH_S)
        if done.status:
            raise HostError(host, f"no results in {self.results} ({done.last_line()})")
        with tempfile.TemporaryDirectory(prefix="edgefl-results-") as folder:
            packed = Path(folder) / "results.tar"
            await connection.get(archive, packed, MOST_BYTES)
            try:
                await asyncio.to_thread(_unpack, packed, Path(folder) / "runs", name, target)
            except BadArchive as error:
                reason = f"the archive of its results {error}: not unpacked, and left in {archive}"
                raise HostError(host, reason) from error
            except OSError as error:
                reason = f"its results cannot be unpacked ({error}): they stay in {archive}"
                raise HostError(host, reason) from error
        await connection.run(["rm", "-rf", "--", self.results, archive])

    def printed(self) -> list[str]:
        """Return the lines that it has printed since the last call."""
        return unread(self._lines)

    def _take(self, host: Host, message: Any) -> None:
        match message:
            case HostLine(_, text):
                self._log(COORDINATOR, "", text)
                self._lines.append(text)
            case EdgeEnded(status=status):
                self.status = status
            case SessionEvent(text):
                self._log(COORDINATOR, "", text)
                self._lines.append(f"{host.name}: {text}")


def unread(lines: deque[str]) -> list[str]:
    """Take all lines, of which another thread may add more."""
    return [lines.popleft() for _ in range(len(lines))]


def _unpack(packed: Path, folder: Path, name: str, target: Path) -> None:
    """Unpack the archive of another machine, and move the results of ``name`` to ``target``.

    experiment.toml stays as this machine has written it: it says which code a resumption runs.
    """
    unpack(packed, folder, MOST_BYTES, MOST_ENTRIES)
    results = folder / name
    for path in sorted(results.rglob("*")):
        place = target / path.relative_to(results)
        if path.is_dir():
            place.mkdir(parents=True, exist_ok=True)
        elif path != results / EXPERIMENT:
            shutil.move(path, place)


# ---------------------------------------------------------------------- all hosts, and their logs
# All hosts of a run, for the thread that runs the coordinator: connections, agents, edges.
#
# asyncio runs in a thread of its own, because the coordinator here blocks the main one. A host that
# fails is reported and does not stop the others.

FOLDER = "hosts"
MOST_LOG_BYTES = 64 << 20  # of one log; a host must not fill this machine's disk
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
        if self._failed or self._sizes[host] > MOST_LOG_BYTES:
            return
        self._sizes[host] += len(line.encode())
        if self._sizes[host] > MOST_LOG_BYTES:
            line = f"the log ends here: more than {MOST_LOG_BYTES >> 20} MiB\n"
        try:
            with (folder / f"{host.replace('/', '_')}.log").open("a", encoding="utf-8") as file:
                file.write(line)
        except OSError:
            self._failed = True


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
