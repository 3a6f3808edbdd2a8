"""Helpers of the tests of FedASMU and FedSSMU: a quadratic loss, local runs, deliveries."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from builders import Server, vector

from edgefl.strategies.base.events_and_decisions import Report, UpdateArrived
from edgefl.strategies.dissemination.device import Refresh
from edgefl.strategies.fedasmu import FedASMUOptions

CURVES = torch.tensor([1.0, 2.0, 4.0])  # F(w) = 1/2 sum c_j w_j^2: gradient c_j w_j
PATH = 0.01 * 8  # learning rate x steps of a delivery


def loss(weights: torch.Tensor) -> torch.Tensor:
    return (CURVES.to(weights.dtype) * weights**2).sum() / 2


def probe(weights: torch.Tensor) -> tuple[float, torch.Tensor]:
    return float(loss(weights)), CURVES * weights


def rule(kind: Callable[[Any], Refresh] = Refresh, **options: Any) -> Refresh:
    return kind(FedASMUOptions.model_validate(options))


def local_run(
    *weights: float,
    task: int = 1,
    version: int = 0,
    epochs: int = 5,
    memory: dict[str, Any] | None = None,
    **numbers: float,
) -> SimpleNamespace:
    """Return a local run of ``epochs`` epochs of three steps, at step 6 with ``weights``.

    ``numbers`` are those of its task.
    """
    return SimpleNamespace(
        task=SimpleNamespace(number=task, version=version, numbers=numbers),
        weights=torch.tensor(weights),
        memory={} if memory is None else memory,
        steps=3 * epochs,
        steps_per_epoch=3,
        step=6,
        parameters=len(weights),
        learning_rate=0.1,
        checkpoint=6,
        probe=probe,
    )


def deliver(server: Server, edge: str, weights: Any, **numbers: float) -> dict[str, float]:
    """Deliver after PATH; return the numbers reported, {} if the update is discarded."""
    task, version, base = server.open.pop(edge)
    said = {"samples": 1.0, "steps": 8.0, "learning_rate": 0.01} | numbers
    server.give(UpdateArrived(edge, task, version, base, {"weights": vector(*weights)}, said))
    reports = [decision for decision in server.decisions if isinstance(decision, Report)]
    assert all(report.edge == edge for report in reports)
    return reports[0].values if reports else {}


def descended(server: Server, edge: str) -> np.ndarray:
    """Return the edge's model after a step of PATH along the true gradient."""
    base = server.open[edge][2]
    return base - PATH * CURVES.numpy() * base
