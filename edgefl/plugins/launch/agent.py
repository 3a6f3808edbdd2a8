"""The agent of a host: starts the edges of one run there and looks after them.

::

    python -m edgefl.plugins.launch.agent FOLDER            a new run; FOLDER must not exist
    python -m edgefl.plugins.launch.agent FOLDER --attach   speak with the agent of FOLDER

`edgefl launch` starts it and speaks with it on its standard input and output. All files of the run
are in FOLDER, which the agent removes at its end. If the connection is lost, its edges go on.
FOLDER has a lock: if that is free, its agent was killed, and the next agent removes the folder.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import shutil
import signal
import sys
import time
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from selectors import EVENT_READ, DefaultSelector
from socket import AF_UNIX, SOCK_STREAM, socket
from typing import Any

from msgspec.structs import replace

import edgefl
from edgefl.clocks.process_messages import InjectFault
from edgefl.clocks.processes import close_all_but, fork, group_name
from edgefl.errors import UserError, printable, written
from edgefl.exit_status import NOT_STARTED
from edgefl.plugins.launch.agent_messages import (
    CODE,
    COORDINATOR,
    MOST_LINE,
    AgentOver,
    AgentReady,
    EdgeEnded,
    EdgesPrepared,
    EdgeWaits,
    HostLine,
    KillEdges,
    PrepareEdges,
    StartCoordinator,
    StartEdges,
    StopEdges,
    from_line,
    to_line,
)
from edgefl.plugins.launch.connections import LineSplitter
from edgefl.plugins.launch.supervisor import (
    COORDINATOR_GRACE_S,
    Action,
    OrderEdge,
    SignalEdge,
    SpawnEdge,
    Supervisor,
)

SOCKET, LOCK = "agent.sock", "agent.lock"  # in FOLDER
POLL_S = 0.2
LAST_WORDS_S = 5.0  # for messages that the launcher has not read yet at the end
READ_BYTES = 1 << 16
MOST_WAITING = 1 << 20  # bytes of messages; then lines of text are dropped
SIGNALS = {
    "end": ("SIGTERM", "SIGCONT"),  # one that an injected fault has frozen ends, too
    "kill": ("SIGKILL",),
    "freeze": ("SIGSTOP",),
    "thaw": ("SIGCONT",),
}


class Outbox:
    """Messages that wait for their reader. Lines of text are dropped if too many wait."""

    def __init__(self, most_bytes: int = MOST_WAITING) -> None:
        self.most_bytes = most_bytes
        self._waiting: deque[bytes] = deque()
        self._size = 0  # bytes of them
        self._begun = 0  # bytes of the first message that are sent

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, message: bytes, may_drop: bool = False) -> None:
        if not may_drop or self._size + len(message) <= self.most_bytes:
            self._waiting.append(message)
            self._size += len(message)

    def greet(self, message: bytes) -> None:
        """There is a new reader: this comes first, and then all messages not sent as a whole."""
        self._begun = 0
        self._waiting.appendleft(message)
        self._size += len(message)

    def next(self) -> bytes:
        """The bytes to be sent next."""
        return self._waiting[0][self._begun :]

    def sent(self, size_bytes: int) -> None:
        """This many of them were sent."""
        self._begun += size_bytes
        if self._begun >= len(self._waiting[0]):
            self._size -= len(self._waiting.popleft())
            self._begun = 0


@dataclass(slots=True)
class EdgeChild:
    """The process of an edge, or of several, and the ends of its pipes. -1: it is closed.

    ``orders``: closes when the agent ends, however it does, and its child ends with it.
    """

    edge: str
    pid: int
    output: int
    orders: int
    lines: LineSplitter = field(default_factory=lambda: LineSplitter(MOST_LINE))


class Agent:
    """Serves one launcher at a time, over two descriptors, until all is over."""

    def __init__(self) -> None:
        self.supervisor = Supervisor(heard_s=time.monotonic())
        self.children: dict[str, EdgeChild] = {}
        self.order: PrepareEdges  # once it has come
        self.address = ""
        self.words: tuple[str, ...] = ()  # of the coordinator
        self.learned: Any = None
        self.groups: list[tuple[str, ...]] = []  # of edges that share a process
        self.outbox = Outbox()
        self.selector = DefaultSelector()
        self.client: socket | None = None  # None: standard input and output
        self.source, self.sink = 0, 1
        self.orders = LineSplitter(MOST_LINE)
        self.listener = socket(AF_UNIX, SOCK_STREAM)
        with written(f"{os.getcwd()}:"):
            self.listener.bind(SOCKET)  # a relative path, because the length of paths is limited
        self.listener.listen(1)
        self.listener.setblocking(False)
        self.selector.register(self.listener, EVENT_READ, self._attach)
        self._serve(0, 1)

    def run(self) -> None:
        """Serve until all is over."""
        while not self.supervisor.over:
            for key, _ in self.selector.select(POLL_S):
                key.data()
            self._act(self.supervisor.tick(time.monotonic()))
            self._reap()
            self._flush()
        self.outbox.add(to_line(AgentOver()))
        until_s = time.monotonic() + LAST_WORDS_S
        while self.outbox and self.supervisor.connected and time.monotonic() < until_s:
            self._flush()
            time.sleep(0.01 if self.outbox else 0)

    def end_by_signal(self) -> None:
        """SIGTERM: stop the edges cleanly."""
        self._act(self.supervisor.stop(time.monotonic()))

    # ------------------------------------------------------------------ the launcher
    def _serve(self, source: int, sink: int) -> None:
        self.source, self.sink = source, sink
        for fd in (source, sink):
            os.set_blocking(fd, False)
        self.selector.register(source, EVENT_READ, self._listen)
        running = self.supervisor.running
        ready = AgentReady(os.getpid(), edgefl.__version__, running)
        self.outbox.greet(to_line(ready))

    def _attach(self) -> None:
        """A launcher has come back: it takes the place of the former connection."""
        with suppress(BlockingIOError):
            newcomer, _ = self.listener.accept()
            self._leave()
            self.client, self.orders = newcomer, LineSplitter(MOST_LINE)
            self.supervisor.heard(time.monotonic())
            self._serve(newcomer.fileno(), newcomer.fileno())

    def _leave(self) -> None:
        if self.source >= 0:
            self.selector.unregister(self.source)
        if self.client is not None:
            self.client.close()
        self.client, self.source, self.sink = None, -1, -1

    def _listen(self) -> None:
        try:
            data = os.read(self.source, READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        now_s = time.monotonic()
        if not data:
            self._leave()
            self.supervisor.disconnected(now_s)
            return
        self.supervisor.heard(now_s)
        for line in self.orders.split(data):
            self._obey(from_line(line), now_s)

    def _obey(self, order: object, now_s: float) -> None:
        match order:
            case PrepareEdges():
                self._prepare(order)
            case StartEdges():
                self.address = order.address
                self._act(self.supervisor.start(self.groups, self.order.restarts))
            case StartCoordinator():
                self.words = tuple(map(os.path.expanduser, order.words))  # "~/" at the start
                self.supervisor.grace_s = COORDINATOR_GRACE_S
                self._act(self.supervisor.start([(COORDINATOR,)], 0))
                self.supervisor.waits(COORDINATOR, False, now_s)
            case InjectFault():
                self._act(self.supervisor.inject(order))
            case StopEdges() | KillEdges():
                self._act(self.supervisor.stop(now_s, isinstance(order, KillEdges)))

    def _prepare(self, order: PrepareEdges) -> None:
        from edgefl.plugins.launch.edge_process import grouped, load_all

        self.order, problem = order, ""
        try:
            self.groups = grouped(order)
            self.learned = load_all(order)
        except UserError as error:
            problem = str(error)
        self.supervisor.heard(time.monotonic())  # it did not listen meanwhile
        self.outbox.add(to_line(EdgesPrepared(problem)))

    def _flush(self) -> None:
        while self.sink >= 0 and self.outbox:
            try:
                self.outbox.sent(os.write(self.sink, self.outbox.next()))
            except BlockingIOError:
                return
            except OSError:
                self.sink = -1  # its last orders may still be unread; then comes the end of input

    def say(self, edge: str, text: str) -> None:
        """Tell the launcher a line of an edge; ``edge`` is empty for one of this agent."""
        self.outbox.add(to_line(HostLine(edge, printable(text))), may_drop=True)

    # ------------------------------------------------------------------ the edges
    def _act(self, actions: list[Action]) -> None:
        for action in actions:
            match action:
                case SpawnEdge(edge, edges):
                    self._spawn(edge, edges or (edge,))
                case OrderEdge(edge, fault):
                    with suppress(OSError):  # it has just ended
                        os.write(self.children[edge].orders, to_line(fault))
                case SignalEdge(edge, name):
                    with suppress(ProcessLookupError):
                        for each in SIGNALS[name]:
                            os.kill(self.children[edge].pid, getattr(signal, each))
                case message:
                    self.outbox.add(to_line(message))

    def _spawn(self, edge: str, edges: tuple[str, ...]) -> None:
        try:
            child = self._forked(edge, edges)
        except OSError as error:  # no memory, or too many processes
            self.say("", f"{edge} cannot be started: {error.strerror}")
            self._act(self.supervisor.exited(edge, NOT_STARTED, time.monotonic()))
            return
        self.children[edge] = child
        os.set_blocking(child.output, False)
        self.selector.register(child.output, EVENT_READ, lambda: self._read(child))
        self._act(self.supervisor.spawned(edge, child.pid, time.monotonic()))

    def _forked(self, edge: str, edges: tuple[str, ...]) -> EdgeChild:
        (output, printed), (heard, orders) = os.pipe(), os.pipe()
        try:
            pid = fork(group_name(edges), lambda: self._work(edges, heard, printed))
            return EdgeChild(edge, pid, output, orders)
        except OSError:
            os.close(output)
            os.close(orders)
            raise
        finally:
            os.close(printed)
            os.close(heard)

    def _work(self, edges: tuple[str, ...], heard: int, printed: int) -> int:
        """Be the edges, in their process."""
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        for fd, name in ((heard, 0), (printed, 1), (printed, 2)):
            os.dup2(fd, name)
        close_all_but()
        if edges == (COORDINATOR,):  # it starts processes of its own
            words = [sys.executable, "-m", "edgefl.cli", "coordinator", *self.words]
            os.execv(sys.executable, words)
        from edgefl.plugins.launch.edge_process import run_edges

        return run_edges(self.address, replace(self.order, edges=edges), self.learned)

    def _read(self, child: EdgeChild) -> bool:
        """Pass on what a child has printed; False if nothing waits."""
        try:
            data = os.read(child.output, READ_BYTES)
        except BlockingIOError:
            return False
        if not data:
            self._close(child)
        for line in child.lines.split(data) if data else child.lines.rest():
            match from_line(line):
                case EdgeWaits(_, waits):
                    self.supervisor.waits(child.edge, waits, time.monotonic())
                case EdgeEnded(edge) as message:
                    self.supervisor.ended_alone(child.edge, edge)
                    self.outbox.add(to_line(message))
                case _:
                    text = line.decode("utf-8", errors="replace")
                    edge = text.partition(":")[0]  # of several, the line begins with its edge
                    known = self.supervisor.process_of.get(edge) == child.edge
                    self.say(edge if known else child.edge, text)
        return bool(data)

    def _close(self, child: EdgeChild) -> None:
        self.selector.unregister(child.output)
        os.close(child.output)
        os.close(child.orders)
        child.output = -1

    def _reap(self) -> None:
        for child in list(self.children.values()):
            pid, status = os.waitpid(child.pid, os.WNOHANG)
            if not pid:
                continue
            while child.output >= 0 and self._read(child):
                pass
            if child.output >= 0:  # a child of the edge still has it
                self._close(child)
            del self.children[child.edge]
            code = os.waitstatus_to_exitcode(status)
            self._act(self.supervisor.exited(child.edge, code, time.monotonic()))


# ---------------------------------------------------------------------- the folder of a run
@contextmanager
def claimed(folder: Path) -> Iterator[None]:
    """Make ``folder``, for its owner only, and lock it."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with _guard(folder.parent):
        folder.mkdir(mode=0o700)
        lock = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    try:
        yield
    finally:
        os.close(lock)


