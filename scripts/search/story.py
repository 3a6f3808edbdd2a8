"""A story: a scenario and the faults that strike it, drawn from one seed. Told as JSON, too.

A story that fails is shrunk to the shortest one that still fails in the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

import numpy as np
import orjson

from search.scenario import EDGES, SCHEMES, Scenario, random_scenario

COORDINATOR = "coordinator"
MOST_FAULTS = 7
NATIVE_SHARE = 0.3  # of the stories, less those of schemes with a channel
LAST_S = 10.0  # faults begin by then; an undisturbed run takes about so long
SOME_BYTES = 6_000  # about the size of a model


@dataclass(frozen=True, slots=True)
class Fault:
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


Draw = Callable[[np.random.Generator, float], Fault]


def _edge(rng: np.random.Generator) -> str:
    return str(rng.choice(EDGES))


def _any(rng: np.random.Generator) -> str:
    return COORDINATOR if rng.random() < 0.4 else _edge(rng)


def _short_s(rng: np.random.Generator, most_s: float) -> float:
    """A duration: often short, at times as long as ``most_s``."""
    return round(float(most_s * rng.random() ** 2), 3)


def _way(rng: np.random.Generator) -> str:
    return str(rng.choice(["up", "down", "both"]))


def _files(rng: np.random.Generator) -> str:
    return str(rng.choice(["checkpoints", "journal"]))


def _calls(rng: np.random.Generator) -> int:
    return int(rng.integers(1, 200))


# kind of fault -> how one is drawn, at a given moment (s)
KINDS: dict[str, Draw] = {
    # the connection breaks ``count`` bytes later; connecting fails for ``for_s``
    "cut": lambda rng, at_s: Fault(
        "cut",
        at_s,
        _edge(rng),
        _short_s(rng, 8.0),
        int(rng.integers(0, SOME_BYTES)),
        str(rng.choice(["up", "down"])),
    ),
    # nothing arrives for ``for_s``, and is late then
    "block": lambda rng, at_s: Fault("block", at_s, _edge(rng), _short_s(rng, 12.0), way=_way(rng)),
    # the present connection is slow by ``count`` ms for ``for_s``; a newer one overtakes it
    "slow": lambda rng, at_s: Fault(
        "slow", at_s, _edge(rng), _short_s(rng, 8.0), int(rng.integers(1, 6000))
    ),
    # the edge is started again; its first connection is slow by ``count`` ms, the next overtakes it
    "late": lambda rng, at_s: Fault(
        "late", at_s, _edge(rng), _short_s(rng, 2.0), int(rng.integers(3000, 9000))
    ),
    # the edge's Hello arrives once more
    "hello": lambda rng, at_s: Fault("hello", at_s, _edge(rng)),
    # a second process with the edge's id runs for ``for_s``
    "twin": lambda rng, at_s: Fault("twin", at_s, _edge(rng), _short_s(rng, 8.0)),
    # the process dies ``count`` calls of the system later, and is started ``for_s`` after that;
    # way "power": the coordinator's host loses what was not synced
    "kill": lambda rng, at_s: Fault("kill", at_s, _edge(rng), _short_s(rng, 10.0), _calls(rng)),
    "crash": lambda rng, at_s: Fault(
        "kill",
        at_s,
        COORDINATOR,
        _short_s(rng, 10.0),
        _calls(rng),
        str(rng.choice(["process", "power"])),
    ),
    "freeze": lambda rng, at_s: Fault("freeze", at_s, _any(rng), _short_s(rng, 10.0)),
    # the host sleeps: its processes stand still, and so does their monotonic clock
    "sleep": lambda rng, at_s: Fault("sleep", at_s, _any(rng), _short_s(rng, 15.0)),
    # the monotonic clock jumps ahead
    "jump": lambda rng, at_s: Fault("jump", at_s, _any(rng), _short_s(rng, 15.0)),
    # the disk is full after ``count`` more bytes, for ``for_s``
    "full": lambda rng, at_s: Fault(
        "full", at_s, COORDINATOR, _short_s(rng, 8.0), int(rng.integers(0, SOME_BYTES))
    ),
    # the disk's calls of a kind (way) fail with EIO, one of ``count``, for ``for_s``
    "io": lambda rng, at_s: Fault(
        "io",
        at_s,
        COORDINATOR,
        _short_s(rng, 6.0),
        int(rng.integers(1, 20)),
        str(rng.choice(["read", "write", "sync"])),
    ),
    # the coordinator dies as by "kill"; one of its files is lost, or one bit of it differs
    "lose": lambda rng, at_s: Fault(
        "lose", at_s, COORDINATOR, _short_s(rng, 5.0), _calls(rng), _files(rng)
    ),
    "flip": lambda rng, at_s: Fault(
        "flip", at_s, COORDINATOR, _short_s(rng, 5.0), _calls(rng), _files(rng)
    ),
    # threads of the coordinator run up to ``count`` ms late, for ``for_s``
    "busy": lambda rng, at_s: Fault(
        "busy", at_s, COORDINATOR, _short_s(rng, 5.0), int(rng.integers(1, 300))
    ),
    # the job worker dies ``count`` times
    "worker": lambda rng, at_s: Fault("worker", at_s, COORDINATOR, count=int(rng.integers(1, 3))),
}


@dataclass(frozen=True, slots=True)
class Story:
    """``seed``: of the simulation's own draws: delays, torn writes, the order of threads."""

    seed: int
    scenario: Scenario
    faults: tuple[Fault, ...]

    @classmethod
    def of(cls, seed: int) -> Story:
        """The story of this seed."""
        rng = np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, 0])))
        scenario = random_scenario(rng)
        count = int(rng.integers(1, MOST_FAULTS + 1))
        moments = sorted(round(float(rng.uniform(0.0, LAST_S)), 3) for _ in range(count))
        kinds = rng.choice(sorted(KINDS), count)
        at = zip(kinds, moments, strict=True)
        faults = tuple(KINDS[str(kind)](rng, at_s) for kind, at_s in at)
        native = bool(rng.random() < NATIVE_SHARE) and "medium" not in SCHEMES[scenario.scheme][1]
        return cls(seed, replace(scenario, native=native), faults)

    def without(self, index: int) -> Story:
        return replace(self, faults=self.faults[:index] + self.faults[index + 1 :])

    def with_fault(self, index: int, fault: Fault) -> Story:
        return replace(self, faults=(*self.faults[:index], fault, *self.faults[index + 1 :]))

    @property
    def loses_power(self) -> bool:
        """Whether updates that were acknowledged may be lost: nothing was synced before."""
        power = any(fault.way == "power" for fault in self.faults)
        return power and self.scenario.durability != "power"

    @property
    def damages(self) -> bool:
        """Whether files are damaged: a run may refuse to go on, if it says why."""
        return any(fault.kind in ("lose", "flip") for fault in self.faults)

    @property
    def forgets(self) -> bool:
        """Whether edges may know of things that the run has lost."""
        return self.loses_power or self.damages

    def tell(self) -> list[str]:
        """The story in lines."""
        scenario = self.scenario
        more = ", tasks with one limit" if scenario.bounded else ""
        more += ", checkpoints" if scenario.checkpoints else ""
        more += ", native links" if scenario.native else ""
        more += f", updates as {scenario.up}" if scenario.up else ""
        more += f", models as {scenario.down}" if scenario.down else ""
        head = f"{scenario.scheme}, durability {scenario.durability}, pace {scenario.pace:g}{more}"
        return [head, *map(str, self.faults)]

    # ------------------------------------------------------------------ JSON
    def to_json(self) -> str:
        """The story in one line, without the fields that have their default."""
        faults = [
            {
                each.name: getattr(fault, each.name)
                for each in fields(Fault)
                if getattr(fault, each.name) != each.default
            }
            for fault in self.faults
        ]
        plain = {"seed": self.seed, "scenario": asdict(self.scenario), "faults": faults}
        return orjson.dumps(plain).decode()

    @classmethod
    def from_json(cls, text: str) -> Story:
        """The story of ``to_json``. ValueError, TypeError or KeyError if it is none."""
        plain: dict[str, Any] = orjson.loads(text)
        faults = tuple(Fault(**fault) for fault in plain["faults"])
        return cls(plain["seed"], Scenario(**plain["scenario"]), faults)


