"""Whole runs in which devices continue training while a fresher model is downloaded, on both
clocks.

See also tests/edgefl/edges/test_training.py.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from builders import EXAMPLES, experiment, small_run
from processes import happened
from rich.console import Console
from transport_rig import MS

from edgefl.clocks.setup.learning import learning
from edgefl.clocks.setup.network import devices
from edgefl.clocks.setup.rundir import replay_run
from edgefl.clocks.virtual.pool.engine import InProcessEngine
from edgefl.clocks.virtual.run import run_virtual
from edgefl.jobs import Train
from edgefl.results.families import SectionRow
from edgefl.results.families.dissemination import table
from edgefl.results.read import read_csv, read_events
from emulator.units import to_ns

RUN: dict[str, Any] = {
    "devices": {"samples_per_s": 100.0, "slowest_ratio": 5.0},
    "stop": {"versions": 25},
    "training": {"epochs": 2, "batch_size": 8},
    "strategies": [{"strategy": "../support/own_strategies.py:Onwards"}],
    "record": {"payloads": True},
}
SLOW: dict[str, Any] = {
    "links": {"up_mbit_s": 0.01, "down_mbit_s": 0.0008, "latency_ms": 10.0}
}  # a model takes a second
SCARCE: dict[str, Any] = {"links": {"up_mbit_s": 0.01, "down_mbit_s": 0.0002, "latency_ms": 10.0}}
LATENCY_NS = 10 * MS


def tasks(directory: Path) -> dict[int, dict[str, Any]]:
    """By task: its moments "asked", "ready" and "update"."""
    rows: dict[int, dict[str, Any]] = {}
    for event in read_events(directory / "events.jsonl"):
        name = {
            "fresh_requested": "asked",
            "update_ready": "ready",
            "update_arrived": "update",
        }.get(event.get("event") or event.get("fact"))
        if name:
            rows.setdefault(event["task"], {})[name] = event
    return {task: row for task, row in rows.items() if "update" in row and "asked" in row}


@pytest.mark.parametrize(
    ("links", "after"),
    [({}, {1}), (SLOW, {2, 6}), (SCARCE, {4, 7})],
    ids=["fast", "slow", "scarce"],
)
def test_merges_by_arithmetic(tmp_path: Path, links: dict[str, Any], after: set[int]) -> None:
    """Steps end at t1 + duration(samples); arrivals are those of links.csv.

    The run ends when a run without a request would end.
    """
    _, directory = small_run(tmp_path, **RUN | links)
    device, samples = (
        devices(experiment(**RUN)),
        {e["edge"]: e["samples"] for e in happened(directory, event="edge_joined")},
    )
    arrivals = {
        (row["edge"], row["offered_s"]): row
        for row in read_csv(directory / "links.csv")
        if row["kind"] in ("fresh", "dropped")
    }
    steps_merged: set[float] = set()
    for row in tasks(directory).values():
        said, edge = row["asked"], row["asked"]["edge"]
        batches = [min(8, samples[edge] - first) for first in range(0, samples[edge], 8)] * 2
        first, asked_ns = said["step"], to_ns(said["t"]) - LATENCY_NS
        ends = [
            asked_ns + device[edge].duration_ns(sum(batches[first:step]))
            for step in range(len(batches) + 1)
        ]
        assert to_ns(row["ready"]["t"]) == ends[-1] and said["until_ns"] == ends[-2] + 1
        numbers, newer = row["update"]["numbers"], said["decisions"][0]["version"] is not None
        came = arrivals.pop((edge, f"{said['t']:.9f}"), None)
        assert newer == (came is not None)
        if came is None:
            assert numbers["merged_at"] == -1 and "too_late" not in numbers
            continue
        came_ns = to_ns(float(came["finished_s"]))
        late = came["kind"] == "dropped"
        assert late == (numbers.get("too_late") == 1) == (numbers["merged_at"] == -1) and not (
            late and came_ns != ends[-2] + 1
        )
        steps_merged |= set() if late else {numbers["merged_at"] - first}
        assert late or numbers["merged_at"] == next(
            step for step in range(first, len(batches)) if ends[step] >= came_ns
        )
    assert steps_merged == after, "steps trained between request and merge"
    replay_run(directory)


OWN = "../support/own_strategies.py"


def merged_at(directory: Path) -> list[float]:
    """The rule's own word of each update whose task asked: the step of its merge, or -1."""
    return [row["update"]["numbers"]["merged_at"] for row in tasks(directory).values()]


