"""Flower apps under the virtual clock, beside Flower's own server in this process."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flower_apps import APPS, CODE, NEEDS_FLOWER, PROJECT, flower_config, small_app
from safetensors.numpy import load_file

from edgefl.clocks.setup.learning import learning
from edgefl.clocks.virtual.run import run_virtual
from edgefl.config.experiment import Experiment
from edgefl.errors import UserError
from edgefl.plugins.flower import flower_app
from edgefl.plugins.flower.flower_app import (
    FlowerApp,
    app_folder,
    first_round,
    identify,
    node_id_of,
    packed,
    score,
    unpacked,
)
from edgefl.plugins.flower.flower_learning import FlowerLearning, seeded
from edgefl.results.summary import warnings
from edgefl.streams import Streams

pytestmark = NEEDS_FLOWER


NO_ARRAYS = re.sub(r"first = .*", "first = ArrayRecord({})", CODE)


class InProcess:
    """A Flower grid whose clients are called at once. ``models``: what each round started from."""

    def __init__(self, app: FlowerApp) -> None:
        from flwr.supercore.run import Run

        self.app, self.models, self.evaluations = app, [], []
        self.states: dict[int, Any] = {}
        self.run = Run.create_empty(1)

    def get_node_ids(self) -> Iterable[int]:
        return [node_id_of(partition) for partition in range(self.app.clients)]

    def send_and_receive(self, messages: Iterable[Any], *, timeout: Any = None) -> Iterable[Any]:
        from flwr.app import Message

        answers = []
        for message in messages:
            node, kind = message.metadata.dst_node_id, message.metadata.message_type
            partition = node - node_id_of(0)
            if kind == "train":
                arrays = next(iter(message.content.array_records.values()))
                self.models.append({name: each.numpy() for name, each in arrays.items()})
            reply = self.app.client(kind, partition, message.content, self.states.get(node))
            self.states[node] = reply.state if kind == "train" else self.states.get(node)
            answers.append(Message(reply.content, reply_to=message))
        return answers


def flowers_models(experiment: Experiment, base: Path) -> list[dict[str, np.ndarray]]:
    """The models from which Flower's own FedAvg starts its rounds."""
    from flwr.serverapp import ServerApp

    assert experiment.task is not None and experiment.flower is not None
    folder = app_folder(experiment.task, [base])
    run_config = folder.run_config(experiment.flower.run_config)
    app = FlowerApp(folder, run_config, len(experiment.edges.ids()))
    grid = InProcess(app)
    identify()
    assert folder.server is not None
    with seeded(Streams(experiment.seed), "model"):  # the first model is drawn
        app.component(folder.server, ServerApp)(grid, app.context(1, {}))
    return grid.models[:: app.clients]


@pytest.mark.parametrize("app", APPS)
def test_the_first_rounds_are_those_of_flowers_own_server(tmp_path: Path, app: str) -> None:
    """FedAvg here and there, on the same partition, from the same first model."""
    experiment = flower_config(tmp_path, app, "edges.count=4", "record.payloads=true")
    theirs = flowers_models(experiment, tmp_path)
    learned = learning(experiment, tmp_path)
    assert isinstance(learned, FlowerLearning) and len(theirs) == 3
    arrays = learned.tasks.arrays
    for versions in (1, 2):
        stop = experiment.stop.model_copy(update={"versions": versions})
        again = learning(experiment.model_copy(update={"stop": stop}), tmp_path)
        directory = tmp_path / f"run{versions}"
        summary = run_virtual(again, 0, directory)
        ours = load_file(directory / "model.safetensors")["weights"]
        assert summary["versions"] == versions
        for name, array in theirs[versions].items():
            if theirs[0][name].dtype.kind == "f":  # their mean of counts is cut off, ours rounded
                mine = arrays.layout.view(ours, name)
                assert np.abs(mine - array).max() < 1e-6 * max(1, np.abs(array).max()), name
        assert not np.allclose(ours, learned.initial_weights(), atol=1e-3), "it has trained"


@pytest.mark.parametrize("app", APPS)
@pytest.mark.parametrize("index", [0, 1, 2], ids=["fedavg", "fedasync", "fedbuff"])
def test_an_app_runs_and_gives_the_same_bytes_again(tmp_path: Path, app: str, index: int) -> None:
    experiment = flower_config(tmp_path, app, "stop.versions=2")
    made = []
    for directory in (tmp_path / "a", tmp_path / "b"):
        summary = run_virtual(learning(experiment, tmp_path), index, directory)
        assert summary["versions"] == 2 and summary["final_accuracy"] > 0.3
        assert not [line for line in events(directory) if line.get("fact") == "training_failed"]
        files = ("events.jsonl", "links.csv", "clients.csv", "model.safetensors")
        made.append([(directory / name).read_bytes() for name in files])
    assert made[0] == made[1]


