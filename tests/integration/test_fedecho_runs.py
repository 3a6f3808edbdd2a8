"""FedEcho from end to end: both clocks, equal bytes for any workers, replay, server memory,
reports.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest
from builders import EXAMPLES, experiment, small_run
from processes import SMALL, patiently

from edgefl.clocks.setup.learning import learning
from edgefl.clocks.setup.rundir import replay_run
from edgefl.clocks.virtual.run import run_virtual
from edgefl.clocks.virtual.run_batch import open_pool
from edgefl.clocks.wall.launcher import LaunchOptions, WallRun
from edgefl.config.file import load
from edgefl.jobs import Distill
from edgefl.results.read import read_events

ENTRY: dict[str, Any] = {
    "strategy": "fedecho",
    "concurrency": 3,
    "buffer_size": 2,
    "distil_learning_rate": 0.01,
    "distil_batch_size": 8,
    "predict_s": 0.2,
    "distil_s": 1.5,
}
SECTIONS: dict[str, Any] = {
    "devices": {"samples_per_s": 100.0, "slowest_ratio": 5.0},
    "stop": {"versions": 6},
    "record": {"payloads": True},
    "unlabelled": {"size": 50},
    "edges": {"count": 5, "names": []},
    "strategies": [ENTRY],
}


def rounds(directory: Path) -> list[dict[str, float]]:
    """The report of each round."""
    decisions = [
        row
        for event in read_events(directory / "events.jsonl")
        for row in event.get("decisions", ())
    ]
    return [
        row["values"] for row in decisions if row["do"] == "report" and "teachers" in row["values"]
    ]


@pytest.mark.processes
def test_a_worker_that_dies_in_the_middle_of_distilling_is_replaced_and_nothing_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    learned = learning(experiment(**{"task": "my_task.py:build"} | SECTIONS), EXAMPLES)
    run_virtual(learned, 0, tmp_path / "whole")
    marker, work = tmp_path / "killed", Distill.work

    def once(job: Distill, with_these: Any) -> Any:
        result = work(job, with_these)
        if job.steps and not marker.exists():  # in the second round, before any process knows of it
            marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    monkeypatch.setattr(Distill, "work", once)
    with open_pool(learned, 2) as pool:
        assert run_virtual(learned, 0, tmp_path / "again", None, pool)["versions"] == 6
    assert marker.exists()
    for name in ("events.jsonl", "model.safetensors"):
        assert (tmp_path / "whole" / name).read_bytes() == (
            tmp_path / "again" / name
        ).read_bytes(), name


def test_a_client_that_falls_silent_in_the_middle_of_a_run_holds_nobody_up_and_still_teaches(
    tmp_path: Path,
) -> None:
    """The client is killed at 4 s, after its report: its logits stay in use, and the others
    continue.
    """
    summary, directory = small_run(
        tmp_path, **SECTIONS | {"faults": [{"kind": "kill", "edges": ["e000"], "at_s": 4.0}]}
    )
    arrived = [
        (event["t"], event["edge"])
        for event in read_events(directory / "events.jsonl")
        if event.get("event") == "update_arrived"
    ]
    assert (
        summary["versions"] == 6
        and any(edge == "e000" for _, edge in arrived)
        and all(t <= 4.0 for t, edge in arrived if edge == "e000")
    )
    others = {edge for t, edge in arrived if edge != "e000"}
    assert rounds(directory)[-1]["teachers"] == len(others) + 1


# ------------------------------------------------------------------ the wall clock
@pytest.fixture(scope="module")
def wall(
    warm_python: None, tmp_path_factory: pytest.TempPathFactory
) -> tuple[dict[str, Any], Path]:
    folder = tmp_path_factory.mktemp("wall")
    options = ", ".join(
        f'{name} = "{value}"' if isinstance(value, str) else f"{name} = {value}"
        for name, value in ENTRY.items()
    )
    text = SMALL.replace(
        'strategies = [{strategy = "fedasync", concurrency = 3}]',
        f"strategies = [{{{options}}}]\nunlabelled = {{size = 50}}",
    )
    (folder / "small.toml").write_text(
        text.replace("edges = {count = 3}", "edges = {count = 5}").replace(
            "versions = 8", "versions = 3"
        )
    )
    run = WallRun(
        load(folder / "small.toml", ["record.payloads=true"]),
        LaunchOptions(folder / "runs", folder),
        print,
    )
    return run.run(patiently())[0], run.directory(0)


@pytest.mark.alone
def test_on_the_wall_clock_jobs_take_their_emulated_time_and_the_run_replays(
    wall: tuple[dict[str, Any], Path],
) -> None:
    summary, directory = wall
    jobs = summary["fidelity"]["jobs"]
    assert (
        summary["versions"] == 3 and jobs["distill"]["count"] == 3 and jobs["predict"]["count"] >= 6
    )
    assert (
        jobs["distill"]["lag_ms"]["max"] is not None
        and jobs["distill"]["real_ms"]["p50"] > 0
        and jobs["distill"]["workers_died"] == 0
    )
    assert len(rounds(directory)) == 3 and all(
        row["server_s"] >= 1.7 - 1e-6 for row in rounds(directory)
    )
    assert replay_run(directory).version == 3
