"""Scores that a strategy hears of, and scores that end the run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from builders import Desk, S, experiment, make, small_run
from hearing_strategies import Adjusting
from pools import bytes_with, learned_of

from edgefl.clocks.setup.rundir import replay_run
from edgefl.clocks.virtual.run_batch import open_pool
from edgefl.config.experiment import Experiment
from edgefl.coordinator.coordinator import ScoreStop
from edgefl.jobs import Evaluate
from edgefl.results.read import read_csv, read_events
from edgefl.strategies.base.events_and_decisions import Evaluated
from edgefl.strategies.fedasync import FedAsync

NAN, INF = float("nan"), float("inf")
HEARING: dict[str, Any] = {
    "devices": {"samples_per_s": 100.0, "slowest_ratio": 5.0},
    "strategies": [
        {"strategy": "../support/hearing_strategies.py:Adjusting", "label": "x", "concurrency": 3}
    ],
}


# ------------------------------------------------------------------ the coordinator
def desk(folder: Path, kind: type[FedAsync] = Adjusting, **evaluation: Any) -> tuple[Desk, Any]:
    """A coordinator that has begun, and its first evaluation."""
    made = Desk(folder, make(kind, concurrency=1), evaluation=evaluation)
    outputs = made.coordinator.start({"a": 1, "b": 1}, 0)
    assert made.lines(outputs)[0] == "evaluate v0"
    return made, outputs[0]


def heard(made: Desk) -> list[dict[str, Any]]:
    return [event for event in made.events() if event.get("event") == "evaluated"]


@pytest.mark.parametrize(
    ("cost_s", "known_ns", "due_ns"), [(0.0, 0, 0), (2.0, 1 * S, 2 * S), (2.0, 3 * S, 3 * S)]
)
def test_scores_are_heard_after_their_cost_or_when_they_are_known(
    tmp_path: Path, cost_s: float, known_ns: int, due_ns: int
) -> None:
    made, run = desk(tmp_path, cost_s=cost_s)
    assert run.duration_ns == cost_s * S
    assert made.coordinator.job_done(run.job, (0.5, 2.5, 0.25), known_ns) == []
    assert heard(made) == [] and made.coordinator.next_due() == due_ns
    made.wake(due_ns)
    (row,) = heard(made)
    scores = {"train_loss": 0.5, "test_loss": 2.5, "accuracy": 0.25}
    assert (row["t"], row["at_ns"], row["of_version"], row["version"]) == (due_ns / S, 0, 0, 0)
    assert row["scores"] == scores and row["decisions"][0]["values"]["loss"] == 2.5
    assert made.coordinator.job_done(run.job, (0.5, 2.5, 0.25), known_ns) == []


def test_a_strategy_that_does_not_ask_hears_nothing(tmp_path: Path) -> None:
    made, run = desk(tmp_path, FedAsync)
    assert run.duration_ns is None
    before = made.coordinator.next_due()
    made.coordinator.job_done(run.job, (0.5, 2.5, 0.25), 1 * S)
    assert made.coordinator.next_due() == before and heard(made) == []


def test_scores_that_are_missing_or_not_finite(tmp_path: Path) -> None:
    made, run = desk(tmp_path, metric="perplexity")
    made.coordinator.job_done(run.job, (None, NAN, 0.5, INF), 0)
    made.wake(0)
    (row,) = heard(made)
    assert row["scores"] == {"test_loss": None, "accuracy": 0.5, "perplexity": None}
    with pytest.raises(KeyError, match="expected one of 'accuracy'"):
        Evaluated(0, 0, {"accuracy": 1.0}).scores["loss"]


# ------------------------------------------------------------------ under the virtual clock
@pytest.mark.parametrize("cost_s", [0.0, 0.7])
def test_each_evaluation_is_heard_at_its_moment_and_the_run_replays(
    cost_s: float, tmp_path: Path
) -> None:
    sections = HEARING | {
        "stop": {"emulated_s": 20.0},
        "evaluation": {"cost_s": cost_s, "every_versions": 2, "every_s": 1.5},
        "record": {"payloads": True},
    }
    _, directory = small_run(tmp_path, **sections)
    events = [row for row in read_events(directory / "events.jsonl") if "event" in row]
    rows = [row for row in events if row["event"] == "evaluated"]
    metrics = read_csv(directory / "metrics.csv")
    told = [row for row in metrics if float(row["emulated_s"]) + cost_s < 20.0]
    assert len(rows) == len(told) > 8 and rows[0]["of_version"] == 0
    for row, of in zip(rows, told):
        assert row["of_version"] == int(of["version"])
        assert row["at_ns"] / S == pytest.approx(float(of["emulated_s"]), abs=1e-9)
        assert row["t"] == pytest.approx(row["at_ns"] / S + cost_s, abs=1e-9)
        assert row["scores"]["accuracy"] == pytest.approx(float(of["accuracy"]), abs=1e-6)
    assert any(row["event"] == "alarm_rang" and row["decisions"] for row in events)
    assert replay_run(directory).version == events[-1]["version"] + len(
        [row for row in events[-1]["decisions"] if row["do"] == "publish"]
    )


WAITING = HEARING | {
    "stop": {"versions": 14, "target": {"metric": "test_loss", "value": 1e-9}},
    "evaluation": {"cost_s": 0.4},
}


@pytest.mark.processes
def test_workers_leave_the_bytes_of_one_process(tmp_path: Path) -> None:
    learned = learned_of(**WAITING)
    alone = bytes_with(tmp_path / "alone", learned, None)
    for workers in (2, 3):
        with open_pool(learned, workers) as pool:
            assert bytes_with(tmp_path / f"of {workers}", learned, pool) == alone


# ------------------------------------------------------------------ scores that end a run
def ends(given: Experiment, scores: Sequence[float], name: str = "accuracy") -> list[Any]:
    """The key that ends the run at each of these evaluations, one second after the other."""
    stop = ScoreStop()
    found = (
        stop.take(given, Evaluated(number, number * S, {name: value}))
        for number, value in enumerate(scores)
    )
    return [each and each[0] for each in found]


def test_a_target_is_reached_from_below_or_above_or_held(tmp_path: Path) -> None:
    up = experiment(stop={"target": {"value": 0.5}})
    assert ends(up, [0.1, NAN, 0.49, 0.5]) == [None, None, None, "target"]
    down = experiment(stop={"target": {"metric": "test_loss", "value": 0.5}})
    assert ends(down, [0.6, NAN, 0.51, 0.5], "test_loss") == [None, None, None, "target"]
    held = experiment(stop={"target": {"for_evaluations": 3}}, evaluation={"target": 0.5})
    assert ends(held, [0.5, 0.6, 0.4, 0.9, 0.9, 0.9]) == [None] * 5 + ["target"]
    assert ends(held, [0.5, 0.6, NAN, 0.9, 0.9]) == [None] * 5


def test_no_progress_counts_from_the_best_model(tmp_path: Path) -> None:
    given = experiment(stop={"no_progress_s": 2.0})
    assert ends(given, [0.1, 0.2, 0.2, 0.1]) == [None, None, None, "no_progress_s"]
    assert ends(given, [0.1, 0.2, 0.2, 0.3, 0.3]) == [None] * 5
    assert ends(given, [NAN, NAN, NAN]) == [None, None, "no_progress_s"]
    falls = experiment(stop={"no_progress_s": 2.0}, evaluation={"metric": "perplexity"})
    assert ends(falls, [9.0, 8.0, 8.5, 8.0], "perplexity")[-1] == "no_progress_s"


@pytest.mark.parametrize("cost_s", [0.0, 0.5])
def test_a_run_ends_at_the_moment_at_which_the_target_is_known(
    cost_s: float, tmp_path: Path
) -> None:
    plain, directory = small_run(tmp_path / "plain", stop={"versions": 12})
    rows = read_csv(directory / "metrics.csv")
    best = max(float(row["accuracy"]) for row in rows[:8])
    first = next(row for row in rows if float(row["accuracy"]) >= best)
    summary, _ = small_run(
        tmp_path / "target",
        stop={"versions": 1000, "target": {"value": best - 1e-6}},
        evaluation={"cost_s": cost_s},
    )
    assert summary["finished"] == "target" and plain["finished"] == "versions"
    assert summary["emulated_s"] == pytest.approx(float(first["emulated_s"]) + cost_s, abs=1e-8)
    stopped = summary["stopped"]
    assert stopped["metric"] == "accuracy" and stopped["of_version"] == int(first["version"])
    assert stopped["score"] >= stopped["target"] == best - 1e-6 and stopped["in_a_row"] == 1


def test_the_last_evaluation_is_recorded_and_not_heard(tmp_path: Path) -> None:
    made, run = desk(tmp_path, cost_s=5.0)
    outputs = made.coordinator.finish("interrupted", 1 * S)
    assert made.lines(outputs) == ["finish: interrupted"], "version 0 is evaluated already"
    assert isinstance(run.job, Evaluate)
    made.coordinator.job_done(run.job, (0.5, 2.5, 0.25), 1 * S)
    assert made.wake(9 * S) == [] and heard(made) == []
    made.record.flush()
    assert [row["version"] for row in read_csv(tmp_path / "metrics.csv")] == ["0"]
