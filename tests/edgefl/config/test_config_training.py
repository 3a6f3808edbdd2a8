"""[training], speeds in tokens, and warnings about strategies: bad input, and what a plan gets."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from builders import experiment, small_run

from edgefl.clocks.setup.devices import devices, in_tokens, longest_text, training_plan
from edgefl.config.groups import parts
from edgefl.data.dataset import Dataset
from edgefl.edges.training import Schedule, TrainingPlan
from edgefl.errors import UserError
from edgefl.loading import file as config_file
from edgefl.loading.names import strategy_warnings
from edgefl.strategies.base import catalog
from emulator.compute import Rate

HEAD = "edges = {count = 4}\nstop = {versions = 1}\n"
FEDAVG = 'strategies = [{strategy = "fedavg"}]\n'


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (
            FEDAVG + "[training]\noptimizer = 'adamw'\nmomentum = 0.9",
            'training: momentum: expected only with optimizer = "sgd"',
        ),
        (
            FEDAVG + "[training]\nbeta2 = 0.9",
            'training: beta2: expected only with optimizer = "adamw"',
        ),
        (
            FEDAVG + "[training.schedule]\nwarmup_steps = 5\ntotal_steps = 5",
            "training.schedule: total_steps: expected more than warmup_steps (5), found 5",
        ),
        (
            FEDAVG + "[training]\noptimizer_state = 'kept'\nschedule = {}",
            "training: schedule.total_steps: missing; optimizer_state",
        ),
        (
            'strategies = [{strategy = "fedasmu"}]\n[training]\noptimizer = "adamw"',
            "training.optimizer: fedasmu computes gradients from an edge's change of weights, which"
            ' needs plain SGD: expected "sgd", found "adamw"',
        ),
        (FEDAVG + "[devices]\nunit = 'tokens'", "devices: tokens_per_s: missing"),
        (
            FEDAVG + "[devices]\ntokens_per_s = 9",
            'devices: tokens_per_s: expected only with unit = "tokens"',
        ),
        (
            FEDAVG + "[devices]\nunit = 'tokens'\ntokens_per_s = 9\nspread = 'classes'",
            'devices: unit: expected "samples" with spread = "classes"',
        ),
        (
            'strategies = [{strategy = "tdma-fl"}]\n'
            "[devices]\nunit = 'tokens'\ntokens_per_s = 9\n"
            "[medium]\nkind = 'tdma'\nslot_ms = 100\nrate_mbit_s = 8\n",
            'devices.unit: tdma-fl plans slots by samples: expected "samples", found "tokens"',
        ),
    ],
)
def test_bad_input_is_one_line(tmp_path: Path, text: str, line: str) -> None:
    path = tmp_path / "x.toml"
    path.write_text(HEAD + text)
    with pytest.raises(UserError) as error:
        config_file.load(path)
    assert line in str(error.value) and "\n" not in str(error.value)


def test_the_plan_has_the_values_of_the_config() -> None:
    assert training_plan(experiment()) == TrainingPlan(1, 32, 0.05)
    given = {
        "optimizer": "adamw",
        "beta1": 0.8,
        "optimizer_state": "kept",
        "micro_batch_size": 2,
        "schedule": {"kind": "cosine", "warmup_steps": 3, "total_steps": 9},
    }
    assert training_plan(experiment(training=given)) == TrainingPlan(
        1,
        32,
        0.05,
        optimizer="adamw",
        beta1=0.8,
        keeps_state=True,
        micro_batch_size=2,
        schedule=Schedule("cosine", 3, 9),
    )


def test_a_group_may_count_in_another_unit() -> None:
    found = experiment(
        groups=[
            {"name": "x", "count": 1},
            {"name": "y", "count": 2, "devices": {"unit": "tokens", "tokens_per_s": 50.0}},
        ],
        data={"name": "imdb", "length": 64},
    )
    assert [part.devices.unit for part in parts(found)] == ["samples", "tokens"]
    assert in_tokens(found) == {"b", "c"} and devices(found)["b"] == Rate(50.0)
    assert devices(found)["a"] == Rate(1000.0) and longest_text(found, None) == 64


def test_tokens_of_padded_texts_and_of_texts_with_parts() -> None:
    labels = np.zeros(2, np.int64)
    packed = np.array([[[5, 6, 7, 0], [1, 1, 2, 0]], [[5, 0, 0, 0], [1, 0, 0, 0]]], np.int32)
    fixed = np.array([[5, 6, 0], [5, 0, 0]], np.int32)
    assert Dataset(packed, labels, packed, labels, 2, vocabulary=9).token_counts().tolist() == [
        3,
        1,
    ]
    assert Dataset(fixed, labels, fixed, labels, 2, vocabulary=9).token_counts().tolist() == [3, 3]


def test_kept_state_changes_a_run_and_the_same_seed_gives_the_same_bytes(tmp_path: Path) -> None:
    models = {}
    for name in ("kept", "fresh", "again"):
        training = {
            "optimizer": "adamw",
            "learning_rate": 0.01,
            "optimizer_state": "fresh" if name == "fresh" else "kept",
        }
        _, directory = small_run(
            tmp_path / name,
            training=training,
            stop={"versions": 6},
            strategies=[{"strategy": "fedbuff", "concurrency": 2, "buffer_size": 2}],
        )
        models[name] = (directory / "model.safetensors").read_bytes()
    assert models["kept"] == models["again"] != models["fresh"]


EDGES = 6


def options_of(name: str) -> set[str]:
    return set(catalog.load(name, None).Options.model_fields)


AT_WORK = [
    (name, key)
    for name in catalog.strategy_names()
    for key in ("clients_per_round", "concurrency", "clients_per_trigger")
    if key in options_of(name)
]


def said(name: str, **options: int) -> list[str]:
    given = experiment(edges={"count": EDGES}, strategies=[{"strategy": name, **options}])
    return [line for line in strategy_warnings(given, None) if "than the number of edges" in line]


@pytest.mark.parametrize(("name", "key"), AT_WORK)
def test_more_than_there_are_edges_is_told(name: str, key: str) -> None:
    assert said(name, **{key: EDGES + 1}) == [
        f"{name}: {key} = 7 is more than the number of edges: all 6 work at the same time"
    ]
    assert said(name, **{key: EDGES}) == []


RULE = """
from edgefl.api import LocalRule, load_strategy

class Own(LocalRule):
    def {method}(self, *given):
        return None

class Mine(load_strategy("fedasync")):
    rule = Own
"""


@pytest.mark.parametrize(
    ("method", "told"),
    [
        ("checkpoint", ["x: Own asks for fresher models (checkpoint), but has no merge"]),
        ("merge", ["x: Own has a merge, but never asks for a fresher model (checkpoint)"]),
        ("begin", []),
    ],
)
def test_a_rule_that_asks_and_cannot_merge(tmp_path: Path, method: str, told: list[str]) -> None:
    (tmp_path / "own.py").write_text(RULE.format(method=method))
    entry = {"strategy": "own.py:Mine", "label": "x", "concurrency": 1}
    assert strategy_warnings(experiment(strategies=[entry]), tmp_path) == told
