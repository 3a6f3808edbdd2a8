"""The server side of refresh points: the meta model chooses that of a device without a merge.

A refresh point is the number of finished local epochs, 1 to L - 1 of L, after which a device asks.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import log, sqrt
from typing import Any

import numpy as np

from edgefl.strategies.base.events_and_decisions import Assign, Decision, UpdateArrived
from edgefl.streams import Streams

# largest refresh point that is drawn; a device with fewer points uses its last one
MOST_REFRESH_POINTS = 1000
# chance of "ask" at a point before anything is learned: the four points of five epochs have .25,
# .19, .14 and .42
FIRST_CHANCE = 0.25

Gates = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


class MetaModel:
    """P(f_l = 1 | f_1 .. f_{l-1}), with f_l = "ask after epoch l": an LSTM.

    It is trained by REINFORCE (arXiv 2507.06031, eq. 7). The papers do not give its size and
    input: here it has 32 hidden units by default, and its input is the previous decision as
    one-hot. It starts untrained.

    The order of the gates is input, forget, cell, output, as in torch.
    """

    def __init__(self, rng: np.random.Generator, hidden: int) -> None:
        bound = 1 / sqrt(hidden)
        self.hidden = hidden
        self.weights = {
            "input": rng.uniform(-bound, bound, (4 * hidden, 2)),
            "hidden": rng.uniform(-bound, bound, (4 * hidden, hidden)),
            "bias": rng.uniform(-bound, bound, 4 * hidden),
            "out": (
                rng.uniform(-bound, bound, hidden) / hidden
            ),  # small: the first decisions follow FIRST_CHANCE
            "out_bias": np.array(log(FIRST_CHANCE / (1 - FIRST_CHANCE))),
        }

    def draw(self, rng: np.random.Generator) -> int:
        """Draw decisions and return the first refresh point, from 1, with "ask"."""
        state = np.zeros(self.hidden), np.zeros(self.hidden)
        for refresh_point in range(1, MOST_REFRESH_POINTS + 1):
            state, _ = self._forward(state, refresh_point > 1)
            if rng.random() < _sigmoid(self._logit(state[0])):
                return refresh_point
        return MOST_REFRESH_POINTS

    def gradient(self, decisions: Sequence[int]) -> dict[str, np.ndarray]:
        """Return the gradient of log P with respect to all weights, through time."""
        state = np.zeros(self.hidden), np.zeros(self.hidden)
        trail: list[tuple[tuple[np.ndarray, np.ndarray], Gates, tuple[np.ndarray, np.ndarray]]] = []
        for number in range(len(decisions)):
            after, gates = self._forward(state, number > 0)
            trail.append((state, gates, after))
            state = after
        found = {name: np.zeros_like(value) for name, value in self.weights.items()}
        d_hidden, d_cell = np.zeros(self.hidden), np.zeros(self.hidden)
        for number in range(len(decisions) - 1, -1, -1):
            before, gates, after = trail[number]
            # d log P / d logit
            error = float(bool(decisions[number])) - _sigmoid(self._logit(after[0]))
            found["out"] += error * after[0]
            found["out_bias"] += error
            d_gates, d_cell = self._backward(
                d_hidden + error * self.weights["out"], d_cell, gates, before[1], after[1]
            )
            found["hidden"] += np.outer(d_gates, before[0])
            found["bias"] += d_gates
            if number:
                found["input"][:, 0] += d_gates
            d_hidden = self.weights["hidden"].T @ d_gates
        return found

    def learn(self, decisions: Sequence[int], advantage: float, rate: float) -> None:
        """theta <- theta + rate (R - b) sum_l grad log P(f_l | ...)."""
        for name, slope in self.gradient(decisions).items():
            self.weights[name] = self.weights[name] + rate * advantage * slope

    def _forward(
        self, state: tuple[np.ndarray, np.ndarray], later: bool
    ) -> tuple[tuple[np.ndarray, np.ndarray], Gates]:
        """Advance by one epoch.

        A previous decision is always "do not ask", because "ask" ends the sequence. The first point
        has no previous decision.
        """
        hidden, cell = state
        raw = (
            self.weights["hidden"] @ hidden
            + self.weights["bias"]
            + (self.weights["input"][:, 0] if later else 0.0)
        )
        i, f, g, o = np.split(raw, 4)
        gates = _sigmoid(i), _sigmoid(f), np.tanh(g), _sigmoid(o)
        cell = gates[1] * cell + gates[0] * gates[2]
        return (gates[3] * np.tanh(cell), cell), gates

    def _backward(
        self,
        d_hidden: np.ndarray,
        d_cell: np.ndarray,
        gates: Gates,
        before: np.ndarray,
        after: np.ndarray,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return (d raw gates, d cell before) from the slopes of a hidden state and its cell."""
        i, f, g, o = gates
        squashed = np.tanh(after)
        d_cell = d_cell + d_hidden * o * (1 - squashed**2)
        raw = (
            d_cell * g * i * (1 - i),
            d_cell * before * f * (1 - f),
            d_cell * i * (1 - g**2),
            d_hidden * squashed * o * (1 - o),
        )
        return np.concatenate(raw), d_cell * f

    def _logit(self, hidden: np.ndarray) -> float:
        return float(self.weights["out"] @ hidden + self.weights["out_bias"])


