"""Measures of runs over TDMA: rounds, staleness, how rough the loss is, and its largest curvature.

A measure takes the directory of a finished run and returns a number, or None if the run has none.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from safetensors.numpy import load_file

from edgefl.hosts.setup.learning import learning
from edgefl.loading.file import base_of, load
from edgefl.models.workspace import Workspace, wrap
from edgefl.reports import slots as slots
from edgefl.results.summary import number
from edgefl.results.tail import read_csv, read_events

POWER_STEPS, PATIENCE = 30, 1e-3  # most steps of the power iteration; relative change that ends it
CURVED_SAMPLES = 1000  # of all devices' data, for the curvature
BATCH = 250


def models(run: Path) -> float:
    """Return the number of global models by the run's last slot, w_0 included (table I)."""
    ends = [done[slots.OF_ROUND] for done in slots.rounds(read_events(run / "events.jsonl"))]
    last = round(_end_s(run) / slots.slot_s(run))
    return 1.0 + sum(end <= last for end in ends)


def staleness(run: Path) -> float | None:
    """Return the largest staleness of the last round's updates, in rounds."""
    found = slots.rounds(read_events(run / "events.jsonl"))
    return number(found[-1].get("staleness_most")) if found else None


def roughness(run: Path) -> float | None:
    """Return the mean |change| of the train loss between evaluations, in the run's second half.

    None if a loss is not finite.
    """
    losses = [number(row["train_loss"]) for row in read_csv(run / "metrics.csv")]
    late = losses[len(losses) // 2 :]
    there = [loss for loss in late if loss is not None]
    if len(there) < max(len(late), 2):
        return None
    return float(np.abs(np.diff(there)).mean())


def mean_loss(run: Path) -> float | None:
    """Return the mean train loss over all evaluations: how fast it falls. None as above."""
    losses = [number(row["train_loss"]) for row in read_csv(run / "metrics.csv")]
    there = [loss for loss in losses if loss is not None]
    return sum(there) / len(there) if there and len(there) == len(losses) else None


def curvature(run: Path) -> float | None:
    """Return the largest eigenvalue of the Hessian of the global loss, at the run's last model.

    None if the model is not finite.
    """
    config = run / "config.toml"
    learned = learning(load(config), base_of(config))
    weights = load_file(run / "model.safetensors")["weights"]
    if not np.isfinite(weights).all():
        return None
    inputs, targets = learned.union()
    # evenly spread: the union is in the order of the data set, whose labels are mixed
    picked = torch.linspace(0, len(inputs) - 1, min(CURVED_SAMPLES, len(inputs))).long()
    return largest_eigenvalue(
        hessian_product(
            learned.workspace, weights, inputs[picked], targets[picked], learned.task.loss
        ),
        learned.workspace.layout.parameters,
    )


def hessian_product(
    workspace: Workspace,
    weights: np.ndarray,
    inputs: torch.Tensor,
    targets: torch.Tensor,
    loss: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
) -> Callable[[torch.Tensor], torch.Tensor]:
    """Return v -> H v for the Hessian H of the mean loss at ``weights``; v has shape (parameters,).

    The module is in evaluation mode, and the workspace does not change.
    """

    def product(vector: torch.Tensor) -> torch.Tensor:
        total = torch.zeros_like(vector)
        with workspace.frozen(wrap(weights)) as model:
            tensors = [each for each in model.parameters() if each.requires_grad]
            for start in range(0, len(inputs), BATCH):
                part = slice(start, start + BATCH)
                share = len(targets[part]) / len(targets)
                value = share * loss(model(inputs[part]), targets[part])
                gradients = torch.autograd.grad(value, tensors, create_graph=True)
                along = torch.cat([each.flatten() for each in gradients]) @ vector
                found = torch.autograd.grad(along, tensors)
                total += torch.cat([each.flatten() for each in found])
        return total

    return product


def largest_eigenvalue(product: Callable[[torch.Tensor], torch.Tensor], size: int) -> float | None:
    """Return the eigenvalue of largest magnitude, by power iteration from a fixed vector.

    None if a product is not finite.
    """
    vector = torch.randn(size, generator=torch.Generator().manual_seed(0))
    vector /= vector.norm()
    value = math.inf
    for _ in range(POWER_STEPS):
        turned = product(vector)
        found, length = float(vector @ turned), float(turned.norm())
        if not math.isfinite(length):
            return None
        if length == 0.0 or abs(found - value) <= PATIENCE * abs(found):
            return found
        value, vector = found, turned / length
    return value


def linear_bound(staleness_rounds: float) -> float:
    """Return the largest stable step times curvature for updates of an age in rounds.

    w <- w - kappa lambda w_old is stable for kappa lambda < 2 sin(pi / (2 (2 d + 1))), d the age.
    """
    return 2.0 * math.sin(math.pi / (2.0 * (2.0 * staleness_rounds + 1.0)))


def _end_s(run: Path) -> float:
    end_s = load(run / "config.toml").stop.emulated_s
    assert end_s is not None  # all runs over TDMA stop by time
    return end_s
