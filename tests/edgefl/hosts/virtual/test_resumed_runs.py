"""Runs under the virtual clock that are broken off and go on: the bytes of an unbroken run."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from kills import KILLS, files_of, killed_run, some, whole_run
from pools import FAULTS, RUNS, SPREAD, learned_of

from edgefl.edges.phase import ASKING
from edgefl.hosts.setup import rundir
from edgefl.hosts.setup.learning import Learning
from edgefl.hosts.virtual.host import VirtualHost
from edgefl.hosts.virtual.pool.engine import open_pool
from edgefl.record.tables import Rotation, parts

FEW = 7  # steps between two checkpoints: rows of up to so many steps are written after the last
EDGES: dict[str, Any] = SPREAD | {
    "task": None,
    "data": {"name": "digits"},
    "model": {"name": "mlp", "hidden": [8]},
    "edges": {"count": 8},
    "devices": {"samples_per_s": 400.0, "slowest_ratio": 4.0},
    "links": {"up_mbit_s": 0.1, "down_mbit_s": 0.3, "latency_ms": 10.0},
    "training": {"epochs": 3, "batch_size": 16},
    "stop": {"emulated_s": 20.0},
    "evaluation": {"every_versions": 3, "by_label": True},
}
TDMA: dict[str, Any] = {
    "medium": {"kind": "tdma", "slot_ms": 100.0, "guard_ms": 10.0, "rate_mbit_s": 0.5},
    "devices": {"samples_per_slot": 40.0},
    "links": {},
}
LABELLED = {"unlabelled": {"data": "held_out", "size": 20}}
REPLACE = {"dispatch": "replace", "concurrency": 4}
TRACE = "seconds,bit_s\n0,200000\n0.7,0\n1.1,90000\n2.3,400000\n3.1,\n"


@pytest.fixture(autouse=True)
def files_of_killed_runs_are_closed() -> Iterator[None]:
    """A killed run closes nothing here: the files of many would be too many for ``select``."""
    yield
    gc.collect()


def of(strategy: str, sections: dict[str, Any] | None = None, **options: Any) -> dict[str, Any]:
    return EDGES | (sections or {}) | {"strategies": [{"strategy": strategy, **options}]}


def traced(start: str) -> dict[str, Any]:
    shape = {"latency_ms": 20.0, "jitter_ms": 15.0, "loss": 0.01}
    traces = {"trace_up": "own.csv", "trace_down": "own.csv", "trace_start": start}
    return {"links": shape | traces}


def devices(**more: Any) -> dict[str, Any]:
    return {"devices": {"samples_per_s": 400.0} | more}


# one or more of each base class, and strategies with a state of their own kind
STRATEGIES: dict[str, dict[str, Any]] = {
    "rounds": of("fedavg", clients_per_round=4),
    "rounds, with a memory on the edges": of("moon", clients_per_round=4),
    "asynchronous": of("fedasync", **REPLACE),
    "buffered": of("fedac", buffer_size=3, **REPLACE),
    "buffered, with vectors in a file": of("ca2fl", buffer_size=3, **REPLACE),
    "gradients": of("wkafl", buffer_size=3),
    "submodels": of("syncdrop", **REPLACE),
    "slotted": of("idfl", TDMA, per_round=2, local_steps=5),
    "with requests": of("fedasmu", period_s=1.0, clients_per_trigger=3),
    "with jobs": of("fedecho", LABELLED, buffer_size=3, concurrency=5, predict_s=0.5),
    "one's own": of("../examples/my_scaffold.py:Scaffold"),
    "one's own state": of("../examples/my_state.py:Chooser", clients_per_round=5),
    "one's own, which merges": of("../support/pool_strategies.py:Rich", concurrency=3),
}
AROUND: dict[str, dict[str, Any]] = {
    "tdma": of("fedasync", TDMA, **REPLACE),
    "cell": of("fedasync", {"medium": {"kind": "cell", "up_mbit_s": 0.2}}, **REPLACE),
    "trace": of("fedasync", traced("run"), **REPLACE),
    "trace from the first byte": of("fedasync", traced("first_byte"), **REPLACE),
    "faults": of("fedasync", {"faults": FAULTS, "network": {"liveness_s": 1.5}}, **REPLACE),
    "faulty traces": of(
        "fedasync",
        traced("first_byte")
        | {
            "faults": [
                {"kind": "cut", "every_s": 5.0, "for_s": 1.0},
                {"kind": "corrupt", "every_s": 4.0},
                {"kind": "duplicate", "every_s": 4.0},
                {"kind": "restart", "edges": ["e001"], "every_s": 6.0},
            ]
        },
        **REPLACE,
    ),
    "throttled": of(
        "fedasync",
        devices(throttling={"budget_s": 2.0, "hot_share": 0.4, "recovery_s": 5.0}),
        **REPLACE,
    ),
    "bursts": of(
        "fedasync", devices(bursts={"calm_s": 2.0, "burst_s": 1.0, "share": 0.3}), **REPLACE
    ),
    "exponential": of("fedasync", devices(spread="exponential"), **REPLACE),
    "a journal": of("fedasync", {"record": {"payloads": True}}, **REPLACE),
}


def learned_in(folder: Path, sections: dict[str, Any]) -> Learning:
    (folder / "own.csv").write_text(TRACE)
    if "trace_up" in sections["links"]:
        links = {key: str(folder / "own.csv") for key in ("trace_up", "trace_down")}
        sections = sections | {"links": sections["links"] | links}
    return learned_of(**sections)


def check_same(learned: Learning, folder: Path, every: int, moments: list[int], **how: Any) -> None:
    """Check that a run with kills has the files of one without."""
    assert len(moments) == KILLS
    said = killed_run(learned, folder / "broken", moments, every, **how)
    assert said == [], "each time it went on at a checkpoint"
    assert files_of(folder / "broken") == files_of(folder / "whole")


@pytest.mark.parametrize("case", [*STRATEGIES, *AROUND])
def test_a_run_that_is_killed_ten_times_writes_the_same_bytes(tmp_path: Path, case: str) -> None:
    learned = learned_in(tmp_path, (STRATEGIES | AROUND)[case])
    steps = whole_run(learned, tmp_path / "whole")
    check_same(learned, tmp_path, FEW, some(range(FEW + 2, steps)))


def test_a_run_is_saved_while_jobs_are_open(tmp_path: Path) -> None:
    learned = learned_of(**STRATEGIES["with jobs"] | {"stop": {"emulated_s": 8.0}})
    steps = []

    def watch(step: int, run: Any) -> None:
        if run.coordinator.jobs.names:
            steps.append(step + 1)  # saved after this step, killed in the next one

    whole_run(learned, tmp_path / "whole", watch)
    check_same(learned, tmp_path, 1, some(steps))


def test_a_run_is_saved_while_requests_are_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The trainings are half done: what they had done is done again."""
    options = {"period_s": 1.0, "clients_per_trigger": 3, "on_request": "train_on"}
    learned = learned_of(**of("fedasmu", **options) | {"stop": {"emulated_s": 8.0}})
    hosts, steps, stepped = [], [], VirtualHost._step

    def step(self: VirtualHost) -> None:
        hosts[:] = [self]
        stepped(self)

    def watch(number: int, run: Any) -> None:
        edges = hosts[0].edges.made.values()
        if any(edge.phase in ASKING and edge.run is not None and edge.run.step for edge in edges):
            steps.append(number + 1)

    monkeypatch.setattr(VirtualHost, "_step", step)
    whole_run(learned, tmp_path / "whole", watch)
    check_same(learned, tmp_path, 1, some(steps))


