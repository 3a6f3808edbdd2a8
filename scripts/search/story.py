"""A story: a scenario and the faults that strike it, drawn from one seed. Told as JSON, too.

A story that fails is shrunk to the shortest one that still fails in the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import numpy as np
from msgspec.structs import asdict, replace

from search.faults import KINDS, Fault, drawn
from search.pushing import PUSHING
from search.scenario import STRATEGIES, Scenario, random_scenario

MOST_FAULTS = 7
NATIVE_SHARE = 0.3  # of the stories, less those of strategies with a channel
PUSHING_SHARE = 0.3  # of the stories
LAST_S = 10.0  # faults begin by then; an undisturbed run takes about so long


def _pushes(seed: int) -> str:
    """Which strategy that pushes the story has; "": none. It draws from a stream of its own."""
    rng = np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, 1])))
    return str(rng.choice(sorted(PUSHING))) if rng.random() < PUSHING_SHARE else ""


class Story(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
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
        faults = tuple(drawn(str(kind), at_s, rng) for kind, at_s in at)
        pushes = _pushes(seed)
        slotted = "medium" in STRATEGIES[scenario.strategy][1] and not pushes
        native = bool(rng.random() < NATIVE_SHARE) and not slotted
        return cls(seed, replace(scenario, native=native, pushes=pushes), faults)

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
        """The story in lines: its scenario, and its faults."""
        told = {key: value for key, value in asdict(self.scenario).items() if value}
        return [", ".join(f"{key} {value}" for key, value in told.items()), *map(str, self.faults)]

    def to_json(self) -> str:
        """The story in one line, without the fields that have their default."""
        return msgspec.json.encode(self).decode()

    @classmethod
    def from_json(cls, text: str) -> Story:
        """The story of ``to_json``. ``msgspec.DecodeError`` if it is none."""
        return msgspec.json.decode(text, type=cls)


Broken = Callable[[Story], str | None]
MOST_RUNS = 300
# the plainest values of a scenario
PLAIN: dict[str, Any] = {
    **dict.fromkeys(("bounded", "checkpoints", "native"), False),
    "up": "",
    "down": "",
    "pushes": "",
    "pace": 1.0,
}


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
    for name, plain in PLAIN.items():
        if getattr(story.scenario, name) != plain:
            yield replace(story, scenario=replace(story.scenario, **{name: plain}))
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
