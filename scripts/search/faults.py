"""The faults of a story: which kinds there are, how each is drawn, and how it strikes a run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from msgspec import Struct

from search.machine import NS_PER_S, Process
from search.network import DOWN, MS, UP
from search.scenario import EDGES

COORDINATOR = "coordinator"
SOME_BYTES = 6_000  # about the size of a model
CALLS = (1, 200)  # of the system, by a process that dies in the last one
WAYS = {"up": (UP,), "down": (DOWN,), "both": (UP, DOWN)}


class Fault(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """One fault. What ``for_s``, ``count`` and ``way`` mean is said in ``KINDS``."""

    kind: str
    at_s: float
    target: str
    for_s: float = 0.0
    count: int = 0
    way: str = ""

    def __str__(self) -> str:
        more = [f"for {self.for_s:g} s" if self.for_s else "", self.way]
        more.append(f"count {self.count}" if self.count else "")
        words = [f"at {self.at_s:g} s: {self.kind} {self.target}", *filter(None, more)]
        return ", ".join(words)


def plan(run: Any, faults: tuple[Fault, ...]) -> None:
    """Let each fault strike at its moment. ``run``: ``search.run.Run``."""
    for fault in faults:
        run.sim.at(_ns(fault.at_s), _strike, run, fault)


def _ns(moment_s: float) -> int:
    return round(moment_s * NS_PER_S)


def _strike(run: Any, fault: Fault) -> None:
    process = run.processes.get(fault.target)
    if process is None or not process.alive:
        return  # it is down anyway
    run.sim.tell("fault:", fault)
    run.watch.strikes(fault)
    KINDS[fault.kind].strike(run, process, fault)


def _cut(run: Any, process: Process, fault: Fault) -> None:
    path = run.network.path(fault.target)
    path.refused_ns = run.sim.now_ns + _ns(fault.for_s)
    path.cut_after[fault.way] = fault.count


def _block(run: Any, process: Process, fault: Fault) -> None:
    run.network.block(fault.target, WAYS[fault.way], run.sim.now_ns + _ns(fault.for_s))


def _slow(run: Any, process: Process, fault: Fault) -> None:
    path = run.network.path(fault.target)
    path.slow_ns, path.slow_of = fault.count * MS, run.network.made
    path.slow_until_ns = run.sim.now_ns + _ns(fault.for_s)


def _late(run: Any, process: Process, fault: Fault) -> None:
    path = run.network.path(fault.target)
    path.slow_ns, path.slow_of = fault.count * MS, run.network.made + 1
    path.slow_until_ns = 1 << 62
    run.restarts[process] = fault
    process.kill()


def _hello(run: Any, process: Process, fault: Fault) -> None:
    for connection in run.network.connections(fault.target):
        if connection.dealer.hello is not None:
            connection.send(UP, connection.dealer.hello)


def _twin(run: Any, process: Process, fault: Fault) -> None:
    twin = run.start_edge(fault.target, twin=True)
    run.sim.after(_ns(fault.for_s), twin.kill)


def _kill(run: Any, process: Process, fault: Fault) -> None:
    process.fuse = fault.count
    run.restarts[process] = fault  # the latest one counts


def _freeze(run: Any, process: Process, fault: Fault) -> None:
    if fault.target == COORDINATOR:
        run.watch.froze(fault.for_s)
    process.freeze(run.sim.now_ns + _ns(fault.for_s))


def _sleep(run: Any, process: Process, fault: Fault) -> None:
    until_ns = run.sim.now_ns + _ns(fault.for_s)
    if fault.target == COORDINATOR:
        run.watch.disturb(until_ns)
    process.freeze(until_ns)
    process.clock_ns -= _ns(fault.for_s)
    process.slept_ns += _ns(fault.for_s)


def _jump(run: Any, process: Process, fault: Fault) -> None:
    if fault.target == COORDINATOR:
        run.watch.froze(fault.for_s)
    process.clock_ns += _ns(fault.for_s)


def _full(run: Any, process: Process, fault: Fault) -> None:
    until_ns = run.sim.now_ns + _ns(fault.for_s)
    run.watch.disturb(until_ns)
    run.disk.room_bytes = fault.count
    run.disk.full_until_ns = max(run.disk.full_until_ns, until_ns)
    run.disk.refused = 0
    run.sim.at(until_ns, _room, run, process)


def _room(run: Any, process: Process) -> None:
    if run.sim.now_ns >= run.disk.full_until_ns:
        run.disk.room_bytes = None
        if run.disk.refused:
            run.sim.after(NS_PER_S, run.watch.waited, process)


def _io(run: Any, process: Process, fault: Fault) -> None:
    until_ns = run.sim.now_ns + _ns(fault.for_s)
    run.watch.disturb(until_ns)
    run.disk.fails[fault.way] = until_ns, fault.count


def _busy(run: Any, process: Process, fault: Fault) -> None:
    until_ns = run.sim.now_ns + _ns(fault.for_s)
    run.watch.disturb(until_ns)
    for thread in process.threads:
        thread.slow_ns = run.sim.draw(fault.count * MS)
        run.sim.at(until_ns, setattr, thread, "slow_ns", 0)


def _worker(run: Any, process: Process, fault: Fault) -> None:
    if run.worker is not None:
        run.worker.dies += fault.count


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of fault. ``on``: whom it strikes; "any": an edge, or the coordinator in 4 of 10.

    ``longest_s``, ``counts`` and ``ways``: from which values its duration, its count (the last one
    is left out) and its way are drawn.
    """

    strike: Callable[[Any, Process, Fault], None]
    on: str = "edge"
    longest_s: float = 0.0
    counts: tuple[int, int] | None = None
    ways: tuple[str, ...] = ()


