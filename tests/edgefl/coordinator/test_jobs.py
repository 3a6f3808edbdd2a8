"""Jobs of a strategy: RunJob, then one JobDone at its emulated end on both clocks; failures;
journal and replay.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from builders import Desk, S, make, small_run, vector
from job_strategies import Forbidden, Halving
from paths import SUPPORT
from processes import SMALL, patiently

from edgefl.clocks.setup.rundir import replay_run
from edgefl.clocks.wall.launcher import LaunchOptions, WallRun
from edgefl.config.file import load
from edgefl.coordinator.coordinator import result_fault
from edgefl.errors import Bug
from edgefl.results.read import read_events

OWN = "../support/job_strategies.py:Halving"
SECTIONS: dict[str, Any] = {
    "devices": {"samples_per_s": 100.0, "slowest_ratio": 5.0},
    "stop": {"versions": 8},
    "record": {"payloads": True},
}


def halving(**options: Any) -> dict[str, Any]:
    return SECTIONS | {
        "strategies": [{"strategy": OWN, "label": "halving", "concurrency": 3, **options}]
    }


# ------------------------------------------------------------------ the coordinator
def desk(folder: Path, kind: type[Halving] = Halving, **options: Any) -> tuple[Desk, Any]:
    """A coordinator that has just handled an update of a, and the resulting job."""
    made = Desk(folder, make(kind, concurrency=1, **options), stop={"versions": 3})
    made.start("a", "b")
    outputs = made.coordinator.receive("a", update(0), 5 * S)
    assert made.lines(outputs)[1:2] == ["do Halve for 0.3"]
    return made, outputs[1].job


def update(number: int) -> Any:
    from edgefl.protocol.messages import Update

    return Update(number, 0, {"weights": vector(2, 4, 6)}, {"samples": 1.0})


def test_a_result_reaches_the_strategy_once(tmp_path: Path) -> None:
    made, job = desk(tmp_path)
    assert made.lines(
        made.coordinator.job_done(job, ({"weights": vector(1, 2, 3)}, {"samples": 7.0}), 6 * S)
    ) == ["evaluate v1"]
    assert (
        made.coordinator.job_done(job, ({"weights": vector(9, 9, 9)}, {"samples": 7.0}), 7 * S)
        == []
    ), "a second one is ignored"
    assert made.coordinator.weights.tolist() == [1, 2, 3]
    run, done = [
        event for event in made.events() if event.get("event") in ("update_arrived", "job_done")
    ]
    assert run["decisions"][0] == {
        "do": "run_job",
        "name": "halve 0",
        "job": "halve",
        "cost_s": 0.3,
    }
    assert (
        done["name"] == "halve 0"
        and done["numbers"] == {"samples": 7.0}
        and done["decisions"][0]["values"] == {"samples": 7.0}
    )


def test_what_a_strategy_may_not_do_is_a_bug(tmp_path: Path) -> None:
    with pytest.raises(Bug, match="Forbidden failed at") as caught:
        desk(tmp_path / "forbidden", Forbidden)
    assert "runs_jobs = True" in str(caught.value.__cause__)
    made, _ = desk(tmp_path / "twice")
    made.coordinator.strategy.updates = 0
    with pytest.raises(Bug) as caught:
        made.coordinator.receive("b", update(1), 6 * S)
    assert "a job of that name is under way" in str(caught.value.__cause__)
    with pytest.raises(TypeError, match="flat float32"):
        result_fault({"logits": np.zeros((2, 3), np.float32)}, {})


# ------------------------------------------------------------------ under the virtual clock
def test_a_job_is_due_after_its_cost_and_the_run_goes_on_meanwhile(tmp_path: Path) -> None:
    summary, directory = small_run(tmp_path, **halving(cost_s=4.0))
    events = read_events(directory / "events.jsonl")
    given = {
        row["name"]: event["t"]
        for event in events
        for row in event.get("decisions", ())
        if row["do"] == "run_job"
    }
    done = {event["name"]: event["t"] for event in events if event.get("event") == "job_done"}
    assert summary["versions"] == 8 and len(given) > len(done) == 8
    assert all(t == pytest.approx(given[name] + 4.0, abs=1e-9) for name, t in done.items())
    assert any(
        given["halve 0"] < event["t"] < done["halve 0"]
        for event in events
        if event.get("event") == "update_arrived"
    )


# ------------------------------------------------------------------ on the wall clock
@pytest.fixture(scope="module")
def wall(
    warm_python: None,
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[dict[str, Any], Callable[[str], Path], Path]:
    """Three strategies one after the other, each with a failure in its third job.

    Returns summaries by name, directories by name, and the marker.
    """
    folder = tmp_path_factory.mktemp("wall")
    mishaps = {"once": f"kill {folder / 'killed'}", "always": "always", "nan": "nan"}
    own = SUPPORT / "job_strategies.py"
    entries = [
        f'{{strategy = "{own}:Halving", label = "{name}", concurrency = 3, mishap = "{mishap}"}}'
        for name, mishap in mishaps.items()
    ]
    text = SMALL.replace(
        'strategies = [{strategy = "fedasync", concurrency = 3}]',
        f"strategies = [{', '.join(entries)}]",
    )
    (folder / "small.toml").write_text(text.replace("versions = 8", "versions = 6"))
    run = WallRun(
        load(folder / "small.toml", ["record.payloads=true"]),
        LaunchOptions(folder / "runs", folder),
        print,
    )
    summaries = run.run(patiently())
    return dict(zip(mishaps, summaries)), lambda name: folder / "runs" / name, folder / "killed"


@pytest.mark.rest
@pytest.mark.alone
def test_on_the_wall_clock_a_worker_that_dies_is_replaced_and_the_run_replays(wall: Any) -> None:
    summaries, directory, marker = wall
    jobs = summaries["once"]["fidelity"]["jobs"]["halve"]
    assert (
        marker.exists()
        and summaries["once"]["versions"] == 6
        and jobs["count"] >= 6
        and jobs["workers_died"] == 1
    )
    events = read_events(directory("once") / "events.jsonl")
    given = {
        row["name"]: event["t"]
        for event in events
        for row in event.get("decisions", ())
        if row["do"] == "run_job"
    }
    done = {event["name"]: event["t"] for event in events if event.get("event") == "job_done"}
    assert len(done) == 6 and all(t >= given[name] + 0.3 - 1e-9 for name, t in done.items()), (
        "never before its emulated end"
    )
    assert replay_run(directory("once")).version == 6


@pytest.mark.rest
@pytest.mark.alone
@pytest.mark.parametrize(
    ("name", "reason"), [("always", "its worker died 3 times"), ("nan", "not finite")]
)
def test_on_the_wall_clock_the_run_goes_on_without_a_result(
    wall: Any, name: str, reason: str
) -> None:
    summaries, directory, _ = wall
    failed = [
        event
        for event in read_events(directory(name) / "events.jsonl")
        if event.get("event") == "job_failed"
    ]
    assert summaries[name]["versions"] == 6 and [
        (event["name"], event["reason"]) for event in failed
    ] == [("halve 2", reason)]
    assert replay_run(directory(name)).version == 6
