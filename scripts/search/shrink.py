"""From a story that fails to the shortest one that still fails in the same way."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from search.story import Fault, Story

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
