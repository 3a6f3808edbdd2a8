"""Warnings of a run, below the table and in its exit status."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest
from builders import small_run
from paths import SUPPORT
from typer.testing import CliRunner

from edgefl.cli import app
from edgefl.results.summary import warnings

CONFIG = f"""
name = "control"
task = "{SUPPORT / "own_task.py"}:build"
stop = {{ versions = 2 }}
edges = {{ count = 2 }}
[[strategies]]
strategy = "{SUPPORT / "own_strategies.py"}:Control"
[[strategies]]
strategy = "fedavg"
"""
# ten classes after training with a learning rate of 50
GUESSING = {
    "final_accuracy": 0.1003,
    "initial_loss": 2.304,
    "highest_loss": 27891.0,
    "final_loss": 4.787,
}
WORSE = (
    "diverged: the test loss rose from 2.3 to {}, and the last model, with 4.79, is no better than"
    " guessing"
)
NOTHING_USED = ["no new model was made: the last model is the initial model"]


def facts(**values: Any) -> dict[str, Any]:
    return {
        "finished": "versions",
        "versions": 1,
        "updates_received": 5,
        "updates_discarded": {},
    } | values


@pytest.mark.parametrize(
    ("values", "sentences"),
    [
        ({}, []),
        ({"fidelity": {"wire": {"useless message (pi-1)": 99}, "quarantined": {}}}, []),
        (
            {"fidelity": {"wire": {"useless message (pi-1)": 100}, "quarantined": {"pi-2": "why"}}},
            [
                "excluded for what it sent: 1 edge (pi-2): why",
                "1 edge (pi-1) sent 100 messages that changed nothing",
            ],
        ),
        ({"updates_received": 10, "updates_discarded": {"too stale": 5}}, []),
        (
            {"updates_received": 11, "updates_discarded": {"too stale": 6}},
            ["6 of 11 updates were discarded: too stale"],
        ),
        (
            {"updates_received": 17, "updates_discarded": {"a": 2, "too stale": 9, "b": 1}},
            ["12 of 17 updates were discarded: too stale (9 times; 2 other reasons)"],
        ),
        (
            {"versions": 0, "updates_received": 25, "updates_discarded": {"wrong length": 25}},
            [*NOTHING_USED, "all 25 updates were discarded: wrong length"],
        ),
        ({"versions": 0, "updates_received": 0}, NOTHING_USED),
        (GUESSING, [WORSE.format("2.79e+04")]),
        (GUESSING | {"highest_loss": None}, [WORSE.format("infinity")]),
        (GUESSING | {"highest_loss": 4.787}, [WORSE.format("4.79")]),
        (GUESSING | {"highest_loss": 4.6}, []),  # less than twice the first model's loss
        (GUESSING | {"final_accuracy": 0.2}, []),
        (GUESSING | {"final_loss": 2.25}, []),  # the model learns again
        (GUESSING | {"versions": 0}, NOTHING_USED),
        (
            GUESSING | {"final_loss": None},
            [
                "the last model's test loss is not finite, although its weights are: an overflow in"
                " the model or the loss"
            ],
        ),
        (
            GUESSING | {"initial_loss": None, "final_loss": None},
            [
                "the test loss of the first model is not finite already: expected another cause"
                " than the training, such as the model, the loss or the test data"
            ],
        ),
        (
            {"scores_not_finite": {"test_loss": 7, "f1": 2}},
            [
                "scores are not finite (NaN or infinite) in evaluations in a row: test_loss in 7,"
                " f1 in 2"
            ],
        ),
        (
            {
                "updates_applied": 9,
                "edges_unused": {
                    "a": {"tasks": 8, "unused": 8, "reason": "not finite"},
                    "b": {"tasks": 4, "unused": 3, "reason": "too late"},
                    "c": {"tasks": 2, "unused": 2, "reason": "not finite"},
                },
            },
            [
                "1 edge (b) contributed little: 3 of 4 tasks had no use, mostly because of: too"
                " late; 2 edges (a, c) contributed nothing: 10 of 10 tasks had no use, mostly"
                " because of: not finite"
            ],
        ),
        ({"updates_applied": 0, "edges_unused": {"a": {}}}, []),  # other warnings say so
        (
            GUESSING | {"diverged_at_version": 7},
            ["diverged: version 7 is not finite (NaN or infinite), so its accuracy is meaningless"],
        ),
        (  # two classes, overfitted: wrong answers with high confidence
            GUESSING | {"final_accuracy": 0.8, "initial_loss": 0.69, "final_loss": 2.5},
            [],
        ),
        (
            {"numbers_capped": {"a": 3, "b": 1}},
            ["2 edges (a, b) reported more samples than possible: 4 numbers were capped"],
        ),
        (
            {"training_failed": {"a": 4, "b": 1}, "training_failed_first": "step 1 of 2: x"},
            ["training failed in 5 tasks of 2 edges (a, b), first: step 1 of 2: x"],
        ),
        (
            {"evaluations_skipped": {"no room": 3, "too many under way": 1}},
            ["4 evaluations were skipped: no room (3 times; 1 other reason)"],
        ),
        ({"tasks_timed_out": {"a": 4, "b": 1}}, ["5 tasks of 2 edges (a, b) timed out"]),
        ({"tasks_at_once": {"together": {"4": 3}, "one_by_one": {}}}, []),
        (
            {"tasks_at_once": {"together": {"4": 3, "2": 1}, "one_by_one": {"b": 1, "a": 5}}},
            [
                "6 of 10 groups of tasks (training.tasks_at_once) were trained again one by one:"
                " a (5 times; 1 other reason)"
            ],
        ),
    ],
)
def test_what_is_told_of_updates_and_tasks(values: dict[str, Any], sentences: list[str]) -> None:
    assert warnings(facts(**values)) == sentences


@pytest.mark.parametrize("end", [None, "interrupted", "launcher gone"])
def test_a_run_that_did_not_end_by_itself_could_have_made_a_model(end: str | None) -> None:
    assert warnings(facts(versions=0, finished=end)) == []


@pytest.mark.slow
def test_a_payload_of_another_length_than_expected_is_told(tmp_path: Path) -> None:
    """A control variate has parameters only; a model with batch norm is longer."""
    summary, directory = small_run(
        tmp_path,
        task="../support/own_task.py:build",
        strategies=[{"strategy": "../support/own_strategies.py:Control"}],
    )
    count = summary["updates_discarded"]["wrong length"]
    assert summary["versions"] == 0 and count > 0
    assert summary["warnings"] == [
        *NOTHING_USED,
        f"all {count} updates were discarded: wrong length",
    ]
    assert orjson.loads((directory / "summary.json").read_bytes())["warnings"]


@pytest.mark.processes
def test_a_run_without_a_new_model_ends_with_status_1(tmp_path: Path) -> None:
    """The results of the other strategies are still written."""
    config = tmp_path / "config.toml"
    config.write_text(CONFIG)
    words = ["run", str(config), "--clock", "virtual", "--out", str(tmp_path)]
    done = CliRunner().invoke(app, words, env={"COLUMNS": "200"})
    assert done.exit_code == 1
    below = " ".join(done.output.partition("verdict")[2].split())
    assert f"control: warning: {NOTHING_USED[0]}; all" in below
    assert "updates were discarded: wrong length" in below
    assert (tmp_path / "control" / "fedavg" / "summary.json").is_file()
