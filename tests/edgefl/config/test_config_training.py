"""[training], speeds in tokens, and warnings about strategies: bad input, and what a plan gets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from builders import S, experiment

from edgefl.clocks.setup.network import devices, in_tokens, longest_text, training_plan
from edgefl.config import file as config_file
from edgefl.config.experiment import LearningRateDecay, parts
from edgefl.config.file import strategy_warnings
from edgefl.data.dataset import Dataset
from edgefl.edges.training import Schedule, TrainingPlan
from edgefl.errors import UserError
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
        (
            'strategies = [{strategy = "fedssmu"}]\n[training]\nmomentum = 0.9',
            "training.momentum: fedssmu computes gradients from an edge's change of weights, which"
            " needs plain SGD: expected 0, found 0.9",
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
        (
            FEDAVG + "[devices]\ntask_jitter = -0.1",
            "devices.task_jitter: expected greater than or equal to 0, found -0.1",
        ),
        (
            FEDAVG + "[devices]\ntask_jitter = 1.5",
            "devices.task_jitter: expected less than or equal to 1, found 1.5",
        ),
        (
            FEDAVG + "[devices]\ntask_jitter = 0.1\nkind = 'native'",
            'devices: task_jitter: expected 0 with kind = "native"',
        ),
    ],
)
def test_bad_input_is_one_line(tmp_path: Path, text: str, line: str) -> None:
    path = tmp_path / "x.toml"
    path.write_text(HEAD + text)
    with pytest.raises(UserError) as error:
        config_file.load(path)
    assert line in str(error.value) and "\n" not in str(error.value)


DECAYS = [
    (
        "name = 'exponental', factor = 0.9",
        "training.decay.name: expected 'exponential', 'inverse_sqrt', 'steps' or 'linear', found"
        " 'exponental' (nearest: 'exponential')",
    ),
    ("name = 'exponential'", 'factor: missing; name = "exponential" needs it'),
    ("name = 'exponential', factor = 0", "decay.factor: expected greater than 0, found 0"),
    ("name = 'exponential', factor = 1.1", "decay.factor: expected less than or equal to 1"),
    (
        "name = 'inverse_sqrt', factor = 0.9",
        'factor: expected name = "exponential" or "steps", found "inverse_sqrt"',
    ),
    (
        "name = 'inverse_sqrt', every_versions = 2, every_s = 3.0",
        "expected every_versions or every_s, found both",
    ),
    (
        "name = 'steps', factor = 0.1, every_versions = 2",
        'every_versions: expected name = "exponential" or "inverse_sqrt", found "steps"',
    ),
    (
        "name = 'steps', factor = 0.1",
        'at_versions: missing; name = "steps" needs it, or at_s',
    ),
    (
        "name = 'steps', factor = 0.1, at_versions = [5, 5]",
        "at_versions: expected larger and larger numbers, found [5, 5]",
    ),
    ("name = 'linear'", 'over_versions: missing; name = "linear" needs it, or over_s'),
    ("name = 'linear', over_version = 5", "unknown key (nearest: 'over_versions')"),
    (
        "name = 'linear', over_versions = 5",
        "training.decay: the learning rate of fedavg falls to 0 at version 5, before stop.versions"
        " = 9: expected a slower decay, or a floor above 0",
    ),
    (
        "name = 'exponential', factor = 1e-9",  # .05 x 1e-9^5 is above 2^-126, ^4 is below
        "the learning rate of fedavg falls to 0 at version 5, before",
    ),
    (
        "name = 'exponential', factor = 1e-20, every_s = 2.0",
        "the learning rate of fedavg falls to 0 at 4 s, before stop.emulated_s = 30",
    ),
]


@pytest.mark.parametrize(("text", "line"), DECAYS)
def test_a_wrong_decay_is_one_line(tmp_path: Path, text: str, line: str) -> None:
    path = tmp_path / "x.toml"
    stop = "edges = {count = 4}\nstop = {versions = 9, emulated_s = 30.0}\n"
    path.write_text(f"{stop}{FEDAVG}training = {{decay = {{{text}}}}}")
    with pytest.raises(UserError) as error:
        config_file.load(path)
    assert line in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("keys", "factors"),
    [
        ({"name": "exponential", "factor": 0.5}, [1, 0.5, 0.25, 0.125, 2**-10]),
        (
            {"name": "exponential", "factor": 0.5, "every_versions": 2, "floor": 0.2},
            [1, 1, 0.5, 0.5, 0.2],
        ),
        ({"name": "inverse_sqrt"}, [1, 2**-0.5, 3**-0.5, 0.5, 11**-0.5]),
        ({"name": "steps", "factor": 0.1, "at_versions": [2, 10]}, [1, 1, 0.1, 0.1, 0.01]),
        ({"name": "linear", "over_versions": 4}, [1, 0.75, 0.5, 0.25, 0]),
        ({"name": "linear", "over_versions": 4, "floor": 0.2}, [1, 0.8, 0.6, 0.4, 0.2]),
    ],
)
def test_the_factors_of_a_decay(keys: dict[str, Any], factors: list[float]) -> None:
    """At versions 0, 1, 2, 3 and 10; and the same at these seconds, with the keys in seconds."""
    by_version = LearningRateDecay.model_validate(keys)
    found = [by_version.at(version, 99 * S) for version in (0, 1, 2, 3, 10)]
    assert found == pytest.approx(factors) and by_version.counts_versions
    in_s = {key.replace("versions", "s"): value for key, value in keys.items()}
    if in_s.keys() == keys.keys():
        in_s |= {"every_s": 1.0}
    by_time = LearningRateDecay.model_validate(
        {key: _in_s(value) if key[-2:] == "_s" else value for key, value in in_s.items()}
    )
    found = [by_time.at(99, round(at_s * S)) for at_s in (0, 1, 2, 3, 10)]
    assert found == pytest.approx(factors) and not by_time.counts_versions
    if keys["name"] != "linear":
        assert by_time.at(0, 3 * S // 2) == by_time.at(0, S), "in whole periods"


def _in_s(value: Any) -> Any:
    return [float(each) for each in value] if isinstance(value, list) else float(value)


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


EDGES = 6


def options_of(name: str) -> set[str]:
    return set(catalog.load(name, None).Options.model_fields)


AT_WORK = [
    (name, key)
    for name in catalog.strategy_names()
    for key in ("clients_per_round", "concurrency", "clients_per_trigger")
    if key in options_of(name)
]


def said(name: str, **options: Any) -> list[str]:
    given = experiment(edges={"count": EDGES}, strategies=[{"strategy": name, **options}])
    return [line for line in strategy_warnings(given, None) if "than the number of edges" in line]


@pytest.mark.parametrize(("name", "key"), AT_WORK)
def test_more_than_there_are_edges_is_told(name: str, key: str) -> None:
    assert said(name, **{key: EDGES + 1}) == [
        f"{name}: {key} = 7 is more than the number of edges: all 6 work at the same time"
    ]
    assert said(name, **{key: EDGES}) == []
    if key == "concurrency":
        assert said(name, concurrency="all") == []


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
