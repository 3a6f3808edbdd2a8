"""IDFL recomputed with numpy only, in float64, to check a run.

It is softmax regression with a hand-written gradient and rounds from slot_by_slot.py. Only the
batches are those of the run.

    w_{k+1} = w_k - (eta / S) sum of u_n over S_k,   u_n = (w_khat - w_end) / eta
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file
from slot_by_slot import Shape, SlotBySlot

from edgefl.clocks.setup.learning import Learning
from edgefl.streams import Streams

DEVICES, PER_ROUND, COMPUTES, ROUNDS = 12, 2, 5, 40
SHAPE = Shape((COMPUTES,) * DEVICES, PER_ROUND, 1, COMPUTES + 3 * ROUNDS, "idfl", delay=3)
RATE = 0.05


def delay(shape: Shape) -> int:
    """alpha = G - d* - 1, d* = ceil(tau_comp / (r (S + 1))) (equations 32 and 33)."""
    groups = -(-shape.devices // shape.per_round)
    return groups + -max(shape.takes) // (shape.transfer * (shape.per_round + 1)) - 1


def difference(directory: Path, learned: Learning, steps: int) -> float:
    """Return the largest difference between a run's last model and the one computed here."""
    found = load_file(directory / "model.safetensors")["weights"].astype(np.float64)
    return float(np.abs(found - weights(learned, steps)).max())


def weights(learned: Learning, steps: int) -> np.ndarray:
    """Return w_ROUNDS with ``steps`` local steps per turn."""
    models = [learned.initial_weights().astype(np.float64)]
    rounds = SlotBySlot(SHAPE).play()
    assert len(rounds) == ROUNDS and SHAPE.delay == delay(SHAPE)
    begin = range(SHAPE.devices - SHAPE.delay * SHAPE.per_round)
    task: defaultdict[int, list[int]] = defaultdict(list)  # device -> numbers of its tasks
    for number, device in enumerate(
        [*begin, *(device for each in rounds for device in each.receivers)]
    ):
        task[device].append(number)
    for each in rounds:
        total = np.zeros_like(models[0])
        for device, model, _ in each.updates:
            batches = batches_of(learned, device, task[device].pop(0), steps)
            total += (models[model] - trained(models[model], batches)) / RATE
        models.append(models[-1] - RATE / SHAPE.per_round * total)
    return models[-1]


def batches_of(
    learned: Learning, device: int, task: int, steps: int
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return the device's batches in this task: inputs and labels of each step."""
    edge, size = f"e{device:03d}", learned.plan.batch_size
    rng = Streams(learned.experiment.seed).rng("batches", edge, task)
    members, order = learned.shards[edge], []
    while len(order) < steps:
        epoch = rng.permutation(members)
        order += [epoch[first : first + size] for first in range(0, len(epoch), size)]
    inputs, labels = (part.numpy() for part in learned.train)
    return [
        (inputs[some].reshape(len(some), -1).astype(np.float64), labels[some])
        for some in order[:steps]
    ]


def trained(weights: np.ndarray, batches: list[tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
    """Return the weights after one step of RATE on the mean cross-entropy per batch."""
    for inputs, labels in batches:
        features = inputs.shape[1]
        classes = len(weights) // (features + 1)
        matrix, bias = weights[: classes * features].reshape(classes, features), weights[-classes:]
        scores = inputs @ matrix.T + bias
        shares = np.exp(scores - scores.max(axis=1, keepdims=True))
        shares /= shares.sum(axis=1, keepdims=True)
        shares[np.arange(len(labels)), labels] -= 1.0
        slope = np.concatenate([(shares.T @ inputs).ravel(), shares.sum(axis=0)]) / len(labels)
        weights = weights - RATE * slope
    return weights
