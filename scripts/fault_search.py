"""Search for faults: play thousands of runs on a simulated machine, and break things in each.

The real coordinator and edges run in it, see docs/explanation/fault-search.md. A story that breaks
an invariant is shrunk to the shortest one, and printed with the command that plays it again.

    python scripts/fault_search.py --runs 2000 --seed 1
    python scripts/fault_search.py --story 1000003
    python scripts/fault_search.py --mutate double_apply --runs 200
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import msgspec

SCRIPTS = Path(__file__).resolve().parent
sys.path[:0] = [str(SCRIPTS), str(SCRIPTS.parent), str(SCRIPTS.parent / "tests" / "support")]

from search.mutations import MUTATIONS, mutated  # noqa: E402  # after the path is set
from search.run import Outcome, Run  # noqa: E402  # after the path is set
from search.scenario import World  # noqa: E402  # after the path is set
from search.story import Story, shrunk  # noqa: E402  # after the path is set

from edgefl.errors import nearest  # noqa: E402  # after the path is set

CHUNK = 25  # runs that a process gets at a time
AGAIN_EVERY = 20  # one of so many runs is played twice: its trace must be the same
STEP = 1_000_000  # between the first seeds of two searches
CHECKPOINTS = ("due", "written", "read")
world: World | None = None
scratch: tempfile.TemporaryDirectory[str] | None = None  # of this process's world


@dataclass(frozen=True, slots=True)
class Found:
    """A seed whose run went wrong."""

    seed: int
    broken: str


def played(story: Story, verbose: bool = False) -> Outcome:
    """Play a story in this process."""
    global world, scratch
    if world is None:
        scratch = scratch_folder()
        world = World(Path(scratch.name))
    return Run(world, story, verbose).play()


def scratch_folder() -> tempfile.TemporaryDirectory[str]:
    """Make a folder for files, in memory if possible. It is removed at the process's end."""
    shared = Path("/dev/shm")
    return tempfile.TemporaryDirectory(prefix="search-", dir=shared if shared.is_dir() else None)


def _work_in(folder: str) -> None:
    """Begin a process of the pool: its parent removes the folder."""
    global world
    own = Path(folder, str(os.getpid()))
    own.mkdir()
    world = World(own)


@dataclass(slots=True)
class Tally:
    """What runs had, and the seeds that went wrong."""

    runs: int = 0
    events: int = 0
    checkpoints: Counter[str] = field(default_factory=Counter)  # by what happened to them
    found: list[Found] = field(default_factory=list)

    def add(self, other: Tally) -> None:
        self.runs, self.events = self.runs + other.runs, self.events + other.events
        self.checkpoints += other.checkpoints
        self.found += other.found

    def __str__(self) -> str:
        counted = ", ".join(f"{self.checkpoints[what]} {what}" for what in CHECKPOINTS)
        return f"{self.runs} runs, {self.events} events, checkpoints: {counted}"


def chunk(mutation: str | None, seeds: range) -> Tally:
    """Play these seeds; with a mutation, up to the first that goes wrong."""
    tally = Tally()
    with mutated(mutation):
        for seed in seeds:
            outcome = played(Story.of(seed))
            tally.runs, tally.events = tally.runs + 1, tally.events + outcome.events
            tally.checkpoints.update(dict(zip(CHECKPOINTS, outcome.checkpoints, strict=True)))
            broken = outcome.broken
            if broken is None and seed % AGAIN_EVERY == 0:
                again = played(Story.of(seed))
                if again.trace != outcome.trace:
                    broken = "the same seed has two traces"
            if broken is not None:
                tally.found.append(Found(seed, broken))
                if mutation is not None:
                    break
    return tally


def chunks(first: int, runs: int) -> Iterator[range]:
    for begin in range(first, first + runs, CHUNK):
        yield range(begin, min(begin + CHUNK, first + runs))


