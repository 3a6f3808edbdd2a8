"""The search for faults: it finds each mutation, and nothing without one. Stories, shrinking."""

from __future__ import annotations

from pathlib import Path

import fault_search
import msgspec
import pytest
from msgspec.structs import replace
from paths import ROOT
from script_runs import ran
from search.faults import KINDS, Fault
from search.mutations import MUTATIONS, mutated
from search.run import Run
from search.scenario import Scenario, World
from search.story import Story, kind_of, shrunk

SCRIPT = ROOT / "scripts" / "fault_search.py"
MOST_RUNS = 150  # in which a mutation has to be found
FIRST = 1_000_000
# where the search for a mutation begins, so that it is short: the story that has found it
FOUND_BY = {
    "arrays_not_copied": 162,
    "another_state": FIRST + 40,
    "double_apply": FIRST + 39,
    "late_hello": FIRST + 14,
    "lost_acknowledgement": 47,
}


@pytest.mark.slow
def test_runs_without_a_mutation_break_nothing() -> None:
    tally = fault_search.chunk(None, range(FIRST, FIRST + 15))
    assert tally.found == [] and tally.events > 30_000
    assert tally.checkpoints["written"] > 30 and tally.checkpoints["due"] > 30
    assert "checkpoints: " in str(tally)


@pytest.mark.parametrize(
    ("strategy", "durability", "faults"),
    [
        # edges know tasks that the journal has lost
        (
            "fedprox",
            "process",
            [
                Fault("freeze", 0.8, "coordinator", 4.0),
                Fault("kill", 2.0, "coordinator", 1.0, 124, "power"),
            ],
        ),
        # the disk is full while the run is opened again: it says so, and begins later
        (
            "tdma-fl",
            "process",
            [
                Fault("kill", 3.18, "coordinator", 2.59, 126, "process"),
                Fault("full", 3.374, "coordinator", 6.198, 710),
            ],
        ),
        # the power fails once config.toml is written, and again later
        (
            "fedprox",
            "power",
            [
                Fault("kill", 1.0, "coordinator", 2.0, 1, "power"),
                Fault("kill", 5.0, "coordinator", 1.0, 40, "power"),
            ],
        ),
        # the update of a task that timed out is dropped
        (
            "port",
            "process",
            [Fault("block", 0.0, "e3", 2.0, way="up"), Fault("jump", 9.0, "coordinator", 13.0)],
        ),
    ],
)
@pytest.mark.slow
def test_what_it_has_found_stays_mended(
    strategy: str, durability: str, faults: list[Fault]
) -> None:
    outcome = fault_search.played(Story(7, Scenario(strategy, durability), tuple(faults)))
    assert outcome.broken is None


@pytest.mark.parametrize(
    ("native", "durability", "one"),
    [(True, "process", True), (True, "power", False), (False, "process", False)],
)
@pytest.mark.slow
def test_without_emulated_links_the_coordinator_has_one_thread(
    tmp_path: Path, native: bool, durability: str, one: bool
) -> None:
    """Unless another thread waits for the disk. The run waits for room, dies, and goes on."""
    faults = [
        Fault("full", 2.0, "coordinator", 6.0, 700),
        Fault("kill", 9.0, "coordinator", 1.0, 60, "process"),
    ]
    scenario = Scenario("fedavg", durability, 0.5, native=native)
    run = Run(World(tmp_path), Story(5, scenario, tuple(faults)))
    outcome = run.play()
    assert outcome.broken is None and outcome.simulated_s > 10.0
    threads = {thread.name for thread in run.processes["coordinator"].threads}
    assert ("logic" not in threads) == one


@pytest.mark.parametrize("durability", ["process", "power"])
@pytest.mark.slow
def test_a_checkpoint_is_written_and_a_process_goes_on_from_it(durability: str) -> None:
    """The state is then that of an unbroken twin; this is checked at every resumption."""
    fault = Fault("kill", 9.0, "coordinator", 1.0, 60, "process")
    outcome = fault_search.played(
        Story(5, Scenario("feddyn", durability, checkpoints=True), (fault,))
    )
    assert outcome.broken is None
    due, written, read = outcome.checkpoints
    assert due >= written > 5 and read == 1


@pytest.mark.parametrize("kind", ["lose", "flip"])
@pytest.mark.parametrize("folder", ["journal", "checkpoints"])
@pytest.mark.slow
def test_a_damaged_file_is_refused_or_the_run_goes_on_in_the_same_state(
    kind: str, folder: str
) -> None:
    for seed in range(4):
        fault = Fault(kind, 7.0, "coordinator", 1.0, 20, folder)
        story = Story(seed, Scenario("fedbuff", "process", checkpoints=True), (fault,))
        assert fault_search.played(story).broken is None


@pytest.mark.parametrize("way", ["read", "write", "sync"])
@pytest.mark.slow
def test_a_failing_disk_stops_a_run_that_goes_on_later(way: str) -> None:
    faults = (
        Fault("io", 4.0, "coordinator", 3.0, 3, way),
        Fault("kill", 4.5, "coordinator", 1.0, 20, "process"),
    )
    story = Story(5, Scenario("fedasync", "power", checkpoints=True), faults)
    assert fault_search.played(story).broken is None


