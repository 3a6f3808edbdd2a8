"""The process of an edge that an agent has started: a fork of the agent."""

from __future__ import annotations

import gc
import os
import sys
from pathlib import Path

from edgefl.clocks.setup.learning import Learning, learning
from edgefl.clocks.wall.edge.host import MOST_TEXT, EdgeHost
from edgefl.clocks.wall.edge.machine import share_memory
from edgefl.clocks.wall.edge.membership import SideBuilder
from edgefl.clocks.wall.edge.work import EdgeSide, OwnMachine
from edgefl.clocks.wall.keys import EdgeKeys, load_edge
from edgefl.errors import UserError, printable
from edgefl.exit_status import NO_ANSWER, OVER, REFUSED
from edgefl.plugins.launch.agent_messages import EdgeWaits, PrepareEdges, to_line
from edgefl.protocol.errors import Refused, Unreachable
from edgefl.protocol.messages import Setup

# Seconds to wait for the coordinator, before the first run and between two. It may load data and
# evaluate then. The launcher ends edges whose coordinator is gone.
PATIENCE_S = 3600.0
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


def run_edge(name: str, address: str, order: PrepareEdges, learned: Learning | None) -> int:
    """Take part in all runs of the coordinator at ``address``. Returns the exit status."""
    sys.setswitchinterval(SWITCH_S)
    if order.nice:
        os.nice(order.nice)
    try:
        return _all_runs(name, address, _builder(order, name, learned), _keys(order, name))
    except Unreachable as silence:
        _say(f"{address}: {silence}")
        return NO_ANSWER
    except Refused as refusal:
        _say(f"refused: {refusal}")
        return REFUSED
    except UserError as error:
        _say(f"cannot take part: {error}")
        return error.status


def _all_runs(name: str, address: str, builder: SideBuilder, keys: EdgeKeys | None) -> int:
    def side(setup: Setup) -> EdgeSide:
        _tell(EdgeWaits(name, waits=False))
        return builder.side(setup)

    while True:
        _tell(EdgeWaits(name, waits=True))
        finished = EdgeHost(name, address, keys, side, OwnMachine()).run(PATIENCE_S)
        _say(f"{builder.strategy}: the run is over ({finished.reason})")
        if not finished.more:
            return OVER


def _builder(order: PrepareEdges, name: str, learned: Learning | None = None) -> SideBuilder:
    data, shards = _path(order.data), _path(order.shards)
    return SideBuilder(name, None, data, [*order.allow], shards, learned)


def _keys(order: PrepareEdges, name: str) -> EdgeKeys | None:
    folder = _path(order.keys)
    return None if folder is None else load_edge(folder, name)


def _path(text: str | None) -> Path | None:
    return None if text is None else Path(text).expanduser()


def _tell(message: EdgeWaits) -> None:
    sys.stdout.buffer.write(to_line(message))
    sys.stdout.buffer.flush()


def _say(text: str) -> None:
    print(printable(text, MOST_TEXT), flush=True)