def clear_stale(parent: Path) -> list[str]:
    """Remove the folders of agents that were killed. Returns their names."""
    if not parent.is_dir():
        return []
    with _guard(parent):
        stale = [path for path in sorted(parent.iterdir()) if path.is_dir() and _is_stale(path)]
        for path in stale:
            shutil.rmtree(path, ignore_errors=True)
    return [path.name for path in stale]


def _is_stale(folder: Path) -> bool:
    try:
        with (folder / LOCK).open("rb+") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except FileNotFoundError:
        return True  # its agent was killed before it could lock it
    except OSError:
        return False  # locked, or another user's
    return True


@contextmanager
def _guard(parent: Path) -> Iterator[None]:
    """One agent at a time makes or clears folders here."""
    lock = os.open(parent, os.O_RDONLY)
    try:
        with suppress(OSError):  # a file system without locks
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


# ---------------------------------------------------------------------- the command
def attach(folder: Path) -> int:
    """Pass bytes between the launcher and the agent that runs in ``folder``, until one ends."""
    with socket(AF_UNIX, SOCK_STREAM) as agent, DefaultSelector() as selector:
        try:
            os.chdir(folder)
            agent.connect(SOCKET)
        except OSError as error:
            print(f"no agent runs in {folder} ({error.strerror})", file=sys.stderr)
            return 1
        selector.register(0, EVENT_READ)
        selector.register(agent, EVENT_READ)
        while True:
            for key, _ in selector.select():
                data = os.read(key.fd, READ_BYTES)
                if not data:
                    return 0
                if key.fd == 0:
                    agent.sendall(data)
                else:
                    while data:
                        data = data[os.write(1, data) :]


