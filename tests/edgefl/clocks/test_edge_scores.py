"""Scores on each edge's own samples: which samples, when, and their values against a loop that
evaluates edge by edge; on both clocks and in any number of workers.
"""

from __future__ import annotations

import csv
import math
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest
from builders import experiment, small_run
from pools import SPREAD, learned_of
from recorded_items import HandRun

from edgefl.clocks.setup.learning import Learning, learning
from edgefl.clocks.virtual.run import run_virtual
from edgefl.clocks.virtual.run_batch import open_pool
from edgefl.clocks.wall.coordinator import thread_messages as messages
from edgefl.config.experiment import EdgeScores
from edgefl.config.file import from_json, shared_digest, to_json
from edgefl.data import edge_data, shards
from edgefl.errors import UserError
from edgefl.jobs import Evaluate
from edgefl.models.evaluate import evaluate
from edgefl.streams import Streams
from edgefl.vectors import aligned_copy

DIGITS = {"data": {"name": "digits"}, "model": {"name": "mlp", "hidden": [8]}}
SKEWED = {"partition": {"name": "dirichlet", "alpha": 0.3}, "edges": {"count": 7}}


def rows_of(run: Path) -> list[dict[str, str]]:
    with (run / "clients.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def by_hand(learned: Learning, weights: np.ndarray, edge: str) -> tuple[float, float]:
    """Loss and accuracy of the edge's samples, in one batch of torch."""
    rows = (learned.held_out or learned.shards)[edge]
    inputs, targets = learned.train
    task = learned.task
    return evaluate(
        learned.workspace,
        weights,
        inputs[rows],
        targets[rows],
        task.loss,
        batch=len(rows),
        metric=task.metric,
        terms=task.terms,
    )


# ---------------------------------------------------------------------- values
CASES: dict[str, dict[str, Any]] = {
    "compiled": DIGITS | SKEWED,
    "torch": DIGITS | SKEWED | {"training": {"engine": "torch"}},
    "convolutions in torch": {
        "data": {"name": "digits"},
        "model": {"name": "cnn"},
        "training": {"engine": "torch"},
    },
    "a task of one's own": {"task": "my_task.py:build"},
    "regression": {"task": "../support/regression_task.py:build"},
}


@pytest.mark.parametrize("held_out", [0.0, 0.3])
@pytest.mark.parametrize("case", CASES)
def test_scores_are_those_of_a_loop_over_the_edges(case: str, held_out: float) -> None:
    sections = {"task": None} | CASES[case]
    learned = learned_of(**sections, evaluation={"edges": {"held_out": held_out}})
    weights = aligned_copy(learned.initial_weights() * 1.5)
    scores = learned.evaluate(Evaluate(0, 0, weights, 0, 0, of_edges=True))
    table = np.reshape(np.array(scores, dtype=float), (-1, 3))
    assert len(table) == len(learned.shards)
    for edge, (loss, accuracy, samples) in zip(learned.shards, table):
        assert samples == len((learned.held_out or learned.shards)[edge])
        assert (loss, accuracy) == pytest.approx(by_hand(learned, weights, edge), rel=1e-5)


def test_a_model_that_is_not_finite_has_a_row_all_the_same() -> None:
    learned = learned_of(**DIGITS, task=None, evaluation={"edges": {}})
    weights = np.full_like(learned.initial_weights(), np.nan)
    loss, accuracy, samples, *_ = learned.evaluate(Evaluate(0, 0, weights, 0, 0, of_edges=True))
    assert loss is not None and math.isnan(loss) and 0 <= accuracy <= 1 and samples > 0


# ---------------------------------------------------------------------- which samples
def test_what_is_held_out() -> None:
    """round(share n), at least 1 and at most n - 1; each sample is on one side; order is kept."""
    shares = {
        "a": np.arange(10) * 3 + 1,
        "b": np.array([5, 2]),
        "c": np.array([40]),
        "d": np.arange(9),
    }
    trained, scored = edge_data.divided(shares, 0.25, Streams(1))
    assert {edge: len(rows) for edge, rows in scored.items()} == {"a": 2, "b": 1, "c": 0, "d": 2}
    for edge, rows in shares.items():
        both = [*trained[edge], *scored[edge]]
        assert sorted(both) == sorted(rows) and len(both) == len(rows)
        places = [list(rows).index(row) for row in trained[edge]]
        assert places == sorted(places)
    nearly_all = edge_data.divided(shares, 0.99, Streams(1))[0]
    assert [len(rows) for rows in nearly_all.values()] == [1, 1, 1, 1]


def test_edges_train_on_the_rest_and_say_so(tmp_path: Path) -> None:
    """A strategy knows the training samples only; the train loss is theirs, too."""
    given = {"evaluation": {"edges": {"held_out": 0.2}}, "stop": {"versions": 2}}
    _, run = small_run(tmp_path, **given)
    learned = learned_of(**given)
    assert learned.held_out is not None
    counts = {
        edge: (len(rows), len(learned.held_out[edge])) for edge, rows in learned.shards.items()
    }
    assert set(counts.values()) <= {(54, 13), (53, 13)}  # 200 samples on three edges
    joined = [row for row in map(orjson.loads, (run / "events.jsonl").open()) if "samples" in row]
    assert {row["edge"]: row["samples"] for row in joined} == learned.samples
    assert learned.samples == {edge: count for edge, (count, _) in counts.items()}
    assert {row["edge"]: int(row["samples"]) for row in rows_of(run)} == {
        edge: count for edge, (_, count) in counts.items()
    }
    assert not set(learned.held_out.indices) & set(learned._picked())


def test_an_edge_with_its_own_file_trains_on_the_same_samples(tmp_path: Path) -> None:
    """``edgefl data shard`` writes all samples; coordinator and edge hold out the same ones."""
    given = experiment(**DIGITS, **SKEWED, evaluation={"edges": {"held_out": 0.2}})
    here = learning(given, None)
    whole, found = here.whole_shares, here.task.dataset
    shards.write(tmp_path / "files", "digits", found, whole, edge_data.digests(found, whole))
    data = given.data.model_copy(update={"source": "shard", "dir": str(tmp_path / "files")})
    there = learning(given.model_copy(update={"data": data}), None, ["e003"])
    assert there.data_digest() == here.data_digest()
    for part in ("train_x", "train_y"):
        ours, theirs = (getattr(each.task.dataset, part) for each in (here, there))
        assert (ours[here.shards["e003"]] == theirs[there.shards["e003"]]).all()
    # the coordinator, too, if it has the files of all edges
    all_files = learning(given.model_copy(update={"data": data}), None, ())
    weights = here.initial_weights()
    job = Evaluate(0, 0, weights, 0, 0, of_edges=True)
    assert all_files.evaluate(job) == here.evaluate(job)
    (tmp_path / "files" / "e003.safetensors").unlink()
    with pytest.raises(UserError) as error:
        learning(given.model_copy(update={"data": data}), None, ())
    assert str(error.value).startswith(
        "evaluation.edges: expected the samples of all edges on the coordinator's machine, where"
        " the model is scored on them: no file "
    )


def test_a_missing_data_set_is_told_as_ever() -> None:
    given = experiment(data={"name": "mnist", "dir": "/nowhere"}, evaluation={"edges": {}})
    with pytest.raises(UserError) as error:
        learning(given, None, ())
    assert "evaluation.edges" not in str(error.value)


def test_edges_get_the_held_out_share_with_the_config() -> None:
    """Coordinator and edges must agree on it, but not on when the model is scored."""
    plain, often, held_out = (
        experiment(evaluation={} if edges is None else {"edges": edges})
        for edges in (None, {"every_versions": 5}, {"held_out": 0.25})
    )
    entry = plain.strategies[0]
    assert from_json(to_json(held_out, entry)).held_out == 0.25
    assert to_json(plain, entry) == to_json(often, entry)
    assert shared_digest(plain, entry) == shared_digest(often, entry)
    assert shared_digest(plain, entry) != shared_digest(held_out, entry)


# ---------------------------------------------------------------------- when
def versions_of(run: Path) -> dict[int, float]:
    """Version -> moment; each has a row for each edge, in the order of the edges."""
    edges: Mapping[tuple[int, float], list[str]] = defaultdict(list)
    for row in rows_of(run):
        edges[int(row["version"]), float(row["emulated_s"])].append(row["edge"])
    assert all(names == ["a", "b", "c"] for names in edges.values())
    assert len({version for version, _ in edges}) == len(edges)
    return dict(edges.keys())


@pytest.mark.parametrize(
    ("edges", "stop", "expected"),
    [
        ({}, {"versions": 7}, [7]),
        ({"every_versions": 3}, {"versions": 7}, [0, 3, 6, 7]),
        ({"every_versions": 3}, {"versions": 6}, [0, 3, 6]),
        ({"every_versions": 100}, {"versions": 7}, [0, 7]),
    ],
)
def test_versions_that_are_scored(
    tmp_path: Path, edges: dict[str, Any], stop: dict[str, Any], expected: list[int]
) -> None:
    sections = {"strategies": [{"strategy": "fedasync"}], "stop": stop}
    _, run = small_run(tmp_path, **sections, evaluation={"every_versions": 2, "edges": edges})
    assert list(versions_of(run)) == expected
    with (run / "metrics.csv").open() as file:
        metrics = [int(row["version"]) for row in csv.DictReader(file)]
    assert metrics == sorted({*range(0, stop["versions"], 2), stop["versions"]}), "as without"


def test_moments_that_are_scored(tmp_path: Path) -> None:
    """The model of each moment, once; and the last one."""
    sections = {"strategies": [{"strategy": "fedasync"}], "stop": {"emulated_s": 2.2}}
    _, run = small_run(tmp_path, **sections, evaluation={"edges": {"every_s": 0.5}})
    found = list(versions_of(run).values())
    assert found[0] == 0.0 and set(found) <= {0.0, 0.5, 1.0, 1.5, 2.0, 2.2} and found[-1] == 2.2
    published = [
        row["t"]
        for row in map(orjson.loads, (run / "events.jsonl").open())
        if any(each["do"] == "publish" for each in row.get("decisions", ()))
    ]
    for version, at_s in versions_of(run).items():
        assert version == sum(t < at_s or (t == at_s and at_s == 2.2) for t in published)


def test_an_edge_with_one_sample_has_no_scores(tmp_path: Path) -> None:
    sections: dict[str, Any] = {
        "edges": {"count": 200},
        "stop": {"versions": 1},
        "evaluation": {"edges": {"held_out": 0.5}},
    }
    summary, run = small_run(tmp_path, **sections)
    rows = rows_of(run)
    assert len(rows) == 200
    assert {(row["loss"], row["accuracy"], row["samples"]) for row in rows} == {("", "", "0")}
    assert "edge_scores" not in summary


@pytest.mark.processes
def test_workers_leave_the_same_bytes(tmp_path: Path) -> None:
    scored = {"evaluation": {"edges": {"every_versions": 1, "held_out": 0.2}}}
    strategies = [{"strategy": "fedbuff", "concurrency": 3, "buffer_size": 2}]
    learned = learned_of(**SPREAD, **scored, strategies=strategies)
    run_virtual(learned, 0, tmp_path / "here")
    with open_pool(learned, 2) as pool:
        run_virtual(learned, 0, tmp_path / "workers", pool=pool)
    one, other = (tmp_path / name / "clients.csv" for name in ("here", "workers"))
    assert one.read_bytes() == other.read_bytes() and len(rows_of(tmp_path / "here")) == 3 * 13


# ---------------------------------------------------------------------- the wall clock
def test_scores_of_a_version_and_of_its_edges_do_not_mix(tmp_path: Path) -> None:
    """Both may be under way when a run is broken off; each has rows of its own, once."""
    sections = {"evaluation": {"edges": {"every_versions": 1}}}
    run = HandRun(tmp_path, **sections)
    run.give(messages.Begin({"a": 10, "b": 10, "c": 10}, 1000.0))
    assert list(run.logic.core.evaluations) == [(0, False), (0, True)]
    run.give(messages.Scored(0, (0.5, 0.25, 10.0) * 3, of_edges=True))
    run.checkpoint()
    again = HandRun(tmp_path, resume=True, **sections)
    assert list(again.logic.core.evaluations) == [(0, False)]
    again.give(messages.Scored(0, (None, 2.5, 0.5)))
    assert again.logic.core.evaluations == {}
    files = again.files()
    assert files["clients.csv"].splitlines() == [
        b"version,emulated_s,edge,loss,accuracy,samples",
        *(f"0,0.000000000,{edge},0.500000,0.250000,10".encode() for edge in "abc"),
    ]
    assert files["metrics.csv"].count(b"\n") == 2


# ---------------------------------------------------------------------- wrong keys
@pytest.mark.parametrize(
    ("section", "line"),
    [
        ({"held_out": 1.0}, "less than 1"),
        ({"held_out": -0.1}, "greater than or equal to 0"),
        ({"every_versions": -1}, "greater than or equal to 0"),
        ({"every_s": 0.0}, "greater than or equal to"),
        ({"every": 3}, "not permitted"),
    ],
)
def test_wrong_values(section: dict[str, Any], line: str) -> None:
    with pytest.raises(ValueError, match="validation error") as error:
        EdgeScores.model_validate(section)
    assert line in str(error.value)
