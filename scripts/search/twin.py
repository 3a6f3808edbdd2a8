"""The unbroken twin of a run: a new coordinator that gets the same inputs, without any crash.

After a resumption, and at the end of a run, both must be in the same state: the strategy's vectors
and numbers, its random generators, open tasks, alarms, open jobs, counters.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from enum import Enum
from functools import partial
from itertools import count, zip_longest
from pathlib import PurePath
from types import FunctionType, MethodType
from typing import Any
from weakref import ref

import numpy as np
import orjson
import xxhash
from msgspec.structs import replace

from edgefl.clocks.setup.plan import fidelity
from edgefl.clocks.setup.rundir import externals
from edgefl.clocks.wall.coordinator.logic import Logic
from edgefl.clocks.wall.coordinator.process import open_run
from edgefl.disk import OwnDisk
from edgefl.record.journal import JournalEntry, Position
from edgefl.record.tables import at_once
from edgefl.vectors import aligned_copy
from emulator.fidelity import Fidelity
from search.scenario import Scenario, World

Input = tuple[bytes, dict[str, np.ndarray], float]  # the item's row as JSON, its arrays, wall_s
Leaf = tuple[str, str]  # the path to a value, and the value
PLAIN = (bool, int, float, str, bytes, bytearray, range, count, Enum, type, FunctionType, PurePath)


class History:
    """All inputs of a run so far, those that were repeated included; without those that were lost.

    ``flushed``, ``synced``: how many of them the journal has handed to the system, and to the disk.
    """

    def __init__(self, world: World, scenario: Scenario) -> None:
        self.world, self.scenario = world, scenario
        self.inputs: list[Input] = []
        self.flushed = self.synced = 0
        self._starts = {0: 0}  # segment of the journal -> how many inputs were before it
        self._process: Any = None  # the latest of the coordinator
        self._busy = False  # it is in the middle of an input
        self._refused = False  # its journal could not be written
        self._dead: list[Leaf] | None = None  # the state in which it has died

    def observe(self, process: Any) -> None:
        """See the inputs that this process of the coordinator will handle."""
        self._process, self._busy, self._refused, self._dead = process, False, False, None
        logic, journal = process.logic, process.logic.journal
        handle, put, flush = logic._handle, journal.input, journal.flush
        sync, begin_segment = journal.sync, journal.begin_segment

        def handled(item: Any) -> Any:
            self._busy = True
            wishes = handle(item)
            self._busy = False
            return wishes

        def kept(item: Any, arrays: Mapping[str, Any], wall_s: float, end: str) -> None:
            copies = {name: aligned_copy(array) for name, array in arrays.items()}
            text = orjson.dumps(item, option=orjson.OPT_SERIALIZE_NUMPY)
            self.inputs.append((text, copies, wall_s))
            try:
                put(item, arrays, wall_s, end)
            except Exception:
                self._refused = True  # its arrays could not be written, so it has no row
                raise

        def flushed() -> None:
            reached = len(self.inputs)
            try:
                flush()
            except Exception:
                self._refused = True  # later rows are dropped
                raise
            if not self._refused:
                self.flushed = reached

        def synced() -> None:
            reached = self.flushed
            sync()
            self.synced = max(self.synced, reached)

        def begun() -> int:
            number: int = begin_segment()
            self._starts[number] = len(self.inputs)
            return number

        logic._handle, journal.input, journal.flush = handled, kept, flushed
        journal.sync, journal.begin_segment = synced, begun

    def before(self, segment: int) -> int:
        """How many inputs were before this segment of the journal."""
        return self._starts[segment]

    def died(self) -> None:
        """The process has died."""
        if self._process is not None and not self._busy:
            self._dead = state(self._process.logic.core, self._process.run)
        self._process = None

    def resumed(self, process: Any) -> tuple[int, str | None]:
        """A process has gone on. Returns how many inputs it knows, and where its state is wrong."""
        segment, entries = process.logic.journal._written
        known = self._starts[segment] + entries
        twin = Twin(self.world, self.scenario)
        try:
            twin.repeat(self.inputs[:known])
            wrong = difference(state(process.logic.core, process.run), twin.state())
            if wrong is None and self._dead is not None:
                twin.repeat(self.inputs[known:])
                wrong = difference(self._dead, twin.state())
                wrong = wrong and f"before the crash, {wrong}"
        finally:
            twin.close()
        del self.inputs[known:]
        self._starts = {each: at for each, at in self._starts.items() if each <= segment}
        self.flushed, self.synced = min(self.flushed, known), min(self.synced, known)
        return known, wrong

    def ended(self, process: Any) -> str | None:
        """The run has ended. Returns where its state is wrong."""
        twin = Twin(self.world, self.scenario)
        try:
            twin.repeat(self.inputs)
            return difference(state(process.logic.core, process.run), twin.state())
        finally:
            twin.close()


class Twin:
    """A coordinator without sockets, whose only inputs are those that were noted."""

    def __init__(self, world: World, scenario: Scenario) -> None:
        self.folder = world.scratch / "twin"
        task = replace(world.coordinator_task(scenario, resume=False), directory=self.folder)
        learned = world.learned(scenario)
        opened = open_run(
            task,
            learned.experiment,
            aligned_copy(learned.initial_weights()),
            learned.layout,
            True,
            learned.runs_jobs,
            OwnDisk(),
            at_once,
            lambda line: None,
        )
        self.run, self.core = opened.run, opened.core
        self.logic = Logic(self.core, _Nobody(), fidelity(learned.experiment))

    def repeat(self, inputs: list[Input]) -> None:
        self.logic.replay(
            JournalEntry(orjson.loads(item), arrays, wall_s, [], [], Position(0))
            for item, arrays, wall_s in inputs
        )
        self.core.keeps_weights = False
        self.core.forget_weights()

    def state(self) -> list[Leaf]:
        return state(self.core, self.run)

    def close(self) -> None:
        self.logic.journal.close() if self.logic.journal is not None else None
        shutil.rmtree(self.folder, ignore_errors=True)


class _Nobody:
    """Takes what would leave the process."""

    def put(self, *items: Any) -> None:
        return None


def state(core: Any, run: Any) -> list[Leaf]:
    """All values that a resumed run needs, by their paths."""
    names = {id(found): name for name, found in externals(run).items()}
    root = {"core": core, "wall_at": run.record.wall_at}
    return list(_Walk(names).leaves(root, ""))


def difference(found: list[Leaf], twin: list[Leaf]) -> str | None:
    """Say where a state differs first from the twin's; None: nowhere."""
    for one, other in zip_longest(found, twin, fillvalue=("the end", "")):
        if one != other:
            (path, value), (of_twin, expected) = one, other
            where = path if path == of_twin else f"{path} instead of {of_twin}"
            return f"{where} is {value[:60]}, in the unbroken twin {expected[:60]}"
    return None


