"""Every strategy of the catalog trains a tiny text encoder, in whole and with adapters."""

from __future__ import annotations

import math
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from text_rig import text_experiment

from edgefl.clocks.setup.learning import Learning, learning, with_experiment
from edgefl.clocks.virtual.run import run_virtual
from edgefl.config.experiment import Experiment
from edgefl.strategies.base.catalog import load, strategy_names
from edgefl.strategies.syncdrop import hidden_layers

SMALL = {
    "clients_per_round": 2,
    "concurrency": 2,
    "clients_per_trigger": 2,
    "buffer_size": 2,
    "least_updates": 1,
    "slot_s": 1.0,
    "period_s": 1.0,
    "per_round": 2,
    "server_samples": 10,
}
TDMA = {"kind": "tdma", "slot_ms": 100.0, "guard_ms": 10.0, "rate_mbit_s": 1.0}


def sections(name: str) -> dict[str, Any]:
    found = load(name)
    options = {key: value for key, value in SMALL.items() if key in found.Options.model_fields}
    return {
        "strategies": [{"strategy": name, **options}],
        "stop": {"updates": 1, "emulated_s": 600.0},
        "unlabelled": {"data": "mrpc", "size": 10},
        "devices": {"samples_per_s": 100.0},
        **({"medium": TDMA} if found.schedules_slots else {}),
    }


@cache
def learned(train: str) -> Learning:
    """Data and model, which all runs share."""
    return learning(text_experiment({"train": train}, **sections("fedecho")), None)


def ran(made: Learning, experiment: Experiment, directory: Path) -> dict[str, Any]:
    return run_virtual(with_experiment(made, experiment), 0, directory)


KINDS = {"fedavg": "all", "wkafl": "all", "syncdrop": "lora", "fedecho": "lora"}  # in each suite


@pytest.mark.parametrize(
    ("name", "train"),
    [
        pytest.param(name, train, marks=[] if KINDS.get(name) == train else pytest.mark.rest)
        for name in strategy_names()
        for train in ("all", "lora")
    ],
)
@pytest.mark.slow
def test_a_strategy_updates_a_text_model(tmp_path: Path, name: str, train: str) -> None:
    made = learned(train)
    summary = ran(made, text_experiment({"train": train}, **sections(name)), tmp_path / "run")
    assert summary["finished"] == "updates"
    assert set(summary["updates_discarded"]) <= {"score below zero"}, "Zeno++ judges by the loss"
    assert math.isfinite(summary["final_accuracy"])


@pytest.mark.parametrize(
    ("train", "layers"),
    [
        ("all", [("intermediate.dense.weight", 64), ("intermediate.dense.weight", 64)]),
        ("lora", [(f"{part}.lora_A.default.weight", 8) for part in ("query", "value") * 2]),
    ],
)
@pytest.mark.slow
def test_a_submodel_of_a_transformer_keeps_its_attention(
    train: str, layers: list[tuple[str, int]]
) -> None:
    found = hidden_layers(learned(train).layout)
    assert [layer.units for layer in found] == [units for _, units in layers]
    assert all(layer.producer.name.endswith(end) for layer, (end, _) in zip(found, layers))
    assert all(layer.consumer.shape[1] == layer.units for layer in found)
