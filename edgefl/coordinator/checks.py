"""Checks of updates and job results, and of messages to edges."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from typing import Any, SupportsFloat

import numpy as np

from edgefl.compression.packing import ModelMessage
from edgefl.coordinator.tasks import OpenTask
from edgefl.protocol.messages import Update
from edgefl.protocol.transfers import beyond_limits, most_body
from edgefl.strategies.base.events_and_decisions import Assign, Push
from edgefl.strategies.base.strategy import Strategy
from edgefl.vectors import distance, is_finite

MOST_NAMES, MOST_NAMES_OF_EDGE = 1000, 100  # of numbers, in a run; that an edge may be first with
TOO_LARGE = "norm above updates.norm_bound"


class Claims:
    """Limits for the numbers that edges report and that set their weight in a mean.

    ``shares``: samples by edge, where the coordinator knows the split. ``batch_size``: samples of
    a gradient of one batch.
    """

    def __init__(self, shares: Mapping[str, int], batch_size: int) -> None:
        self.shares, self.batch_size = shares, batch_size
        self.samples: dict[str, int] = {}  # accepted samples, by edge
        self.names: set[str] = set()  # of reported numbers
        self.first_with: Counter[str] = Counter()  # by edge: names that it was the first to report

    def joined(self, edge: str, samples: int) -> int:
        """Store how many of the joining edge's ``samples`` are accepted, and return that number."""
        self.samples[edge] = believed = min(samples, self.shares.get(edge, samples))
        return believed

    def names_fault(self, edge: str, numbers: Mapping[str, float]) -> str | None:
        """Why these numbers cannot be recorded, or None; note their names.

        Each name is a column of a table. A strategy has some dozen names, for all edges the same.
        """
        fresh = numbers.keys() - self.names
        if not fresh:
            return None
        if (
            self.first_with[edge] + len(fresh) > MOST_NAMES_OF_EDGE
            or len(self.names) + len(fresh) > MOST_NAMES
        ):
            return "too many names of numbers"
        self.first_with[edge] += len(fresh)
        self.names |= fresh
        return None

    def capped(self, edge: str, numbers: Mapping[str, float]) -> dict[str, float]:
        """Return those of ``numbers`` that are too large, with their largest accepted values.

        ``update_fault`` handles numbers that are not finite.
        """
        capped = {}
        if self.samples[edge] < numbers.get("samples", 0) < math.inf:
            capped["samples"] = float(self.samples[edge])
        if self.batch_size < numbers.get("batch", 0) < math.inf:
            capped["batch"] = float(self.batch_size)
        return capped


def update_fault(
    task: OpenTask, update: Update, strategy: Strategy, norm_bound: float | None = None
) -> tuple[str | None, dict[str, Any]]:
    """Why this update of ``task`` cannot be used, or None; and details for the record."""
    if update.version != task.version:
        return "wrong base version", {}
    sizes = {name: vector.size for name, vector in update.vectors.items()}
    expected = {
        name: strategy.update_size(task.edge, name) for name in {**sizes, strategy.delivers: 0}
    }
    if sizes != expected:
        return "wrong length", {"found": sizes, "expected": expected}
    if not _finite(update.vectors, update.numbers):
        return "not finite", {}
    if not update.numbers.get("samples", 0) >= 1:
        return "no samples", {}  # a mean fails if the weights are 0 or too small for a float
    return (None, {}) if norm_bound is None else _norm_fault(task, update, norm_bound)


def _norm_fault(
    task: OpenTask, update: Update, norm_bound: float
) -> tuple[str | None, dict[str, Any]]:
    """Check the norm of each vector of an update.

    For a model this is the distance to the model that the edge was given; for other vectors it is
    their own norm.
    """
    for name, vector in update.vectors.items():
        origin = task.base if name == "weights" and task.base.size == vector.size else None
        norm = distance(vector, origin)
        if norm > norm_bound:
            return TOO_LARGE, {"vector": name, "norm": norm, "norm_bound": norm_bound}
    return None, {}


def result_fault(vectors: Mapping[str, np.ndarray], numbers: Mapping[str, float]) -> str | None:
    """Why this result of a job cannot be used, or None.

    TypeError unless its arrays are flat float32: this is a bug of the job's author.
    """
    wrong = [
        name
        for name, array in vectors.items()
        if not isinstance(array, np.ndarray) or array.dtype != np.float32 or array.ndim != 1
    ]
    if wrong:
        raise TypeError(
            f"a job's result {wrong[0]!r} is {_described(vectors[wrong[0]])}, expected a flat"
            " float32 vector"
        )
    return None if _finite(vectors, numbers) else "not finite"


def check_published(weights: Any, model: np.ndarray) -> None:
    """Raise TypeError or ValueError unless ``weights`` has the shape and type of the model."""
    expected = f"expected float32 {model.shape}"
    if not isinstance(weights, np.ndarray):
        raise TypeError(f"published {_described(weights)}, {expected}, a numpy array")
    if weights.shape != model.shape or weights.dtype != np.float32:
        raise ValueError(f"published {_described(weights)}, {expected}")


def model_of(sent: Assign | Push) -> np.ndarray:
    """The model that the edges get. ValueError if the decision has none."""
    if "weights" not in sent.vectors:
        names = ", ".join(map(repr, sent.vectors)) or "nothing"
        sort = "an Assign" if isinstance(sent, Assign) else "a Push"
        raise ValueError(f"{sort} brings {names}, expected 'weights'")
    return sent.vectors["weights"]


def check_push(push: Push, edge: str, base: np.ndarray) -> None:
    """Raise ValueError or TypeError unless this edge, whose task began at ``base``, can take it."""
    model = model_of(push)
    if not isinstance(model, np.ndarray) or model.shape != base.shape or model.dtype != np.float32:
        raise ValueError(
            f"cannot push to {edge!r}: {_described(model)}, expected float32 {base.shape}, as its"
            " task has it"
        )
    for name, number in push.numbers.items():
        if not math.isfinite(number):
            raise ValueError(f"cannot push to {edge!r}: its number {name!r} is {number}")


def sendable(message: ModelMessage, model: np.ndarray) -> ModelMessage:
    """Return the message if edges accept it; they would answer a bad one with a new session.

    ValueError if it exceeds the limits of messages. TypeError for a value that is not an array or
    not a number.
    """
    for name, vector in message.vectors.items():
        if not isinstance(vector, np.ndarray):
            raise TypeError(
                f"a message to an edge holds {name!r}: {_described(vector)}, expected a float32"
                f" numpy array, such as one of {model.size} elements"
            )
    for name, number in message.numbers.items():
        if not isinstance(number, SupportsFloat):
            raise TypeError(f"a message to an edge holds {name!r}: {number!r}, expected a number")
    beyond = beyond_limits(message, most_body(model.nbytes))
    if beyond is not None:
        raise ValueError(f"a message to an edge holds {beyond}")
    return message


def _finite(vectors: Mapping[str, np.ndarray], numbers: Mapping[str, float]) -> bool:
    return all(is_finite(vector) for vector in vectors.values()) and all(
        map(math.isfinite, numbers.values())
    )


def _described(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"{value.dtype} {value.shape}"
    return "None" if value is None else f"a {type(value).__name__}"
