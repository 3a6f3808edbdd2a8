"""``training.decay``: the rates with which tasks train and servers step, against closed forms."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from builders import S, experiment, layout, vector
from kills import killed_run
from pools import bytes_of, learned_of
from safetensors.numpy import load_file
from trainers import linear_trainer

from edgefl.clocks.setup.plan import strategy
from edgefl.clocks.setup.rundir import replay_run
from edgefl.clocks.virtual.run import run_virtual
from edgefl.clocks.virtual.run_batch import open_pool
from edgefl.config.file import strategy_warnings
from edgefl.edges.training import TrainingPlan
from edgefl.protocol.messages import Assignment
from edgefl.results.read import read_events
from edgefl.strategies.base.events_and_decisions import (
    EdgeJoined,
    Publish,
    Report,
    RunStarted,
    UpdateArrived,
)
from edgefl.strategies.dissemination.learned import arrival
from edgefl.strategies.fedac import Controlled, FedACOptions

BY_VERSION = {"name": "exponential", "factor": 0.5, "every_versions": 2}
ASKING = {"strategy": "fedasmu", "dispatch": "replace", "concurrency": 2, "selector": "h1"}
CASES: dict[str, dict[str, Any]] = {
    "fedavg": {"strategy": "fedavg", "clients_per_round": 2},
    "a rate of its own": {"strategy": "fedbuff", "concurrency": 3, "local_learning_rate": 0.2}
    | {"buffer_size": 2},
    "its own Assign, and a gradient from a change of weights": ASKING,
    "scales of its own": {"strategy": "fedsa", "concurrency": 2},
}
OWN = """from edgefl.api import LocalRule, Strategy

class Looks(LocalRule):
    moves = False

class Mine(Strategy):
    rule = Looks