@pytest.mark.processes
@pytest.mark.parametrize("case", ["rich", "faults"])
def test_two_workers_train_again_what_was_lost(tmp_path: Path, case: str) -> None:
    learned = learned_of(**RUNS[case])
    steps = whole_run(learned, tmp_path / "whole")
    with open_pool(learned, 2) as pool:
        check_same(learned, tmp_path, FEW, some(range(FEW + 2, steps)), pool=pool)


def test_tables_in_parts_of_which_few_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between two checkpoints more parts are filled than stay."""
    monkeypatch.setattr(rundir, "Rotation", partial(Rotation, 700))
    learned = learned_of(**STRATEGIES["asynchronous"] | {"record": {"keep": 1}})
    steps = whole_run(learned, tmp_path / "whole")
    check_same(learned, tmp_path, FEW, some(range(FEW + 2, steps)))
    (number,) = parts(tmp_path / "whole" / "events.jsonl")
    assert number > FEW, "the other parts were deleted"


@pytest.mark.parametrize("on_leave", ["keep", "lose"])
@pytest.mark.parametrize("kind", ["file", "exponential"])
def test_a_run_is_saved_while_edges_are_away(tmp_path: Path, kind: str, on_leave: str) -> None:
    """With "keep" also while a task of an edge that is away is open."""
    (tmp_path / "times.csv").write_text("".join(f"e00{n},{n},{n + 5}\n" for n in range(8)))
    where = {
        "file": {"file": str(tmp_path / "times.csv"), "period_s": 14.0},
        "exponential": {"there_s": 3.0, "away_s": 2.0},
    }[kind]
    away = {"count": 8, "availability": {"kind": kind, "on_leave": on_leave} | where}
    more = {"edges": away, "network": {"grace_s": 2.0}, "stop": {"emulated_s": 8.0}}
    learned = learned_of(**of("fedasync", more, **REPLACE))
    steps, seen = [], set()

    def watch(step: int, run: Any) -> None:
        absences, open_tasks = run.coordinator.absences, run.coordinator.tasks.by_edge
        kinds = {"away"} if absences.away else set()
        kinds |= {"open task"} if absences.away & open_tasks.keys() else set()
        seen.update(kinds)
        if kinds:
            steps.append(step + 1)  # saved after this step, killed in the next one

    whole_run(learned, tmp_path / "whole", watch)
    assert seen == ({"away", "open task"} if on_leave == "keep" else {"away"})
    check_same(learned, tmp_path, 1, some(steps))
