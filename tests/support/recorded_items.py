"""A run of the logic thread by hand: its inputs, one by one, and what becomes of them."""

from __future__ import annotations

import hashlib
import shutil
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from types import MethodType
from typing import Any

import msgspec
import numpy as np
from builders import experiment, layout, vector
from host_reports import FACTS, REPORT

from edgefl.clocks.process_messages import StartRun
from edgefl.clocks.setup.rundir import externals
from edgefl.clocks.wall.coordinator import thread_messages as messages
from edgefl.clocks.wall.coordinator.logic import Logic
from edgefl.clocks.wall.coordinator.process import open_run
from edgefl.clocks.wall.coordinator.thread_messages import JobOrder
from edgefl.clocks.wall.system import OWN_SYSTEM
from edgefl.disk import OwnDisk
from edgefl.jobs import Evaluate
from edgefl.protocol.codec import Incoming, Outgoing
from edgefl.protocol.messages import FreshRequest, Joined, Ready, Started, TaskFailed, Update
from edgefl.record.tables import at_once
from edgefl.strategies.base.events_and_decisions import EdgeLost
from emulator.fidelity import Fidelity
from emulator.links.link import Completion, Transfer
from emulator.units import NS_PER_S as S


class Paper:
    """A mailbox and the ends of the workers, which only note what they get, as texts."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.jobs: list[JobOrder] = []

    def put(self, *items: Any) -> None:
        self.lines += map(told, items)

    def submit(self, order: Evaluate | JobOrder) -> None:
        self.lines.append(told(order))
        if isinstance(order, JobOrder):
            self.jobs.append(order)

    def expect(self, job: Evaluate) -> None:
        pass

    def handled(self, key: tuple[int, bool]) -> None:
        self.lines.append(f"evaluated {key[0]}")

    def snapshot(self, key: tuple[int, bool]) -> None:
        return None


def told(wish: Any) -> str:
    """A message to the pacing thread or an order, with the bytes of its vectors."""
    match wish:
        case messages.Carry():
            return f"carry {wish.now} {wish.edge} {wish.outgoing.offer(0)}"
        case messages.CarryAll():
            each = [f"{edge} {outgoing.offer(0)}" for edge, outgoing in wish.outgoings]
            return f"carry {wish.now} {wish.number} {each} {wish.slots}"
        case Evaluate():
            return f"evaluate {wish.version} {wish.at_ns} {wish.bytes_up} {wish.bytes_down}"
        case JobOrder():
            return f"job {wish.number} {wish.start_ns} {wish.due_ns}"
    return repr(wish)


def summed(found: Any, externals: dict[int, str], depth: int, known: dict[Any, str]) -> str:
    """A digest of a graph of objects; whether equal ones are one object does not count.

    ``depth``: how many objects deep it looks.
    """

    def inner(part: Any) -> str:
        return summed(part, externals, depth - 1, known)

    if depth == 0 or isinstance(found, (type, str, int, float, bytes, type(None))):
        return repr(found) if depth else ""
    if (id(found), depth) not in known:
        name = externals.get(id(found), type(found).__qualname__)
        match found:
            case np.ndarray():
                parts = [found.dtype.str, repr(found.shape), found.tobytes().hex()]
            case np.random.Generator():
                parts = [inner(found.bit_generator.state)]
            case MethodType():
                parts = [found.__name__, inner(found.__self__)]
            case dict():
                parts = [f"{inner(key)}:{inner(value)}" for key, value in found.items()]
            case list() | tuple() | deque():
                parts = [inner(part) for part in found]
            case set() | frozenset():
                parts = sorted(inner(part) for part in found)
            case msgspec.Struct():
                parts = [inner(part) for part in msgspec.structs.asdict(found).values()]
            case _ if hasattr(found, "restore"):
                parts = [inner(found.state())]
            case _:
                parts = [] if id(found) in externals else [inner(found.__getstate__())]
        digest = hashlib.sha256(f"{name}({parts})".encode()).hexdigest()
        known[id(found), depth] = digest, found  # kept, so that its id stays its own
    return str(known[id(found), depth][0])


class HandRun:
    """A run in ``folder`` whose inputs the test gives."""

    def __init__(self, folder: Path, resume: bool = False, **sections: Any) -> None:
        self.paper, self.folder, self.said = Paper(), folder, list[str]()
        given = experiment(**sections)
        text, base = given.model_dump_json(), None
        job = StartRun(text, 0, folder, base, folder, "", None, False, (), False, resume, "")
        what = (vector(0, 0, 0), layout(), True, True)
        opened = open_run(job, given, *what, OwnDisk(), at_once, self.said.append)
        self.run, core = opened.run, opened.core
        paper: Any = self.paper
        self.logic = Logic(core, paper, Fidelity(), paper, paper, wall_s=opened.wall_s)
        self.writer = opened.writer(paper, self.said.append, OWN_SYSTEM)
        self.logic.elapsed_s = lambda: self.seconds  # type: ignore[method-assign]
        self.seconds = opened.wall_s
        if resume:
            journal = self.run.record.journal
            assert journal is not None
            self.logic.replay(journal.replay(opened.since, self.said.append))
            core.keeps_weights = False
            core.forget_weights()
            self.paper.jobs = list(self.open_jobs.values())
            self.seconds = self.logic.wall_s

    def checkpoint(self) -> None:
        """Take a checkpoint now, and wait until it is written."""
        assert self.writer is not None
        self.writer.take(self.seconds)
        self.writer.stop()

    @property
    def open_jobs(self) -> dict[int, JobOrder]:
        jobs = self.logic.core.jobs
        assert jobs is not None
        return jobs.open

    def give(self, item: Any) -> None:
        self.seconds += 0.125
        self.logic._take(item)
        self.logic._commit()

    def files(self) -> dict[str, bytes]:
        """The content of the run's files, without the journal."""
        self.run.record.flush()
        return {
            path.name: path.read_bytes()
            for path in sorted(self.folder.iterdir())
            if path.is_file() and path.suffix in (".csv", ".jsonl")
        }

    def state(self) -> str:
        """All that the coordinator knows, in a form that can be compared."""
        names = {id(found): name for name, found in externals(self.run).items()}
        return summed(self.logic.core, names, 24, {})

    def close(self) -> None:
        self.run.record.close(self.run.coordinator.weights)

    def killed(self, copy: Path) -> None:
        """Copy what a killed process leaves; rows that it has not flushed are lost."""
        shutil.copytree(self.folder, copy)


