"""The device side of FedASMU and FedSSMU (Algorithm 2).

A device asks once per task for a fresher global model and merges it. It learns with which weight
to merge and when to ask: Q-learning over refresh points (arXiv 2507.06031, eq. 8, corrected). The
state is the refresh point of the last merge, in finished epochs: 1 to L - 1 of L epochs. The
actions are minus, stay, add.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from typing import Any

import numpy as np

from edgefl.strategies.base.strategy import LocalRule
from edgefl.strategies.dissemination.learned import DeviceControls, clipped, weight

MOVES = (0, 1, -1)  # stay, add, minus; among equal values the first one is chosen


def resized_table(table: np.ndarray, points: int) -> np.ndarray:
    """Return a copy with a row for each refresh point, because tasks can differ in length."""
    out = np.zeros((points, len(MOVES)))
    rows = min(points, len(table))
    out[:rows] = table[:rows]
    return out


def clipped_point(refresh_point: int, points: int) -> int:
    return min(max(refresh_point, 1), points)


def chosen_move(table: np.ndarray, refresh_point: int, epsilon: float, draw: float) -> int:
    """Return the index of an action: with probability ``epsilon`` a random one, else the best.

    ``draw``, uniform in [0, 1), decides both.
    """
    if draw < epsilon:
        return min(int(draw / epsilon * len(MOVES)), len(MOVES) - 1)
    return int(np.argmax(table[refresh_point - 1]))


def point_after(refresh_point: int, action: int, points: int) -> int:
    """Return the refresh point to which an action leads."""
    return clipped_point(refresh_point + MOVES[action], points)


def learned_table(
    table: np.ndarray, refresh_point: int, action: int, reward: float, rate: float, discount: float
) -> np.ndarray:
    """Return a new table after one step of eq. 8.

    H(l, a) <- H(l, a) + rate (R + discount max_a' H(l_next, a') - H(l, a)).
    """
    out = table.copy()
    best_next = float(table[point_after(refresh_point, action, len(table)) - 1].max())
    out[refresh_point - 1, action] += rate * (
        reward + discount * best_next - out[refresh_point - 1, action]
    )
    return out


NUMBERS, TABLE = "merging", "q_table"  # the vectors that a device keeps
NAMES = (
    "gamma",
    "upsilon",
    "baseline",
    "refresh_point",
    "task",
    "fresh_version",
    "beta",
    "reward",
    "merge_step",
)
# sent after a merge in this task
SENT_AFTER_MERGE = ("fresh_version", "beta", "reward", "merge_step")


class LearningRateRule(LocalRule):
    """Local SGD that also sends its learning rate.

    The server computes a device's gradient as its change divided by learning rate times steps.
    """

    def payload(self, run: Any) -> tuple[dict[str, np.ndarray], dict[str, float]]:
        return {"weights": run.weights.numpy(force=True)}, {"learning_rate": run.learning_rate}


class Refresh(LearningRateRule):
    """Ask after l* of L local epochs and merge once: w <- (1 - beta) w + beta w_g.

    l* is 1 to L - 1, in finished epochs, as in the paper's text. Algorithm 2 as printed can also
    ask before any training. Almost no newer model exists then, so the device would get no reward
    and could not learn to ask later. With L = 1 there is no refresh point and no request.

    Everything that a device learns is in its memory, so training can run in any process:
    ``merging``, from the first merge on, has the numbers of NAMES as pairs of float32 (the second
    is the rounding error of the first); ``q_table`` has the table of its moves.
    """

    remembers = (NUMBERS, TABLE)

    def __init__(self, options: Any) -> None:
        super().__init__(options)
        self.on_request = options.on_request

    def checkpoint(self, run: Any) -> int | None:
        point = self.refresh_point(run) if _points(run) else None
        return None if point is None else point * int(run.steps_per_epoch)

    def refresh_point(self, run: Any) -> int:
        """Return l* in finished epochs, at most the last point. The run must have such points."""
        points = _points(run)
        heuristics = {
            "h1": 1,
            "h2": (points + 1) // 2,  # floor(L / 2)
            "h3": points,
            "fixed": self.options.refresh_point,
        }
        if self.options.selector in heuristics:
            return clipped_point(heuristics[self.options.selector], points)
        state = self._state(run.memory)
        suggested = int(run.task.numbers.get("refresh_point", 0))
        draw = run.task.numbers.get("draw", 0.0)
        if "refresh_point" not in state:
            return clipped_point(suggested or 1 + int(draw * points), points)
        last = clipped_point(int(state["refresh_point"]), points)
        return point_after(
            last,
            chosen_move(_table(run.memory, points), last, self.options.epsilon, draw),
            points,
        )

    def merge(self, run: Any, fresh: np.ndarray, version: int) -> None:
        state = self._state(run.memory)
        if state.get("task") == run.task.number:
            return  # once per task
        refresh_point, weights = self.refresh_point(run), run.weights.numpy(force=True)
        loss_before, _ = run.probe(run.weights)
        change = fresh - weights
        beta, controls, slopes = self._weigh(run, state, version)
        weights += np.float32(beta) * change
        run.weights.copy_(tensor(weights))
        loss_after, gradient = run.probe(run.weights)
        slope = gradient.numpy(force=True)
        product = float(np.einsum("i,i->", slope, change[: run.parameters], dtype=np.float64))
        moved = controls.moved(
            slopes,
            clipped(product, self.options.most_product),
            (self.options.eta_gamma, self.options.eta_upsilon),
        )
        reward = loss_before - loss_after
        reward = reward if isfinite(reward) else 0.0
        baseline = state.get("baseline", 0.0)
        baseline += self.options.baseline_rate * (reward - baseline)  # b <- (1 - rho) b + rho R
        if "refresh_point" in state:
            self._learn_when(run, int(state["refresh_point"]), reward)
        state = {
            "gamma": moved.gamma,
            "upsilon": moved.upsilon,
            "baseline": baseline,
            "refresh_point": refresh_point,
            "task": run.task.number,
        }
        _keep(
            run.memory,
            state
            | {
                "fresh_version": version,
                "beta": beta,
                "reward": reward,
                "merge_step": run.step,
            },
        )

    def payload(self, run: Any) -> tuple[dict[str, np.ndarray], dict[str, float]]:
        vectors, numbers = super().payload(run)
        state = self._state(run.memory)
        merged = state.get("task") == run.task.number
        if run.checkpoint is not None:
            numbers["refresh_point"] = run.checkpoint // run.steps_per_epoch
        numbers |= {"asked": int(run.checkpoint is not None), "merged": int(merged)}
        numbers |= {
            "gamma": state.get("gamma", self.options.gamma0),
            "upsilon": state.get("upsilon", self.options.upsilon0),
        }
        numbers |= {"baseline": state.get("baseline", 0.0)}
        return vectors, numbers | {name: state[name] for name in SENT_AFTER_MERGE if merged}

    def times(self, run: Any, version: int) -> tuple[int, int]:
        """Return (g, g - o + 1) of eq. 10, with g counted from 1."""
        return version + 1, version - run.task.version + 1

    def _weigh(
        self, run: Any, state: Mapping[str, float], version: int
    ) -> tuple[float, DeviceControls, tuple[float, float]]:
        """Return (beta, the controls that it was computed from, its slopes)."""
        options, (t, staleness) = self.options, self.times(run, version)
        controls = DeviceControls(
            state.get("gamma", options.gamma0), state.get("upsilon", options.upsilon0)
        )
        return (
            weight(options.mu_beta, controls.phi(t, staleness)),
            controls,
            controls.slopes(options.mu_beta, t, staleness),
        )

    def _learn_when(self, run: Any, last: int, reward: float) -> None:
        """Apply eq. 8 to the move from the last merge's refresh point to that of this merge."""
        if self.options.selector != "learned":
            return
        points, draw = _points(run), run.task.numbers.get("draw", 0.0)
        table, last = _table(run.memory, points), clipped_point(last, points)
        action = chosen_move(table, last, self.options.epsilon, draw)
        table = learned_table(
            table, last, action, reward, self.options.q_rate, self.options.q_discount
        )
        run.memory[TABLE] = tensor(table.reshape(-1))

    @staticmethod
    def _state(memory: Mapping[str, Any]) -> dict[str, float]:
        """Return the numbers in memory; empty before the first merge."""
        if NUMBERS not in memory:
            return {}
        pairs = _numbers(memory[NUMBERS]).reshape(-1, 2)
        return dict(zip(NAMES, pairs.sum(axis=1).tolist()))


def _points(run: Any) -> int:
    """Return L - 1, the number of refresh points of the run."""
    return -(-int(run.steps) // int(run.steps_per_epoch)) - 1


def _table(memory: Mapping[str, Any], points: int) -> np.ndarray:
    kept = _numbers(memory[TABLE]) if TABLE in memory else np.empty(0)
    return resized_table(kept.reshape(-1, len(MOVES)), points)


def _keep(memory: dict[str, Any], state: Mapping[str, float]) -> None:
    values = np.array([state[name] for name in NAMES])
    coarse = values.astype(np.float32)
    memory[NUMBERS] = tensor(np.stack([coarse, values - coarse], axis=1).reshape(-1))


def _numbers(vector: Any) -> np.ndarray:
    return np.asarray(vector.cpu(), dtype=np.float64)


def tensor(vector: np.ndarray) -> Any:
    """Return the vector as a float32 tensor, as a run's memory has it."""
    import torch

    return torch.from_numpy(vector.astype(np.float32))