Broken = Callable[[Story], str | None]
MOST_RUNS = 300


def kind_of(broken: str) -> str:
    """What is wrong, without the numbers and names of this one run."""
    return " ".join(word for word in broken.split() if word.isalpha())[:60]


def shrunk(story: Story, broken: Broken) -> tuple[Story, int]:
    """Leave out faults and make the others shorter and rounder, as long as the same is broken.

    ``broken`` plays a story. Returns the story, and how many were played.
    """
    first, runs = broken(story), 1
    if first is None:
        return story, runs
    wanted, progress = kind_of(first), True
    while progress and runs < MOST_RUNS:
        progress = False
        for candidate in _simpler(story):
            runs += 1
            found = broken(candidate)
            if found is not None and kind_of(found) == wanted:
                story, progress = candidate, True
                break
            if runs >= MOST_RUNS:
                break
    return story, runs


def _simpler(story: Story) -> Iterator[Story]:
    """Stories that are simpler in one thing, the simplest first."""
    for index in range(len(story.faults)):
        yield story.without(index)
    if story.scenario.bounded:
        yield replace(story, scenario=replace(story.scenario, bounded=False))
    if story.scenario.checkpoints:
        yield replace(story, scenario=replace(story.scenario, checkpoints=False))
    if story.scenario.native:
        yield replace(story, scenario=replace(story.scenario, native=False))
    if story.scenario.up or story.scenario.down:
        yield replace(story, scenario=replace(story.scenario, up="", down=""))
    if story.scenario.pace != 1.0:
        yield replace(story, scenario=replace(story.scenario, pace=1.0))
    for index, fault in enumerate(story.faults):
        for simpler in _rounder(fault):
            yield story.with_fault(index, simpler)


def _rounder(fault: Fault) -> Iterator[Fault]:
    """The fault with rounder numbers, and shorter."""
    for digits in (0, 1, 2):
        for name in ("at_s", "for_s"):
            value = round(getattr(fault, name), digits)
            if len(f"{value:g}") < len(f"{getattr(fault, name):g}"):
                yield replace(fault, **{name: value})
    if fault.count > 1:
        for count in (0, 1, fault.count // 2):
            yield replace(fault, count=count)