def events(directory: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (directory / "events.jsonl").read_text().splitlines()]


def small(tmp_path: Path, module: str, *overrides: str) -> Experiment:
    if not (tmp_path / module).exists():
        small_app(tmp_path, module)
    changed = ("flower.samples=10", "flower.run_config={}", "stop.versions=2", *overrides)
    return flower_config(tmp_path, module, *changed)


def test_means_metrics_and_types_by_hand(tmp_path: Path) -> None:
    """w = (0, 1, 2); client i adds 1 + i with weight 1 + i: the mean adds (1 + 4 + 9 + 16) / 10."""
    learned = learning(small(tmp_path, "by_hand"), tmp_path)
    assert [entry.name for entry in learned.layout.entries] == ["w", "n"]
    assert learned.initial_weights().tolist() == [0, 1, 2, 2] and learned.layout.parameters == 3
    run_virtual(learned, 0, tmp_path / "run")
    assert load_file(tmp_path / "run" / "model.safetensors")["weights"].tolist() == [6, 7, 8, 2]
    with (tmp_path / "run" / "clients.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["version"] for row in rows] == [version for version in "012" for _ in range(4)]
    assert [float(row["loss"]) for row in rows[::4]] == [3, 12, 21]
    assert [float(row["accuracy"]) for row in rows[:4]] == [0, 0.1, 0.2, 0.3]
    with (tmp_path / "run" / "metrics.csv").open() as file:
        last = list(csv.DictReader(file))[-1]
    assert (float(last["test_loss"]), float(last["accuracy"])) == (21, 0.2)  # weights 1, 2, 3, 4


@pytest.mark.parametrize(
    ("mode", "said"),
    [
        ("raises", r"round 2: ValueError: no such sample \(faulty.py, line \d+\)"),
        ("nothing", "round 1: returned nothing for a 'train' message, expected a flwr.app.Message"),
        ("uncounted", "round 1: returned no metric 'num-examples' .nearest: 'num-example'"),
        ("shape", r"round 1: returned the array 'w' of shape \(2,\), expected \(3,\)"),
        ("fewer", "round 1: returned fewer arrays than the model has: 'n'"),
    ],
)
def test_a_client_that_fails_says_why_in_one_line(tmp_path: Path, mode: str, said: str) -> None:
    experiment = small(tmp_path, "faulty", f'flower.run_config={{mode="{mode}"}}')
    forget("faulty")
    run_virtual(learning(experiment, tmp_path), 0, tmp_path / "run")
    reasons = {
        line["reason"] for line in events(tmp_path / "run") if line.get("fact") == "training_failed"
    }
    told = [reason for reason in reasons if re.search(said, reason)]
    assert told and all("\n" not in reason for reason in reasons), reasons
    assert told[0].startswith("the Flower app of edge e00")


def forget(module: str) -> None:
    """Let the next test import its own app of that name."""
    import sys

    sys.modules.pop(module, None)


@pytest.mark.parametrize(
    ("code", "project", "said"),
    [
        ("raise OSError('disk')", PROJECT, "'broken:server' cannot be imported: OSError: disk"),
        (CODE, PROJECT.replace(":server", ":gone"), "'broken:gone' cannot be imported: Lookup"),
        (CODE, PROJECT.replace("serverapp", "other"), "the app has no serverapp, which makes its"),
        (CODE, PROJECT.replace(":server", ":client"), "is a ClientApp, expected a flwr ServerApp"),
        (
            CODE.replace("FedAvg(min_available_nodes=50)", "(1 / 0)"),
            PROJECT,
            r"its ServerApp sent no message to train: ZeroDivisionError: division by zero \(broken",
        ),
        (NO_ARRAYS, PROJECT, "its first model has no arrays"),
    ],
)
def test_an_app_whose_server_cannot_begin(
    tmp_path: Path, code: str, project: str, said: str
) -> None:
    small_app(tmp_path, "broken", project, code)
    forget("broken")
    with pytest.raises(UserError, match=said) as caught:
        learning(small(tmp_path, "broken"), tmp_path)
    assert "\n" not in str(caught.value)
    forget("broken")


def test_the_version_of_flwr(monkeypatch: pytest.MonkeyPatch) -> None:
    flower_app.check_version()
    monkeypatch.setattr(flower_app, "version", lambda name: "1.420.0")
    with pytest.raises(
        UserError, match=r"needs flwr 1.42, found 1.420.0: .*install -e .*\[flower\]'"
    ):
        flower_app.check_version()


def test_two_apps_with_modules_of_one_name(tmp_path: Path) -> None:
    learning(small(tmp_path / "a", "same_name"), tmp_path / "a")
    with pytest.raises(UserError, match="a module of that name is at .*; rename its package"):
        learning(small(tmp_path / "b", "same_name"), tmp_path / "b")


def test_the_first_round_ends_a_server_that_would_go_on(tmp_path: Path) -> None:
    """Its strategy waits for 50 nodes and plans 1000 rounds."""
    app = app_folder(f"flower:{small_app(tmp_path, 'patient')}", (tmp_path,))
    first = first_round(FlowerApp(app, app.config, 2))
    assert first.train["config"]["server-round"] == 1
    assert first.evaluate is not None and first.over


def test_an_update_has_a_loss_only_if_the_app_returns_one(tmp_path: Path) -> None:
    for app, name in (("flower_torch", "a"), ("flower_numpy", "b")):
        run_virtual(learning(flower_config(tmp_path, app), tmp_path), 0, tmp_path / name)
    with_loss, without = (
        [line["numbers"] for line in events(tmp_path / name) if "numbers" in line]
        for name in ("a", "b")
    )
    assert len(with_loss) == len(without) == 12
    assert all(0 < each["loss"] < 3 for each in with_loss) and with_loss[0]["samples"] < 500
    assert not any("loss" in each for each in without) and without[0]["samples"] < 500


def test_a_selection_by_loss_refuses_updates_without_one(tmp_path: Path) -> None:
    experiment = small(tmp_path, "no_loss", 'strategies.0.selection="oort"')
    summary = run_virtual(learning(experiment, tmp_path), 0, tmp_path / "run")
    told = [line for line in warnings(summary) if "no loss, which Oort needs" in line]
    assert summary["versions"] == 0 and told, warnings(summary)


def test_the_state_of_a_client_stays_on_its_edge(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The PyTorch app counts its tasks in ``context.state``, and reports them as a metric."""
    run_virtual(learning(flower_config(tmp_path, "flower_numpy"), tmp_path), 0, tmp_path / "none")
    assert "context.state" not in capfd.readouterr().err
    experiment = flower_config(tmp_path, "flower_torch", "stop.versions=3")
    learned = learning(experiment, tmp_path)
    run_virtual(learned, 0, tmp_path / "run")
    told = [line for line in capfd.readouterr().err.splitlines() if "context.state" in line]
    assert len(told) == 1 and "evaluations run beside the coordinator" in told[0]
    assert isinstance(learned, FlowerLearning)
    weights, state = learned.initial_weights(), None
    for count in (1, 2, 3):
        done = learned.tasks.train(0, weights, count, state)
        assert done.metrics["my-rounds"] == count
        vector = packed(done.state)
        assert vector.dtype == np.float32 and vector.max() < 1 << 16
        state = unpacked(vector)
    other = learned.tasks.train(1, weights, 1, None)
    assert other.metrics["my-rounds"] == 1


def test_which_metrics_are_the_scores() -> None:
    both = [{"eval_loss": 1.0, "eval_acc": 0.5, "num-examples": 1.0}]
    assert score(both, None, "loss") == "eval_loss" and score(both, "eval_acc", "acc") == "eval_acc"
    with pytest.raises(UserError, match=r"flower.accuracy: the app returns no 'eval_ac' .nearest"):
        score(both, "eval_ac", "acc")
    with pytest.raises(UserError, match="flower.accuracy: expected the name of one.*'f1'"):
        score([{"f1": 1.0}], None, "acc")
    with pytest.raises(UserError, match="'a_loss', 'b_loss'"):
        score([{"a_loss": 1.0, "b_loss": 2.0}], None, "loss")


def test_the_generators_of_the_process_are_seeded_and_restored() -> None:
    import random

    import torch

    def drawn() -> tuple[float, float, float]:
        return random.random(), float(np.random.rand()), torch.rand(1).item()

    before = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()
    found = []
    for key in (1, 1, 2):
        with seeded(Streams(3), "test", key):
            found.append(drawn())
    assert found[0] == found[1] != found[2]
    after = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()
    assert before == after