def whole(now: int, edge: str, task: int, *weights: float, damaged: bool = False) -> Any:
    """An update that has arrived with all its bytes."""
    update = Update(task, 0, {"weights": vector(*weights)}, {"samples": 10.0})
    outgoing = Outgoing(7, update)
    incoming = Incoming(outgoing.offer(0), 1 << 20)
    body = np.frombuffer(bytes(outgoing.piece(0, outgoing.body)), np.uint8).copy()
    body[-1] ^= damaged
    incoming.add(0, body.data)
    return messages.Whole(now, edge, incoming)


def carried(number: int, edge: str, way: str, kind: str, now: int) -> messages.Carried:
    completion = Completion(Transfer(number, edge, way, 99, kind), 0, 1, now)
    return messages.Carried(completion, now, [(1, now, 99)] if way == "up" else [])


def items(run: HandRun) -> Iterator[Any]:
    """Inputs of each kind. Results of jobs name the orders that ``run`` has given."""
    yield messages.Noticed(0, "edge_waits", {"edge": "a"})
    yield messages.HostSaid(0, "a", FACTS)
    yield messages.Begin({"a": 10, "b": 10, "c": 10}, 1000.0)
    for number, edge in enumerate("abc"):
        yield carried(number + 1, edge, "down", "task", S)
        yield messages.Heard(S, edge, Started(number))
    yield messages.HostSaid(2 * S, "a", REPORT)
    yield messages.Heard(2 * S, "a", Ready(0, 99))
    yield carried(9, "a", "up", "update", 3 * S)
    yield whole(3 * S, "a", 0, 3, 0, 0)
    yield messages.Scored(0, (None, 2.5, 0.5))
    yield messages.Heard(3 * S, "b", Ready(1, 99))
    yield whole(4 * S, "b", 1, 0, 6, 0, damaged=True)
    yield whole(4 * S, "b", 1, 0, 6, 0)
    yield messages.Measured("training", "b", 8, [(S, 2 * S, 99)])
    yield messages.Judged(4 * S, Fidelity(), [["wire error", "b", 1]], {"z": "too many frames"})
    if run.paper.jobs:
        order = run.paper.jobs.pop(0)
        yield messages.Worked(4 * S, order, ({"weights": vector(1, 2, 3)}, {"loss": float("nan")}))
    yield messages.Heard(5 * S, "c", EdgeLost("c"))
    yield messages.Heard(6 * S, "c", Joined(8, [2]))
    yield messages.Heard(6 * S, "c", FreshRequest(2, 0, 1))
    yield messages.Unevaluated(1, "no room")
    yield messages.Heard(7 * S, "c", TaskFailed(2, "too hot", "Traceback"))
    yield messages.EvaluatorGone()
    while (due := run.logic.core.next_due()) <= 12 * S:
        yield messages.Rang(due)
    if run.paper.jobs:
        yield messages.Worked(12 * S, run.paper.jobs.pop(0), "its worker died 3 times", 1.0, 3)
    yield messages.Resumed(13 * S, 2.5, 2000.0)
    yield messages.Rang(14 * S)
