"""Flower apps for tests: the two of examples/, and small ones with a fault."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest
from builders import EXAMPLES

from edgefl.config.experiment import Experiment
from edgefl.config.file import load

NO_FLOWER = "flwr is not installed here; scripts/setup_flower.sh makes .venv-flower"
APPS = ("flower_torch", "flower_numpy")

PROJECT = """
[tool.flwr.app]
publisher = "example"
[tool.flwr.app.components]
serverapp = "{module}:server"
clientapp = "{module}:client"
[tool.flwr.app.config]
mode = "good"
nested = {{ key = 1 }}
"""
CODE = """
import numpy as np
from flwr.app import ArrayRecord, Array, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg

client, server = ClientApp(), ServerApp()


@server.main()
def main(grid, context):
    first = ArrayRecord({"w": Array(np.arange(3, dtype=np.float64)), "n": Array(np.array(2))})
    FedAvg(min_available_nodes=50).start(grid, first, num_rounds=1000)


@client.train()
def train(message, context):
    mode, number = context.run_config["mode"], message.content["config"]["server-round"]
    arrays = {name: array.numpy() for name, array in message.content["arrays"].items()}
    assert arrays["w"].dtype == np.float64 and arrays["n"].dtype == np.int64, arrays
    metrics = {"num-examples": 1 + context.node_config["partition-id"], "round": number}
    if mode == "raises" and number > 1:
        raise ValueError("no such sample")
    if mode == "nothing":
        return None
    if mode == "uncounted":
        metrics = {"num-example": 1}
    if mode == "shape":
        arrays["w"] = arrays["w"][:2]
    if mode == "fewer":
        del arrays["n"]
    arrays["w"] = arrays["w"] + 1 + context.node_config["partition-id"]
    made = ArrayRecord({name: Array(array) for name, array in arrays.items()})
    return Message(RecordDict({"arrays": made, "metrics": MetricRecord(metrics)}), reply_to=message)


@client.evaluate()
def evaluate(message, context):
    partition = context.node_config["partition-id"]
    weights = message.content["arrays"]["w"].numpy()
    metrics = {"num-examples": 1 + partition, "a_loss": weights.sum(), "my_acc": partition / 10}
    return Message(RecordDict({"metrics": MetricRecord(metrics)}), reply_to=message)
"""


def small_app(folder: Path, module: str, project: str = PROJECT, code: str = CODE) -> Path:
    """Write an app whose modules have a name of their own: a process imports each name once."""
    place = folder / module
    place.mkdir(parents=True)
    (place / "pyproject.toml").write_text(project.format(module=module))
    (place / f"{module}.py").write_text(code)
    return place


def flower_config(folder: Path, app: str, *overrides: str) -> Experiment:
    """Load a config in ``folder`` with an app of examples/, or with one that is there."""
    place = str(EXAMPLES / app) if app in APPS else app
    config = folder / "flower.toml"
    if not config.exists():
        config.write_text((EXAMPLES / "flower.toml").read_text())
    return load(config, [f'task="flower:{place}"', *overrides])


NEEDS_FLOWER = pytest.mark.skipif(find_spec("flwr") is None, reason=NO_FLOWER)