def search(first: int, runs: int, mutation: str | None, processes: int) -> Tally:
    """Play ``runs`` seeds from ``first`` on. With a mutation, stop at the first that goes wrong."""
    began_s, tally = time.monotonic(), Tally()
    with (
        scratch_folder() as folder,
        ProcessPoolExecutor(processes, initializer=_work_in, initargs=(folder,)) as pool,
    ):
        for some in pool.map(partial(chunk, mutation), chunks(first, runs)):
            tally.add(some)
            for each in some.found:
                print(f"seed {each.seed}: {each.broken}", flush=True)
            if tally.found and mutation is not None:
                pool.shutdown(cancel_futures=True)
                break
            if sys.stderr.isatty():
                line = f"\r{tally.runs} runs, {len(tally.found)} broken "
                print(line, end="", file=sys.stderr, flush=True)
    passed_s = time.monotonic() - began_s
    print(f"{tally}, {passed_s:.0f} s: {len(tally.found)} broken", flush=True)
    return tally


def tell(seed: int, mutation: str | None) -> None:
    """Shrink a failing seed and print its story."""
    with mutated(mutation):
        story, runs = shrunk(Story.of(seed), lambda each: played(each).broken)
        outcome = played(story)
    print(f"\nThe shortest story of seed {seed} ({runs} runs):")
    for line in story.tell():
        print(f"  {line}")
    print("its last events:")
    for line in outcome.told[-15:]:
        print(f"  {line}")
    print(f"broken: {outcome.broken}")
    print(f"play it again:\n  {command(story.to_json(), mutation)}")
    print(f"whole:\n  {command(str(seed), mutation)}", flush=True)


def command(story: str, mutation: str | None) -> str:
    more = "" if mutation is None else f" --mutate {mutation}"
    quoted = f"'{story}'" if story.startswith("{") else story
    return f"python scripts/fault_search.py --story {quoted}{more}"


def replay(text: str, mutation: str | None) -> int:
    """Play one story, and print all that happens. Returns the exit status."""
    try:
        story = Story.of(int(text)) if text.isdecimal() else Story.from_json(text)
    except msgspec.DecodeError as error:
        print(f"--story: expected a seed, or a story as it was printed ({error})", file=sys.stderr)
        return 2
    for line in story.tell():
        print(line)
    with mutated(mutation):
        outcome = played(story, verbose=True)
    print(f"trace {outcome.trace}")
    print(f"broken: {outcome.broken}" if outcome.broken else "nothing is broken")
    return 1 if outcome.broken else 0


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=200, metavar="N", help="runs to play")
    parser.add_argument("--seed", type=int, default=1, metavar="S", help="of the search")
    parser.add_argument("--mutate", metavar="NAME", help=f"one of {', '.join(MUTATIONS)}")
    parser.add_argument("--story", metavar="SEED", help="play one story, and tell all of it")
    cores = os.process_cpu_count() if hasattr(os, "process_cpu_count") else os.cpu_count()
    parser.add_argument("--processes", type=int, default=min(cores or 1, 8), metavar="N")
    return parser.parse_args()


def main() -> int:
    given = arguments()
    if given.mutate is not None and given.mutate not in MUTATIONS:
        hint = nearest(given.mutate, MUTATIONS)
        print(f"--mutate {given.mutate}: no such mutation{hint}", file=sys.stderr)
        return 2
    if given.runs < 1 or given.seed < 0 or given.processes < 1:
        print("--runs, --seed and --processes: expected 1 or more", file=sys.stderr)
        return 2
    if given.story is not None:
        return replay(given.story, given.mutate)
    first = given.seed * STEP
    tally = search(first, given.runs, given.mutate, given.processes)
    if tally.found:
        first_broken = min(each.seed for each in tally.found)
        if given.mutate is not None:
            print(f"{given.mutate}: found by run {first_broken - first + 1}, seed {first_broken}")
        tell(first_broken, given.mutate)
        return 1
    if given.mutate is not None:
        print(f"{given.mutate}: not found in {given.runs} runs")
    for what in ("written", "read"):
        if not tally.checkpoints[what]:
            print(f"no checkpoint was {what}, so the search says nothing about them: more --runs")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
