"""What `edgefl launch` and the agent on a host agree on: messages, and the folders of a run.

A message is one JSON line::

    launcher -> agent   PrepareEdges, StartEdges (or StartCoordinator), InjectFault, StillHere, then
                        StopEdges | KillEdges
             <-         AgentReady, EdgesPrepared, EdgeStarted, EdgeEnded, HostLine, then AgentOver
    edge     -> agent   EdgeWaits, on its standard output; other lines there are text
    agent    -> edges   InjectFault, on the standard input of a process with several
             <-         EdgeEnded: one of them has ended

A process with several edges has the name of its first one.

After a lost connection the launcher attaches again; the agent then starts with AgentReady.
"""

from __future__ import annotations

from typing import Any

from edgefl.clocks.ipc import BadMessage, Message, decode, encode

MOST_LINE = 1 << 20  # bytes: an order names thousands of edges
FIRST = b'{"kind":'  # how a message begins
COORDINATOR = "coordinator"
CODE, KEYS = "code", "keys"  # folders in that of a run; edges start in the first one


def run_folder(work: str, run: str) -> str:
    """The folder of a run on a host whose work folder is ``work``."""
    return f"{work}/launched/{run}"


class PrepareEdges(Message, frozen=True):
    """Load the data and the model of these edges, and keep what StartEdges needs.

    ``config``: the experiment of the first run, as in a Setup. ``keys``: folder with the edges'
    secret keys; None: no keys. ``data``: folder of data sets; None: that of the host. ``shards``:
    folder with the edges' own shares of the data, instead. ``allow``: names of user code that the
    coordinator may use. ``restarts``: how often a process that dies is started again. ``nice``:
    added to the niceness. ``per_process``: how many edges share a process. Paths are relative to
    the folder of the user's code; ``~/`` is the home folder.
    """

    edges: tuple[str, ...]
    config: str
    keys: str | None
    data: str | None
    shards: str | None
    allow: tuple[str, ...]
    restarts: int
    nice: int
    per_process: int | str = "auto"


class StartEdges(Message, frozen=True):
    """Start the prepared edges. ``address``: of the coordinator."""

    address: str


class StartCoordinator(Message, frozen=True):
    """Start ``edgefl coordinator`` with these words, in the folder of the user's code.

    It counts as an edge of the name COORDINATOR. ``~/`` at the start of a word is the home folder.
    """

    words: tuple[str, ...]


class StillHere(Message, frozen=True):
    """The launcher lives. After a long silence the agent counts the connection as lost."""


class StopEdges(Message, frozen=True):
    """Stop the edges cleanly, remove the files of the run, and exit."""


class KillEdges(Message, frozen=True):
    """End the edges at once, remove the files of the run, and exit."""


class AgentReady(Message, frozen=True):
    """The agent has loaded what edges need.

    ``running``: edges that run already, after a reconnection.
    """

    pid: int
    version: str
    running: tuple[str, ...]


class EdgesPrepared(Message, frozen=True):
    """``problem``: why the edges cannot take part; empty: they can."""

    problem: str


class EdgeStarted(Message, frozen=True):
    """``edges``: of a process with several."""

    edge: str
    pid: int
    edges: tuple[str, ...] = ()


class EdgeEnded(Message, frozen=True):
    """An edge's process has ended. ``status``: negative for a signal. ``why``: for the user.

    ``again``: seconds until it is started again; None: it is not. ``edges``: of a process with
    several.
    """

    edge: str
    status: int
    why: str
    again: float | None
    edges: tuple[str, ...] = ()


class HostLine(Message, frozen=True):
    """A line of text. ``edge``: the edge that printed it; empty: the agent."""

    edge: str
    text: str


class AgentOver(Message, frozen=True):
    """All edges have ended and the files of the run are removed."""


class EdgeWaits(Message, frozen=True):
    """An edge looks for the coordinator (``waits``), or has found it."""

    edge: str
    waits: bool


def to_line(message: Message) -> bytes:
    return encode(message) + b"\n"


def from_line(line: bytes) -> Any:
    """Decode a line; None if it is text, or a damaged or unknown message."""
    if not line.startswith(FIRST):
        return None
    try:
        return decode(line)
    except BadMessage:
        return None
