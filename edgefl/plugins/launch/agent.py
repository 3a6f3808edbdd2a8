"""The agent of a host: starts the edges of one run there and looks after them.

::

    python -m edgefl.plugins.launch.agent FOLDER             a new run; FOLDER must not exist
    python -m edgefl.plugins.launch.agent FOLDER --attach    speak with the agent of FOLDER
    python -m edgefl.plugins.launch.agent FOLDER --separate  each edge is a new Python, no fork

`edgefl launch` starts it and speaks with it on its standard input and output. All files of the run
are in FOLDER, which the agent removes at its end. If the connection is lost, its edges go on.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import deque
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from selectors import EVENT_READ, DefaultSelector
from socket import AF_UNIX, SOCK_STREAM, socket
from typing import Any

import edgefl
from edgefl.clocks.ipc import encode
from edgefl.clocks.process_messages import InjectFault
from edgefl.clocks.processes import close_all_but, fork
from edgefl.errors import UserError, printable, written
from edgefl.plugins.launch.agent_messages import (
    COORDINATOR,
    MOST_LINE,
    AgentOver,
    AgentReady,
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
from edgefl.plugins.launch.connections.line_splitter import LineSplitter
from edgefl.plugins.launch.run_places import CODE, SOCKET, claimed, clear_stale
from edgefl.plugins.launch.supervisor import (
    COORDINATOR_GRACE_S,
    Action,
    SignalEdge,
    SpawnEdge,
    Supervisor,
    TellLauncher,
)

MOST_PENDING = 1 << 20  # bytes of lines that may be dropped


class Outbox:
    """Messages that wait for their reader. Lines of text are dropped if too many wait."""

    def __init__(self, most_bytes: int = MOST_PENDING) -> None:
        self.most_bytes = most_bytes
        self._waiting: deque[tuple[bytes, bool]] = deque()  # (message, may be dropped)
        self._droppable = 0  # bytes of them
        self._begun = 0  # bytes of the first message that are sent

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, message: bytes, may_drop: bool = False, first: bool = False) -> None:
        """Add a message. ``first``: before all others, which works only between two messages."""
        if may_drop:
            if self._droppable + len(message) > self.most_bytes:
                return
            self._droppable += len(message)
        if first:
            assert not self._begun
            self._waiting.appendleft((message, may_drop))
        else:
            self._waiting.append((message, may_drop))

    def next(self) -> bytes:
        """The bytes to be sent next."""
        return self._waiting[0][0][self._begun :]

    def sent(self, size_bytes: int) -> None:
        """This many of them were sent."""
        self._begun += size_bytes
        message, may_drop = self._waiting[0]
        if self._begun >= len(message):
            self._waiting.popleft()
            self._begun = 0
            self._droppable -= len(message) if may_drop else 0

    def rewind(self) -> None:
        """There is a new reader: the first message is sent again from its beginning."""
        self._begun = 0


# ---------------------------------------------------------------------- the agent
POLL_S = 0.2
LAST_WORDS_S = 5.0  # for messages that the launcher has not read yet at the end
READ_BYTES = 1 << 16
FORKS = sys.platform.startswith("linux")  # elsewhere a fork of a process with torch may hang
SIGNALS = {"end": "SIGTERM", "kill": "SIGKILL", "freeze": "SIGSTOP", "thaw": "SIGCONT"}


@dataclass(slots=True)
class EdgeChild:
    """The process of an edge, and the end of the pipe with its output."""

    edge: str
    pid: int
    output: int
    lines: LineSplitter = field(default_factory=lambda: LineSplitter(MOST_LINE))
    process: subprocess.Popen[bytes] | None = None  # if it is no fork


class Agent:
    """Serves one launcher at a time, over two descriptors, until all is over."""

    def __init__(self, forks: bool) -> None:
        self.forks = forks
        self.supervisor = Supervisor(heard_s=time.monotonic())
        self.children: dict[str, EdgeChild] = {}
        self.order: PrepareEdges  # once it has come
        self.address = ""
        self.words: tuple[str, ...] = ()  # of the coordinator
        self.learned: Any = None
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
        self._ready()
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
        """SIGTERM: end the edges in order."""
        self._act(self.supervisor.stop(time.monotonic()))

    # ------------------------------------------------------------------ the launcher
    def _serve(self, source: int, sink: int) -> None:
        self.source, self.sink = source, sink
        for fd in (source, sink):
            os.set_blocking(fd, False)
        self.selector.register(source, EVENT_READ, self._listen)

    def _ready(self) -> None:
        self.outbox.add(
            to_line(
                AgentReady(os.getpid(), edgefl.__version__, self.forks, self.supervisor.running)
            ),
            first=True,
        )

    def _attach(self) -> None:
        """A launcher has come back: it takes the place of the former connection."""
        with suppress(BlockingIOError):
            newcomer, _ = self.listener.accept()
            self._leave()
            self.client, self.orders = newcomer, LineSplitter(MOST_LINE)
            self._serve(newcomer.fileno(), newcomer.fileno())
            self.supervisor.heard(time.monotonic())
            self.outbox.rewind()
            self._ready()

    def _leave(self) -> None:
        if self.source >= 0:
            self.selector.unregister(self.source)
        if self.client is not None:
            self.client.close()
        self.client, self.source, self.sink = None, -1, -1

    def _lost(self) -> None:
        self._leave()
        self.supervisor.disconnected(time.monotonic())

    def _listen(self) -> None:
        try:
            data = os.read(self.source, READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._lost()
            return
        self.supervisor.heard(time.monotonic())
        for line in self.orders.split(data):
            self._obey(from_line(line))

    def _obey(self, order: object) -> None:
        now_s = time.monotonic()
        match order:
            case PrepareEdges():
                self._prepare(order)
            case StartEdges():
                self.address = order.address
                self._act(self.supervisor.start(self.order.edges, self.order.restarts))
            case StartCoordinator():
                self.words = tuple(map(os.path.expanduser, order.words))  # "~/" at the start
                self.supervisor.grace_s = COORDINATOR_GRACE_S
                self._act(self.supervisor.start([COORDINATOR], 0))
                self.supervisor.waits(COORDINATOR, False, now_s)
            case InjectFault():
                self._act(self.supervisor.inject(order))
            case StopEdges():
                self._act(self.supervisor.stop(now_s))
            case KillEdges():
                self._act(self.supervisor.kill(now_s))

    def _prepare(self, order: PrepareEdges) -> None:
        from edgefl.plugins.launch.edge_process import load_all

        self.order, began_s, problem = order, time.monotonic(), ""
        try:
            self.learned = load_all(order) if self.forks else None
        except UserError as error:
            problem = str(error)
        now_s = time.monotonic()
        self.supervisor.heard(now_s)  # it did not listen meanwhile
        self.outbox.add(to_line(EdgesPrepared(problem, round(now_s - began_s, 3))))

    def _flush(self) -> None:
        while self.sink >= 0 and self.outbox:
            try:
                self.outbox.sent(os.write(self.sink, self.outbox.next()))
            except BlockingIOError:
                return
            except OSError:
                self.sink = -1  # its last orders may still be unread; then comes the end of input

    # ------------------------------------------------------------------ the edges
    def _act(self, actions: list[Action]) -> None:
        for action in actions:
            match action:
                case SpawnEdge(edge):
                    self._spawn(edge)
                case SignalEdge(edge, name):
                    with suppress(ProcessLookupError):
                        os.kill(self.children[edge].pid, getattr(signal, SIGNALS[name]))
                case TellLauncher(message):
                    self.outbox.add(to_line(message))

    def _spawn(self, edge: str) -> None:
        try:
            child = self._forked(edge) if self.forks else self._started(edge, self._argv(edge))
        except OSError as error:  # no memory, or too many processes
            self._tell("", f"{edge} cannot be started: {error.strerror}")
            self._act(self.supervisor.not_spawned(edge, time.monotonic()))
            return
        self.children[edge] = child
        os.set_blocking(child.output, False)
        self.selector.register(child.output, EVENT_READ, lambda: self._read(child))
        self._act(self.supervisor.spawned(edge, child.pid, time.monotonic()))

    def _forked(self, edge: str) -> EdgeChild:
        output, theirs = os.pipe()

        def work() -> int:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            nothing = os.open(os.devnull, os.O_RDONLY)
            for fd, name in ((nothing, 0), (theirs, 1), (theirs, 2)):
                os.dup2(fd, name)
            close_all_but()
            return self._in_fork(edge)

        try:
            return EdgeChild(edge, fork(f"edge {edge}", work), output)
        except OSError:
            os.close(output)
            raise
        finally:
            os.close(theirs)

    def _in_fork(self, edge: str) -> int:
        if edge == COORDINATOR:  # a new program, because it starts processes of its own
            os.execv(sys.executable, self._argv(edge))
        from edgefl.plugins.launch.edge_process import run_edge

        return run_edge(edge, self.address, self.order, self.learned)

    def _argv(self, edge: str) -> list[str]:
        python = [sys.executable, "-m"]
        if edge == COORDINATOR:
            return [*python, "edgefl.cli", "coordinator", *self.words]
        order = encode(self.order).decode()
        return [*python, "edgefl.plugins.launch.edge_process", edge, self.address, order]

    def _started(self, edge: str, argv: list[str]) -> EdgeChild:
        process = subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,  # closed when this process ends
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        assert process.stdout is not None
        output = os.dup(process.stdout.fileno())
        process.stdout.close()
        return EdgeChild(edge, process.pid, output, process=process)

    def _read(self, child: EdgeChild) -> None:
        try:
            data = os.read(child.output, READ_BYTES)
        except BlockingIOError:
            return
        if not data:
            self.selector.unregister(child.output)
            os.close(child.output)
            child.output = -1
        for line in child.lines.split(data) if data else child.lines.rest():
            match from_line(line):
                case EdgeWaits(_, waits):
                    self.supervisor.waits(child.edge, waits, time.monotonic())
                case _:
                    self._tell(child.edge, line.decode("utf-8", errors="replace"))

    def _tell(self, edge: str, text: str) -> None:
        self.outbox.add(to_line(HostLine(edge, printable(text))), may_drop=True)

    def _reap(self) -> None:
        for child in list(self.children.values()):
            pid, status = os.waitpid(child.pid, os.WNOHANG)
            if not pid:
                continue
            while child.output >= 0 and _has_data(child.output):
                self._read(child)
            if child.output >= 0:  # a child of the edge still has it
                self.selector.unregister(child.output)
                os.close(child.output)
            if child.process is not None:
                child.process.returncode = os.waitstatus_to_exitcode(status)
            del self.children[child.edge]
            code = os.waitstatus_to_exitcode(status)
            self._act(self.supervisor.exited(child.edge, code, time.monotonic()))


def _has_data(fd: int) -> bool:
    with DefaultSelector() as selector:
        selector.register(fd, EVENT_READ)
        return bool(selector.select(0))


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
                    _write_all(1, data)


def _write_all(fd: int, data: bytes) -> None:
    while data:
        data = data[os.write(fd, data) :]


def serve(folder: Path, forks: bool) -> int:
    """Be the agent of a new run in ``folder``."""
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
            if forks:
                import edgefl.plugins.launch.edge_process  # noqa: F401  # loads torch once, for all edges
            agent = Agent(forks)
            with written(f"{folder}:"):
                os.mkdir(CODE)
                os.chdir(CODE)  # there edges look for the user's files
            signal.signal(signal.SIGTERM, lambda *_: agent.end_by_signal())
            for name in cleared:
                agent.outbox.add(to_line(HostLine("", f"removed what {name} had left here")))
            agent.run()
        finally:
            os.chdir(folder.parent)
            shutil.rmtree(folder, ignore_errors=True)
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m edgefl.plugins.launch.agent")
    parser.add_argument("folder", type=lambda text: Path(text).expanduser().absolute())
    parser.add_argument("--attach", action="store_true")
    parser.add_argument("--separate", action="store_true")
    said = parser.parse_args()
    if said.attach:
        return attach(said.folder)
    try:
        return serve(said.folder, FORKS and not said.separate)
    except UserError as error:
        print(error, file=sys.stderr)
        return error.status


if __name__ == "__main__":
    sys.exit(main())
