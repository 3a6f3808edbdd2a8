"""The model, the data of each client, training and testing, in numpy alone."""

from __future__ import annotations

import numpy as np
from sklearn.datasets import load_digits

PIXELS, DIGITS = 64, 10


def first_weights(hidden: int, seed: int) -> list[np.ndarray]:
    """Two layers with ``hidden`` units between them, float32."""
    rng = np.random.default_rng(seed)
    shapes = [(PIXELS, hidden), (hidden,), (hidden, DIGITS), (DIGITS,)]
    factors = [PIXELS**-0.5, 0.0, hidden**-0.5, 0.0]
    return [
        (rng.standard_normal(shape) * factor).astype(np.float32)
        for shape, factor in zip(shapes, factors)
    ]


def load_part(part: int, parts: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """The images and labels of one client: an equal share of the shuffled digits."""
    digits = load_digits()
    order = np.random.default_rng(seed).permutation(len(digits.target))
    mine = np.array_split(order, parts)[part]
    return (digits.data[mine] / 16).astype(np.float32), digits.target[mine]


def train(
    weights: list[np.ndarray],
    images: np.ndarray,
    labels: np.ndarray,
    batch_size: int,
    learning_rate: float,
) -> tuple[list[np.ndarray], float]:
    """One epoch of SGD, in order; return the weights and the mean cross-entropy."""
    first, first_bias, second, second_bias = (array.copy() for array in weights)
    total = 0.0
    for begin in range(0, len(labels), batch_size):
        batch, wanted = images[begin : begin + batch_size], labels[begin : begin + batch_size]
        hidden = np.maximum(batch @ first + first_bias, 0)
        error = _chances(hidden @ second + second_bias)
        rows = np.arange(len(wanted))
        total -= float(np.log(error[rows, wanted]).sum())
        error[rows, wanted] -= 1
        error *= np.float32(learning_rate / len(wanted))
        back = (error @ second.T) * (hidden > 0)
        second -= hidden.T @ error
        second_bias -= error.sum(axis=0)
        first -= batch.T @ back
        first_bias -= back.sum(axis=0)
    return [first, first_bias, second, second_bias], total / len(labels)


def test(weights: list[np.ndarray], images: np.ndarray, labels: np.ndarray) -> tuple[float, float]:
    """Return the mean cross-entropy and the share of right answers."""
    first, first_bias, second, second_bias = weights
    chances = _chances(np.maximum(images @ first + first_bias, 0) @ second + second_bias)
    right = chances.argmax(axis=1) == labels
    return float(-np.log(chances[np.arange(len(labels)), labels]).mean()), float(right.mean())


def _chances(scores: np.ndarray) -> np.ndarray:
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)
