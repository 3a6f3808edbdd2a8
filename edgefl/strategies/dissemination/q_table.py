"""A device's Q-table: Q-learning over refresh points (arXiv 2507.06031, eq. 8, corrected).

State: the refresh point of the last merge, in finished epochs: 1 to L - 1 of L epochs.
Actions: minus, stay, add.
"""

from __future__ import annotations

import numpy as np

MOVES = (0, 1, -1)  # stay, add, minus; among equal values the first one is chosen


def resized(table: np.ndarray, points: int) -> np.ndarray:
    """Return a copy with a row for each refresh point, because tasks can differ in length."""
    out = np.zeros((points, len(MOVES)))
    rows = min(points, len(table))
    out[:rows] = table[:rows]
    return out


def clip(refresh_point: int, points: int) -> int:
    return min(max(refresh_point, 1), points)


def choose(table: np.ndarray, refresh_point: int, epsilon: float, draw: float) -> int:
    """Return the index of an action: with probability ``epsilon`` a random one, else the best.

    ``draw``, uniform in [0, 1), decides both.
    """
    if draw < epsilon:
        return min(int(draw / epsilon * len(MOVES)), len(MOVES) - 1)
    return int(np.argmax(table[refresh_point - 1]))


def after(refresh_point: int, action: int, points: int) -> int:
    """Return the refresh point to which an action leads."""
    return clip(refresh_point + MOVES[action], points)


def learned(
    table: np.ndarray, refresh_point: int, action: int, reward: float, rate: float, discount: float
) -> np.ndarray:
    """Return a new table after one step of eq. 8.

    H(l, a) <- H(l, a) + rate (R + discount max_a' H(l_next, a') - H(l, a)).
    """
    out = table.copy()
    best_next = float(table[after(refresh_point, action, len(table)) - 1].max())
    out[refresh_point - 1, action] += rate * (
        reward + discount * best_next - out[refresh_point - 1, action]
    )
    return out