"""


def sections(entry: dict[str, Any], decay: dict[str, Any] | None, **more: Any) -> dict[str, Any]:
    training = {"epochs": 2, "batch_size": 16, "learning_rate": 0.1}
    return {
        "strategies": [entry],
        "devices": {"samples_per_s": 100.0, "slowest_ratio": 3.0},
        "training": training if decay is None else training | {"decay": decay},
        "stop": {"versions": 8},
        **more,
    }


def run_of(folder: Path, *given: Any, **more: Any) -> Path:
    run_virtual(learned_of(**sections(*given, **more)), 0, folder)
    return folder


def assigned(folder: Path) -> Iterator[tuple[float, int, float]]:
    """(emulated s, version, factor) of each Assign; a Publish before it counts."""
    for row in read_events(folder / "events.jsonl"):
        version = row.get("version", 0)
        for decision in row.get("decisions", ()):
            if decision["do"] == "publish":
                version = decision["version"]
            elif decision["do"] == "assign":
                yield row["t"], version, decision["decay"]


@pytest.mark.parametrize("name", CASES)
def test_a_task_has_the_factor_of_the_version_at_which_it_is_assigned(
    name: str, tmp_path: Path
) -> None:
    folder = run_of(tmp_path, CASES[name], BY_VERSION)
    found = list(assigned(folder))
    assert {version for _, version, _ in found} >= {0, 2, 4, 6}
    assert all(factor == 0.5 ** (version // 2) for _, version, factor in found)
    if CASES[name] is ASKING:  # its edges send the rate with which they train
        rows = read_events(folder / "events.jsonl")
        updates = [row for row in rows if row.get("event") == "update_arrived"]
        assert any(row["numbers"]["merged"] for row in updates)
        for row in updates:
            assert row["numbers"]["learning_rate"] == 0.1 * 0.5 ** (row["base_version"] // 2)


def test_the_factor_may_depend_on_the_emulated_time(tmp_path: Path) -> None:
    found = list(
        assigned(run_of(tmp_path, CASES["fedavg"], {"name": "inverse_sqrt", "every_s": 2.5}))
    )
    assert found[-1][0] > 5 and len({factor for *_, factor in found}) > 3
    for at_s, _, factor in found:
        assert factor == pytest.approx((1 + at_s // 2.5) ** -0.5)


def test_an_edge_trains_with_the_rate_times_the_factor(tmp_path: Path) -> None:
    """One step a task: with a tenth of the rate the second task moves a tenth as far."""

    def model(factor: float, versions: int) -> np.ndarray:
        decay = {"name": "steps", "factor": factor, "at_versions": [1]}
        training = {"batches_per_epoch": 1, "learning_rate": 0.1, "decay": decay}
        stop, one = {"versions": versions}, {"names": ["a"]}
        folder = tmp_path / f"{factor} {versions}"
        run_of(folder, {"strategy": "fedavg"}, None, training=training, stop=stop, edges=one)
        weights: np.ndarray = load_file(folder / "model.safetensors")["weights"]
        return weights

    first = model(1.0, 1)
    assert first.tobytes() == model(0.1, 1).tobytes()
    whole, tenth = model(1.0, 2) - first, model(0.1, 2) - first
    assert np.abs(whole).max() > 0.01
    assert tenth == pytest.approx(0.1 * whole, abs=1e-7)


def test_a_gradient_from_a_change_of_weights_divides_by_the_tasks_rate() -> None:
    """Rate .1, scale .5. FedASMU: three steps along (1, 2) end at -.05 x 3 (1, 2). FedAC's edge,
    on a loss whose gradient is constant, learns that gradient.
    """
    numbers = {"steps": 3.0, "learning_rate": 0.05}
    update = UpdateArrived("a", 0, 0, vector(0, 0), {"weights": vector(-0.15, -0.3)}, numbers)
    found = arrival(update, None, 0, 0, 1, 1)
    change = sum(factor * model for model, factor in found.trained)
    assert change / found.path == pytest.approx([1.0, 2.0])

    rows, plan = torch.tensor([[1.0, 2.0, 3.0]]), TrainingPlan(3, 1, 0.1)
    trainer = linear_trainer(plan, rows, torch.zeros(1, 1))
    trainer.loss = lambda output, targets: output.sum()
    rule = Controlled(FedACOptions())
    vectors = {"weights": vector(0, 0, 0), "control": vector(0, 0, 0)}
    task = Assignment(0, 0, vectors, {"learning_rate_scale": 0.5})
    run = trainer.begin(task, rule, {})
    trainer.advance(run, rule)
    assert run.weights_array() == pytest.approx([-0.15, -0.3, -0.45])
    assert trainer.payload(run, rule)[0]["control"] == pytest.approx([1.0, 2.0, 3.0])


def test_without_steps_on_the_edges_the_servers_step_falls() -> None:
    """K-async: w <- w - decay(version) eta g; WKAFL and Zeno++ in runs below."""
    given = experiment(
        strategies=[{"strategy": "k-async", "buffer_size": 1, "server_learning_rate": 0.5}],
        training={"decay": {"name": "steps", "factor": 0.1, "at_versions": [1], "floor": 0.05}},
    )
    made = strategy(given, given.strategies[0], None, vector(0, 0, 0), layout())
    made.handle(EdgeJoined("a", 1), 0)
    made.handle(RunStarted(), 0)
    models = []
    for number in range(2):
        gradient = {"gradient": vector(1, 2, 4)}
        update = UpdateArrived("a", number, number, vector(0, 0, 0), gradient, {"loss": 1.0})
        report, publish, _ = made.handle(update, S)
        assert isinstance(report, Report) and isinstance(publish, Publish)
        assert report.values["decay"] == (1.0, 0.1)[number]
        models.append(publish.weights)
    assert models[0] == pytest.approx([-0.5, -1, -2])
    assert models[1] == pytest.approx([-0.55, -1.1, -2.2])


@pytest.mark.parametrize("name", ["wkafl", "zeno-plus-plus", "gsgm"])
def test_gradients_in_a_run(name: str, tmp_path: Path) -> None:
    entry = {"strategy": name, "server_learning_rate": 0.1}
    entry |= {} if name == "zeno-plus-plus" else {"buffer_size": 2}
    folder = run_of(tmp_path / "run", entry, BY_VERSION, record={"payloads": True})
    rows = read_events(folder / "events.jsonl")
    made = [(row["version"], each) for row in rows for each in row.get("decisions", ())]
    assert not any("decay" in each for _, each in made if each["do"] == "assign")
    plain = run_of(tmp_path / "plain", entry, None)
    assert (folder / "model.safetensors").read_bytes() != (plain / "model.safetensors").read_bytes()
    if name == "wkafl":
        for version, each in made:
            if each["do"] == "report" and "stage" in each["values"]:
                assert each["values"]["decay"] == 0.5 ** (version // 2)
                assert each["values"]["learning_rate"] <= 0.1 * each["values"]["decay"]
    assert replay_run(folder).version == 8


def test_a_rate_of_0_ends_the_run_where_the_stop_does_not_tell(tmp_path: Path) -> None:
    decay = {"name": "linear", "over_versions": 3}
    stop = {"emulated_s": 500.0}
    for name in ("fedavg", "k-async"):
        given = sections({"strategy": name}, decay, stop=stop, edges={"names": ["a", "b"]})
        given["strategies"][0] |= {"buffer_size": 2} if name == "k-async" else {}
        summary = run_virtual(learned_of(**given), 0, tmp_path / name)
        expected = "training.decay: the learning rate has fallen to 0 at version 3"
        assert (summary["finished"], summary["versions"]) == (expected, 3)


@pytest.mark.processes
def test_a_run_that_is_resumed_or_has_workers_has_the_same_rates(tmp_path: Path) -> None:
    """With jitter of tasks, too. The replay decides what the strategy decided."""
    given = sections(ASKING, {"name": "linear", "over_s": 900.0}, record={"payloads": True})
    given["devices"] |= {"task_jitter": 0.15}
    learned = learned_of(**given)
    run_virtual(learned, 0, tmp_path / "whole")
    killed_run(learned, tmp_path / "killed", (7, 19))
    with open_pool(learned, 2) as pool:
        run_virtual(learned, 0, tmp_path / "pool", pool=pool)
    whole = bytes_of(tmp_path / "whole")
    assert whole == bytes_of(tmp_path / "killed") == bytes_of(tmp_path / "pool")
    assert len({factor for *_, factor in assigned(tmp_path / "whole")}) > 5
    assert replay_run(tmp_path / "whole").version == 8


def test_a_strategy_without_any_step_is_warned_about(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(OWN)
    entry = {"strategy": "mine.py:Mine"}
    for decay, warned in ((BY_VERSION, 1), (None, 0)):
        given = experiment(strategies=[entry], training={"decay": decay} if decay else {})
        found = [line for line in strategy_warnings(given, tmp_path) if "decay" in line]
        assert found == ["mine: training.decay has no effect: its edges make no steps"][:warned]
