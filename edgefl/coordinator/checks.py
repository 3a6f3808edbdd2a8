"""Checks of what comes in (updates of edges, results of jobs) and of what goes out."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, TypeVar

import numpy as np

from edgefl.coordinator.tasks import OpenTask
from edgefl.protocol.messages import Assignment, Fresh, Update
from edgefl.protocol.transfers import beyond_limits, most_body
from edgefl.strategies.base.strategy import Strategy
from edgefl.vectors import is_finite

ModelMessage = TypeVar("ModelMessage", Assignment, Fresh)


def update_fault(
    task: OpenTask, update: Update, strategy: Strategy
) -> tuple[str | None, dict[str, Any]]:
    """Why this update of ``task`` cannot be used, or None; and what helps to find the mistake."""
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
    # a mean by samples would fail
    return (None if update.numbers.get("samples", 0) > 0 else "no samples"), {}


def result_fault(vectors: Mapping[str, np.ndarray], numbers: Mapping[str, float]) -> str | None:
    """Why this result of a job cannot be used, or None. TypeError unless its arrays are flat
    float32: that is its author's bug.
    """
    wrong = [
        name for name, array in vectors.items() if array.dtype != np.float32 or array.ndim != 1
    ]
    if wrong:
        raise TypeError(
            f"a job's result {wrong[0]!r} is {vectors[wrong[0]].dtype} {vectors[wrong[0]].shape},"
            " expected a flat float32 vector"
        )
    return None if _finite(vectors, numbers) else "not finite"


def sendable(message: ModelMessage, model: np.ndarray) -> ModelMessage:
    """The message. ValueError if edges would refuse it: they would begin a new session over it
    again and again.
    """
    beyond = beyond_limits(message, most_body(model.nbytes))
    if beyond is not None:
        raise ValueError(f"a message to an edge holds {beyond}")
    return message


def _finite(vectors: Mapping[str, np.ndarray], numbers: Mapping[str, float]) -> bool:
    return all(is_finite(vector) for vector in vectors.values()) and all(
        map(math.isfinite, numbers.values())
    )