@pytest.mark.parametrize("calls", range(1, 27, 8))
@pytest.mark.slow
def test_a_run_that_dies_at_its_end_is_finished_by_the_next_process(calls: int) -> None:
    """Between its last version, its summary and the end of its journal."""
    ending = Story(5, Scenario("fedavg", "power"), ())
    end_s = fault_search.played(ending).simulated_s
    fault = Fault("kill", round(end_s - 0.13, 4), "coordinator", 1.0, calls, "power")
    outcome = fault_search.played(replace(ending, faults=(fault,)))
    assert outcome.broken is None and outcome.simulated_s > end_s


@pytest.mark.rest
@pytest.mark.parametrize("before_s", [0.1, 0.08, 0.06])
def test_a_disk_that_refuses_at_the_end_stops_a_run_that_goes_on_later(before_s: float) -> None:
    """A finished run would have lost rows of updates that were acknowledged."""
    ending = Story(5, Scenario("fedasync", "power", native=True), ())
    end_s = fault_search.played(ending).simulated_s
    fault = Fault("io", round(end_s - before_s, 4), "coordinator", 0.4, 10, "sync")
    outcome = fault_search.played(replace(ending, faults=(fault,)))
    assert outcome.broken is None and outcome.simulated_s > end_s


@pytest.mark.rest
@pytest.mark.parametrize("name", sorted(MUTATIONS))
def test_a_mutation_is_found(name: str) -> None:
    first = FOUND_BY.get(name, FIRST)
    tally = fault_search.chunk(name, range(first, first + MOST_RUNS))
    assert tally.found, f"not in {tally.runs} runs"


@pytest.mark.slow
def test_the_same_seed_gives_the_same_story_and_the_same_trace() -> None:
    assert Story.of(17) == Story.of(17) != Story.of(18)
    one, other, again = (fault_search.played(Story.of(seed)) for seed in (17, 18, 17))
    assert one.trace == again.trace != other.trace


def test_a_story_survives_json_and_every_kind_of_fault_is_drawn() -> None:
    stories = [Story.of(seed) for seed in range(300)]
    assert all(Story.from_json(story.to_json()) == story for story in stories)
    kinds = {fault.kind for story in stories for fault in story.faults}
    assert kinds >= KINDS.keys() - {"crash"}  # a kill of the coordinator
    assert any(fault.target == "coordinator" for story in stories for fault in story.faults)


def test_a_word_that_a_story_does_not_have_is_refused() -> None:
    """Otherwise a story with a typing mistake would be another one, and find nothing."""
    text = Story(3, Scenario("fedavg", "power"), (Fault("cut", 1.0, "e1", 2.0),)).to_json()
    for word in ("seed", "durability", "for_s"):
        with pytest.raises(msgspec.DecodeError):
            Story.from_json(text.replace(f'"{word}"', f'"{word}_"'))


def test_a_story_is_shrunk_to_what_matters() -> None:
    """A stand-in for a run: it breaks if e1 is cut off for more than 2 s."""
    faults = [Fault("freeze", 1.234, "e0", 3.0), Fault("cut", 5.678, "e1", 7.123, 4711, "up")]
    story = Story(3, Scenario("fedavg", "power", 2.0, bounded=True), (*faults, faults[0]))

    def broken(story: Story) -> str | None:
        cuts = [fault for fault in story.faults if fault.kind == "cut" and fault.for_s > 2.0]
        return f"the update of task {len(story.faults)} is lost" if cuts else None

    shortest, runs = shrunk(story, broken)
    assert shortest.faults == (Fault("cut", 6.0, "e1", 7.0, 0, "up"),)
    assert shortest.scenario == Scenario("fedavg", "power") and runs < 30
    assert shrunk(replace(story, faults=()), broken) == (replace(story, faults=()), 1)
    assert kind_of("task 7 of e1: late") == kind_of("task 12 of e0: late") != kind_of("task lost")


def test_a_mutation_is_taken_back() -> None:
    for name in MUTATIONS:
        changes = MUTATIONS[name]()
        before = [getattr(owner, method) for owner, method, _ in changes]
        with mutated(name):
            assert [getattr(owner, method) for owner, method, _ in changes] != before
        assert [getattr(owner, method) for owner, method, _ in changes] == before


@pytest.mark.rest
@pytest.mark.processes
def test_the_script_tells_the_shortest_story_and_the_command_that_plays_it(tmp_path: Path) -> None:
    done = ran(SCRIPT, ["--runs", "50", "--mutate", "version_jump", "--processes", "2"], tmp_path)
    assert done.returncode == 1, done.stderr
    assert "version_jump: found by run" in done.stdout and "The shortest story" in done.stdout
    command = next(line for line in done.stdout.splitlines() if "--story '{" in line)
    assert command.strip().startswith("python scripts/fault_search.py --story '")
    told = command.split("'")[1]
    again = ran(SCRIPT, ["--story", told, "--mutate", "version_jump"], tmp_path)
    assert again.returncode == 1 and "broken: " in again.stdout
    healthy = ran(SCRIPT, ["--story", told], tmp_path)
    assert healthy.returncode == 0 and "nothing is broken" in healthy.stdout


@pytest.mark.rest
@pytest.mark.processes
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--mutate", "double_aply"], "nearest: 'double_apply'"),
        (["--runs", "0"], "expected 1 or more"),
        (["--story", "x"], "expected a seed, or a story as it was printed"),
    ],
)
def test_wrong_input_is_one_line(words: list[str], expected: str, tmp_path: Path) -> None:
    done = ran(SCRIPT, words, tmp_path)
    assert done.returncode == 2 and expected in done.stderr
    assert len(done.stderr.splitlines()) == 1