class _Walk:
    """Takes a graph of objects apart. Independent of how checkpoints are written."""

    def __init__(self, names: Mapping[int, str]) -> None:
        self.names = names  # id -> name of what each process makes itself
        self._within: set[int] = set()  # ids of the objects on the way: there may be circles

    def leaves(self, found: Any, path: str) -> Iterator[Leaf]:
        name = self.names.get(id(found))
        if found is None or isinstance(found, (*PLAIN, np.generic, np.dtype)):
            yield path, repr(found)
        elif isinstance(found, ref):
            return  # only saves time
        elif name is not None and not hasattr(type(found), "restore"):
            yield path, f"the {name}"
        elif isinstance(found, np.ndarray):
            data = np.ascontiguousarray(found).reshape(-1).view(np.uint8)
            yield path, f"{found.dtype}{found.shape} {xxhash.xxh3_64_hexdigest(data)}"
        elif id(found) not in self._within:
            self._within.add(id(found))
            for label, part in _parts(found):
                yield from self.leaves(part, f"{path}{label}")
            self._within.remove(id(found))


def _parts(found: Any) -> Iterator[tuple[str, Any]]:
    """The parts of an object, and how each is reached."""
    match found:
        case np.random.Generator():
            yield ".bit_generator", found.bit_generator.state
        case Fidelity():  # what the host is, each process finds out itself
            yield ".counts()", found.counts()
        case partial():
            yield ".func", found.func
            yield ".args", found.args
            yield ".keywords", found.keywords
        case MethodType():
            yield ".__func__", found.__func__
            yield ".__self__", found.__self__
        case set() | frozenset():
            yield "{}", sorted(map(repr, found))
        case dict():
            for key, value in found.items():
                yield f"[{key!r}]", value
        case list() | tuple():
            for place, value in enumerate(found):
                yield f"[{place}]", value
        case _ if hasattr(found, "state") and hasattr(found, "restore"):
            yield ".state()", found.state()
        case _:
            yield from _attributes(found)


def _attributes(found: Any) -> Iterator[tuple[str, Any]]:
    if hasattr(found, "__iter__") and hasattr(found, "__len__"):  # a deque or one of our own
        for place, value in enumerate(found):
            yield f"[{place}]", value
    for name, value in getattr(found, "__dict__", {}).items():
        yield f".{name}", value
    for base in type(found).__mro__:
        slots = vars(base).get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if hasattr(found, name):
                yield f".{name}", getattr(found, name)
