"""Carries out the faults of a story in a simulated run."""

from __future__ import annotations

from typing import Any

from search.machine import NS_PER_S, Process
from search.network import DOWN, MS, UP
from search.story import COORDINATOR, Fault

WAYS = {"up": (UP,), "down": (DOWN,), "both": (UP, DOWN)}


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
    _DO[fault.kind](run, process, fault)


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


_DO = {
    "cut": _cut,
    "block": _block,
    "slow": _slow,
    "late": _late,
    "hello": _hello,
    "twin": _twin,
    "kill": _kill,
    "freeze": _freeze,
    "sleep": _sleep,
    "jump": _jump,
    "full": _full,
    "io": _io,
    "lose": _kill,
    "flip": _kill,
    "busy": _busy,
    "worker": _worker,
}
