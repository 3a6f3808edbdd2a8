"""A device's own table of what asking earlier or later has brought: Q-learning over
refresh points (arXiv 2507.06031, eq. 8, corrected).

State: the refresh point of the last merge, in finished epochs: 1 to L - 1 of L epochs.
Actions: minus, stay, add.
"""

from __future__ import annotations

import numpy as np

MOVES = (0, 1, -1)  # stay, add, minus: of equal values the first is taken


def resized(table: np.ndarray, points: int) -> np.ndarray:
    """A copy with a row for each refresh point: tasks may differ in length."""
    out = np.zeros((points, len(MOVES)))
    rows = min(points, len(table))
    out[:rows] = table[:rows]
    return out


def clip(refresh_point: int, points: int) -> int:
    return min(max(refresh_point, 1), points)


def choose(table: np.ndarray, refresh_point: int, epsilon: float, draw: float) -> int:
    """The index of an action: with probability ``epsilon`` any, else the best. ``draw`` is
    uniform in [0, 1) and decides both.
    """
    if draw < epsilon:
        return min(int(draw / epsilon * len(MOVES)), len(MOVES) - 1)
    return int(np.argmax(table[refresh_point - 1]))


def after(refresh_point: int, action: int, points: int) -> int:
    """The refresh point that an action leads to."""
    return clip(refresh_point + MOVES[action], points)


def learned(
    table: np.ndarray, refresh_point: int, action: int, reward: float, rate: float, discount: float
) -> np.ndarray:
    """H(l, a) <- H(l, a) + rate (R + discount max_a' H(l_next, a') - H(l, a)), as a new table."""
    out = table.copy()
    best_next = float(table[after(refresh_point, action, len(table)) - 1].max())
    out[refresh_point - 1, action] += rate * (
        reward + discount * best_next - out[refresh_point - 1, action]
    )
    return out