def _sigmoid(x: np.ndarray | float) -> np.ndarray:
    return 0.5 * (1.0 + np.tanh(0.5 * np.asarray(x)))  # no overflow at either end


# The device chooses a point uniformly with its ``draw``: the server does not know its epochs.
ANY_REFRESH_POINT = 0


class RefreshPoints:
    """A refresh point per task for devices without a Q-table.

    The meta model learns from the first merge of each device (REINFORCE). Every task also carries a
    number, uniform in [0, 1), drawn by (seed, edge, task of that edge): a device uses it for its
    own choices.
    """

    def __init__(self, options: Any, streams: Streams) -> None:
        self.options, self.streams = options, streams
        # The names of streams keep "slot", the old term: another name would draw other numbers.
        self.model = MetaModel(streams.rng("slot model"), options.meta_hidden)
        self.tasks: dict[str, int] = {}  # edge -> number of its tasks
        self.given: dict[str, int] = {}  # edge -> refresh point of its latest task
        self.merged: set[str] = set()  # edges that have merged: they choose their own points

    def assign(
        self, edges: list[str], weights: np.ndarray, numbers: dict[str, float] | None = None
    ) -> list[Decision]:
        """Return tasks whose ``numbers`` also have the refresh points.

        With a fixed rule tasks need no such numbers: then one Assign is for all edges, which is a
        broadcast if the medium has it.
        """
        more = numbers or {}
        if self.options.selector != "learned":
            return [Assign(tuple(edges), {"weights": weights}, more)]
        return [Assign((edge,), {"weights": weights}, more | self._numbers(edge)) for edge in edges]

    def learn(self, update: UpdateArrived) -> None:
        """Train the meta model if this update has the first merge of its edge."""
        numbers, edge = update.numbers, update.edge
        if edge in self.merged or edge not in self.given or not numbers.get("merged"):
            return
        self.merged.add(edge)
        asked_at, drawn = int(numbers.get("refresh_point", 0)), self.given[edge]
        if (
            not 1 <= asked_at <= MOST_REFRESH_POINTS
            or "reward" not in numbers
            or "baseline" not in numbers
        ):
            return
        # the drawn point is beyond the last one of the device, which it then used
        asked_at_end = drawn > asked_at
        decisions = [0] * (asked_at - 1) + [0 if asked_at_end else 1]
        self.model.learn(decisions, numbers["reward"] - numbers["baseline"], self.options.meta_rate)

    def _numbers(self, edge: str) -> dict[str, float]:
        count = self.tasks[edge] = self.tasks.get(edge, 0) + 1
        rng = self.streams.rng("slot", edge, count)
        draw = float(rng.random())
        if edge not in self.merged:
            self.given[edge] = (
                ANY_REFRESH_POINT if rng.random() < self.options.epsilon else self.model.draw(rng)
            )
        return {"refresh_point": float(self.given[edge]), "draw": draw}
