"""One app's messages to its clients: a model to train or to evaluate, and what comes back.

Both of Flower's interfaces: records (``arrays``, ``config``, ``metrics``), and ``NumPyClient``,
whose records have the prefixes of Flower's compatibility layer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from edgefl.errors import UserError, nearest
from edgefl.flower.app_arrays import AppArrays
from edgefl.flower.client_app import FlowerApp
from edgefl.flower.first_messages import FirstRound

ROUND = "server-round"  # the key of a config with the number of the round, as Flower's FedAvg has
EXAMPLES = ("num-examples", "num_examples")


@dataclass(frozen=True, slots=True)
class TrainedModel:
    """What a client returns for a model to train. ``state``: what it keeps."""

    weights: np.ndarray
    examples: int
    metrics: dict[str, float]
    state: Any


class AppTasks:
    """Makes an app's messages after those of its own server's first round."""

    def __init__(self, app: FlowerApp, first: FirstRound) -> None:
        """UserError if its server sends no model or several ones."""
        self.app, self.first = app, first
        self.arrays = AppArrays.of(_only(first.train, app))

    def initial(self) -> np.ndarray:
        """The first model."""
        return self.arrays.vector(_only(self.first.train, self.app))

    def train(self, partition: int, weights: np.ndarray, number: int, state: Any) -> TrainedModel:
        """Let a client train a model in round ``number`` (from 1)."""
        content = self._content(self.first.train, weights, number)
        reply = self.app.client("train", partition, content, state)
        metrics = _metrics(reply.content)
        records = list(reply.content.array_records.values())
        if len(records) != 1:
            raise UserError(f"returned {len(records)} records of arrays, expected 1")
        vector = self.arrays.vector(records[0])
        return TrainedModel(vector, _examples(metrics), metrics, reply.state)

    def evaluate(
        self, partition: int, weights: np.ndarray, number: int
    ) -> tuple[int, dict[str, float]]:
        """Let a client evaluate a model; return its number of examples and its metrics."""
        first = self.first.evaluate
        if first is None:  # the server's first round has no evaluation
            first = _as_evaluation(self.first.train)
        content = self._content(first, weights, number)
        metrics = _metrics(self.app.client("evaluate", partition, content).content)
        return _examples(metrics), metrics

    def _content(self, first: Any, weights: np.ndarray, number: int) -> Any:
        """The records of a first message, with another model and another round."""
        from flwr.app import ConfigRecord, RecordDict

        content = RecordDict()
        for name, record in first.array_records.items():
            content[name] = self.arrays.record(weights) if len(record) else record
        for name, record in first.config_records.items():
            config = dict(record)
            if ROUND in config or not name.startswith(("fitins", "evaluateins")):
                config[ROUND] = number
            content[name] = ConfigRecord(config)
        for name, record in first.metric_records.items():
            content[name] = record
        return content


def score(metrics: list[dict[str, float]], key: str | None, part: str) -> str:
    """Return the name of a score among ``metrics``: ``key``, or the only one with ``part``.

    UserError if there is none, or several.
    """
    names = sorted(set.intersection(*(set(each) for each in metrics)) - set(EXAMPLES))
    option = "flower.loss" if part == "loss" else "flower.accuracy"
    if key is not None:
        if key not in names:
            raise UserError(f"{option}: the app returns no {key!r}{nearest(key, names)}")
        return key
    fitting = [name for name in names if part in name.lower()]
    if len(fitting) != 1:
        found = ", ".join(map(repr, fitting or names)) or "no metrics"
        raise UserError(
            f"{option}: expected the name of one of the metrics that the app's evaluation returns:"
            f" {found}"
        )
    return fitting[0]


def _only(content: Any, app: FlowerApp) -> Any:
    records = list(content.array_records.values())
    if len(records) != 1:
        raise UserError(
            f"{app.folder.path}: its ServerApp sends {len(records)} records of arrays, expected 1:"
            " the model"
        )
    return records[0]


def _as_evaluation(content: Any) -> Any:
    """The records of a message to train as one to evaluate, without the config of training."""
    from flwr.app import ConfigRecord, RecordDict

    made = RecordDict()
    for name, record in content.array_records.items():
        made[name.replace("fitins", "evaluateins")] = record
    for name in content.config_records:
        made[name.replace("fitins", "evaluateins")] = ConfigRecord()
    return made


def _metrics(content: Any) -> dict[str, float]:
    """All numbers of a reply by name. NumPyClient's are in a record of any values."""
    found: dict[str, float] = {}
    for name, record in (*content.metric_records.items(), *content.config_records.items()):
        if not name.endswith(".status"):
            found |= {k: float(v) for k, v in record.items() if isinstance(v, int | float)}
    return found


def _examples(metrics: dict[str, float]) -> int:
    found = next((metrics[name] for name in EXAMPLES if name in metrics), None)
    if found is None:
        raise UserError(f"returned no metric {EXAMPLES[0]!r}{nearest(EXAMPLES[0], metrics)}")
    if not found >= 1:
        raise UserError(f"returned {EXAMPLES[0]} = {found:g}, expected at least 1")
    return int(found)