KINDS = {
    # the connection breaks ``count`` bytes later; connecting fails for ``for_s``
    "cut": Kind(_cut, longest_s=8.0, counts=(0, SOME_BYTES), ways=("up", "down")),
    # nothing arrives for ``for_s``, and is late then
    "block": Kind(_block, longest_s=12.0, ways=tuple(WAYS)),
    # the present connection is slow by ``count`` ms for ``for_s``; a newer one overtakes it
    "slow": Kind(_slow, longest_s=8.0, counts=(1, 6000)),
    # the edge is started again; its first connection is slow by ``count`` ms, the next overtakes it
    "late": Kind(_late, longest_s=2.0, counts=(3000, 9000)),
    # the edge's Hello arrives once more
    "hello": Kind(_hello),
    # a second process with the edge's id runs for ``for_s``
    "twin": Kind(_twin, longest_s=8.0),
    # the process dies ``count`` calls of the system later, and is started ``for_s`` after that
    "kill": Kind(_kill, longest_s=10.0, counts=CALLS),
    # way "power": the coordinator's host loses what was not synced
    "crash": Kind(_kill, COORDINATOR, 10.0, CALLS, ("process", "power")),
    "freeze": Kind(_freeze, "any", 10.0),
    # the host sleeps: its processes stand still, and so does their monotonic clock
    "sleep": Kind(_sleep, "any", 15.0),
    # the monotonic clock jumps ahead
    "jump": Kind(_jump, "any", 15.0),
    # the disk is full after ``count`` more bytes, for ``for_s``
    "full": Kind(_full, COORDINATOR, 8.0, (0, SOME_BYTES)),
    # the disk's calls of a kind (way) fail with EIO, one of ``count``, for ``for_s``
    "io": Kind(_io, COORDINATOR, 6.0, (1, 20), ("read", "write", "sync")),
    # the coordinator dies as by "kill"; one of its files is lost, or one bit of it differs
    "lose": Kind(_kill, COORDINATOR, 5.0, CALLS, ("checkpoints", "journal")),
    "flip": Kind(_kill, COORDINATOR, 5.0, CALLS, ("checkpoints", "journal")),
    # threads of the coordinator run up to ``count`` ms late, for ``for_s``
    "busy": Kind(_busy, COORDINATOR, 5.0, (1, 300)),
    # the job worker dies ``count`` times
    "worker": Kind(_worker, COORDINATOR, counts=(1, 3)),
}


def drawn(name: str, at_s: float, rng: np.random.Generator) -> Fault:
    """Draw a fault of this kind. Durations are often short."""
    kind = KINDS[name]
    on_coordinator = kind.on == COORDINATOR or (kind.on == "any" and rng.random() < 0.4)
    return Fault(
        "kill" if name == "crash" else name,
        at_s,
        COORDINATOR if on_coordinator else str(rng.choice(EDGES)),
        round(float(kind.longest_s * rng.random() ** 2), 3) if kind.longest_s else 0.0,
        int(rng.integers(*kind.counts)) if kind.counts else 0,
        str(rng.choice(kind.ways)) if kind.ways else "",
    )