def serve(folder: Path) -> int:
    """Be the agent of a new run in ``folder``."""
    if not sys.platform.startswith("linux"):  # elsewhere a fork with torch may hang
        raise UserError(f"this system is {sys.platform}: expected Linux")
    with suppress(OSError):  # a session leader already
        os.setsid()  # Ctrl-C in the launcher's terminal is not for this process
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    cleared = clear_stale(folder.parent)
    with ExitStack() as stack:
        with written(f"{folder}:"):
            stack.enter_context(claimed(folder))
            os.chdir(folder)
        try:
            import edgefl.plugins.launch.edge_process  # noqa: F401  # loads torch once, for all edges

            agent = Agent()
            with written(f"{folder}:"):
                os.mkdir(CODE)
                os.chdir(CODE)  # there edges look for the user's files
            signal.signal(signal.SIGTERM, lambda *_: agent.end_by_signal())
            for name in cleared:
                agent.say("", f"removed what {name} had left here")
            agent.run()
        finally:
            os.chdir(folder.parent)
            shutil.rmtree(folder, ignore_errors=True)
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m edgefl.plugins.launch.agent")
    parser.add_argument("folder", type=lambda text: Path(text).expanduser().absolute())
    parser.add_argument("--attach", action="store_true")
    arguments = parser.parse_args()
    if arguments.attach:
        return attach(arguments.folder)
    try:
        return serve(arguments.folder)
    except UserError as error:
        print(error, file=sys.stderr)
        return error.status


if __name__ == "__main__":
    sys.exit(main())
