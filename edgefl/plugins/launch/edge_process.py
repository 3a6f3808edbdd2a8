"""The process of edges that an agent has started: a fork of the agent."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from threading import Thread

from edgefl.clocks.process_messages import InjectFault
from edgefl.clocks.setup.learning import Learning, learning
from edgefl.clocks.wall.edge.host import MOST_TEXT, EdgeHost, EdgeProcess, Outcome
from edgefl.clocks.wall.edge.machine import share_memory
from edgefl.clocks.wall.edge.membership import SideBuilder, processes_of
from edgefl.clocks.wall.edge.work import EdgeSide, OwnMachine
from edgefl.clocks.wall.keys import EdgeKeys, load_edge
from edgefl.errors import UserError, printable
from edgefl.exit_status import NO_ANSWER, OVER, REFUSED
from edgefl.plugins.launch.agent_messages import (
    MOST_LINE,
    EdgeEnded,
    EdgeWaits,
    PrepareEdges,
    from_line,
    to_line,
)
from edgefl.plugins.launch.connections import LineSplitter
from edgefl.protocol.messages import Refused, RunFinished, Setup, Unreachable

# Seconds to wait for the coordinator, before the first run and between two. It may load data and
# evaluate then. The launcher ends edges whose coordinator is gone.
PATIENCE_S = 3600.0
READ_BYTES = 1 << 16
SWITCH_S = 0.001  # to stamp arrivals on time while another thread trains


def load_all(order: PrepareEdges) -> Learning | None:
    """Load the data and the model of all these edges, which forks share.

    None if each edge has data of its own, which it loads itself. UserError if something is missing
    on this host.
    """
    for edge in order.edges:
        _keys(order, edge)
    experiment, base = _builder(order, order.edges[0]).experiment(Setup(order.config, ""))
    if experiment.data.source == "local":
        return None
    learned = learning(experiment, base, order.edges)
    learned.rule(0)  # loads the code of the strategy
    learned.load_before_fork()
    share_memory()  # of what a report about this host needs
    gc.collect()
    # these objects stay; if the collector touched their pages, every fork would copy them
    gc.freeze()
    return learned


def grouped(order: PrepareEdges) -> list[tuple[str, ...]]:
    """The edges of this host by process. UserError if a process may not open enough files."""
    experiment, _ = _builder(order, order.edges[0]).experiment(Setup(order.config, ""))
    return processes_of(experiment, order.edges, order.per_process)


def run_edges(address: str, order: PrepareEdges, learned: Learning | None) -> int:
    """Take part with these edges in all runs of the coordinator at ``address``.

    Returns the exit status: that of a single edge. Of several, each tells how it has ended.
    """
    sys.setswitchinterval(SWITCH_S)
    if order.nice:
        os.nice(order.nice)
    name, edges, alone = order.edges[0], list(order.edges), len(order.edges) == 1
    processes: list[EdgeProcess] = []  # the latest one is last
    Thread(target=_obey_the_agent, args=(processes,), name="agent", daemon=True).start()
    shared = _builder(order, name, learned, edges) if learned is not None or alone else None
    builders: dict[str, SideBuilder] = {}

    def host(edge: str) -> EdgeHost:
        if shared is None:  # each has data of its own
            builders.setdefault(edge, _builder(order, edge))
        builder = shared or builders[edge]

        def side(setup: Setup) -> EdgeSide:
            _tell(EdgeWaits(name, waits=False))
            return builder.side(setup, edge)

        return EdgeHost(edge, address, _keys(order, edge), side)

    def ended(edge: str, outcome: Outcome) -> None:
        status, text = _status_of(outcome, address)
        if isinstance(outcome, RunFinished):
            strategy = (shared or builders[edge]).strategy
            text = f"{strategy}: the run is over ({outcome.reason})"
        elif not alone:
            _tell(EdgeEnded(edge, status, text, None))
        _say(text if alone else f"{edge}: {text}")

    while edges:
        _tell(EdgeWaits(name, waits=True))
        processes.append(EdgeProcess(OwnMachine(), ended=ended, again=host))
        outcomes = processes[-1].run([host(edge) for edge in edges], PATIENCE_S)
        edges = [edge for edge in edges if getattr(outcomes.get(edge), "more", False)]
    return _status_of(outcomes[name], address)[0] if alone and name in outcomes else OVER


def _status_of(outcome: Outcome, address: str) -> tuple[int, str]:
    """The exit status, and why an edge takes no part; "": its run is over."""
    match outcome:
        case Unreachable():
            return NO_ANSWER, f"{address}: {outcome}"
        case Refused():
            return REFUSED, f"refused: {outcome}"
        case UserError():
            return outcome.status, f"cannot take part: {outcome}"
    return OVER, ""


def _builder(
    order: PrepareEdges, name: str, learned: Learning | None = None, edges: Sequence[str] = ()
) -> SideBuilder:
    data, shards = _path(order.data), _path(order.shards)
    return SideBuilder(name, None, data, [*order.allow], shards, learned, edges)


def _keys(order: PrepareEdges, name: str) -> EdgeKeys | None:
    folder = _path(order.keys)
    return None if folder is None else load_edge(folder, name)


def _path(text: str | None) -> Path | None:
    return None if text is None else Path(text).expanduser()


def _tell(message: EdgeWaits | EdgeEnded) -> None:
    sys.stdout.buffer.write(to_line(message))
    sys.stdout.buffer.flush()


def _say(text: str) -> None:
    print(printable(text, MOST_TEXT), flush=True)


def _obey_the_agent(processes: Sequence[EdgeProcess]) -> None:
    """Inject the faults that the agent orders, and end with it: then standard input is closed."""
    splitter = LineSplitter(MOST_LINE)
    while data := os.read(0, READ_BYTES):  # not by sys.stdin, which could not be closed at the end
        for line in splitter.split(data):
            order = from_line(line)
            if isinstance(order, InjectFault) and processes:
                processes[-1].inject(order)
    os._exit(1)