@pytest.mark.parametrize(
    ("links", "late"),
    [
        ({}, False),
        ({"links": {"up_mbit_s": 0.01, "down_mbit_s": 0.0006, "latency_ms": 10.0}}, True),
    ],
    ids=["fast", "scarce"],
)
def test_answers_of_a_later_moment_count(tmp_path: Path, links: dict[str, Any], late: bool) -> None:
    """The strategy answers when it publishes, and its rule does not report that it has merged."""
    summary, directory = small_run(
        tmp_path, **RUN | links | {"strategies": [{"strategy": f"{OWN}:Later"}]}
    )
    found, events = summary["dissemination"], read_events(directory / "events.jsonl")
    kinds = Counter(row["kind"] for row in read_csv(directory / "links.csv"))
    answers = [
        decision
        for event in events
        for decision in event.get("decisions", ())
        if decision["do"] == "send_fresh"
    ]
    at_once = [
        event for event in happened(directory, event="fresh_requested") if event["decisions"]
    ]
    assert not at_once and len(answers) > 9
    assert found["requests"] == len(happened(directory, event="fresh_requested"))
    assert found["newer"] == len(answers) and found["requests"] > len(answers)
    assert found["unanswered"] == found["requests"] - len(answers)
    until_ns = {
        event["task"]: event["until_ns"] for event in happened(directory, event="fresh_requested")
    }
    never_sent = [
        decision
        for event in events
        for decision in event.get("decisions", ())
        if decision["do"] == "send_fresh" and to_ns(event["t"]) >= until_ns[decision["task"]]
    ]
    assert found["too_late"] == kinds["dropped"] + len(never_sent)
    assert bool(kinds["dropped"]) == bool(never_sent) == late
    assert found["merges"] == sum(step >= 0 for step in merged_at(directory)) > 5
    assert kinds["fresh"] - found["merges"] in range(4), "the run ends before their updates"
    assert found["contradictions"] == [] == summary["warnings"]
    lines = [" ".join(line.split()) for line in shown(summary)]
    numbers = f"{found['requests']} {found['newer']} {found['merges']} {found['unanswered']}"
    assert any(line.startswith(f"x {numbers} ") for line in lines)
    replay_run(directory)


def test_broken_conventions_are_warned_about(tmp_path: Path) -> None:
    entry = {"strategy": f"{OWN}:Talkative"}
    summary, directory = small_run(tmp_path, **RUN | {"strategies": [entry]})
    found = summary["dissemination"]
    updates = len(happened(directory, event="update_arrived"))
    assert found["merges"] == sum(step >= 0 for step in merged_at(directory))
    assert found["contradictions"] == [
        f"{found['newer']} answers (SendFresh) to no open request",
        f'the rule\'s number "merged" is false in {updates - found["merges"]} updates; counted is'
        " what the edges did",
    ]
    assert summary["warnings"] == [f"fresher models: {'; '.join(found['contradictions'])}"]


def shown(summary: dict[str, Any]) -> list[str]:
    """The lines of the table."""
    console = Console(width=80, color_system=None)
    with console.capture() as capture:
        console.print(table([SectionRow("x", summary, summary["dissemination"])]))
    return capture.get().splitlines()


def test_nothing_is_trained_that_an_answer_may_change(tmp_path: Path) -> None:
    """The engine gets each run twice: up to its request, then, with the answer, to its end."""
    learned = learning(experiment(task="my_task.py:build", **RUN | SLOW), EXAMPLES)
    starts: Counter[tuple[int, int]] = Counter()

    class Watched(InProcessEngine):
        def start(self, job: Any, due_ns: int) -> None:
            if isinstance(job, Train):
                starts[job.run.task.number, job.until_step] += 1

    run_virtual(learned, 0, tmp_path, pool=Watched(learned))
    merged = {
        task: row["update"]["numbers"]
        for task, row in tasks(tmp_path).items()
        if row["update"]["numbers"]["merged_at"] >= 0
    }
    assert len(merged) > 9 and set(starts.values()) == {1}
    assert all(sum(number == task for number, _ in starts) == 2 for task in merged)
