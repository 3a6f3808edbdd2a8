"""SyncDrop (AsyncDrop): each device trains a sub-model; only its elements are mixed in (Dun 2023).

Source: Dun et al. 2023, arXiv 2210.16105.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from pydantic import Field

from edgefl.errors import UserError
from edgefl.strategies.base.asynchronous import AsynchronousOptions, Timed
from edgefl.strategies.base.events_and_decisions import Assign, Decision, UpdateArrived
from edgefl.strategies.base.local_rule import LocalRule
from edgefl.strategies.base.submodels import HiddenLayer, hidden_layers, submodel_mask
from edgefl.vectors import Layout, aligned, aligned_copy


class SyncDropOptions(AsynchronousOptions):
    drop_rate: float = Field(0.25, gt=0, lt=1)
    """Share p of each hidden layer's units that a device's sub-model lacks."""
    alpha: float = Field(0.5, gt=0, le=1)
    """Mixing weight of an update, for the elements of its sub-model."""
    mask: Literal["hetero", "random"] = "hetero"
    """Which units a device lacks: by the change of the units and the speed of the device
    (`"hetero"`), or `"random"` ones.
    """


class SubModel(LocalRule):
    """Train the received sub-model inside a full-size model whose dropped units are zero, and send
    back only the sub-model; a step costs 1 - p.
    """

    def __init__(self, options: Any) -> None:
        super().__init__(options)
        self.work = 1.0 - options.drop_rate

    def unpack(self, task: Any, layout: Layout) -> np.ndarray:
        weights = aligned(layout.size)
        weights[:] = 0.0
        weights[self._stays(task, layout)] = task.vectors["weights"]
        return weights

    def payload(self, run: Any) -> tuple[dict[str, np.ndarray], dict[str, float]]:
        weights, stays = run.weights_array(), self._stays(run.task, run.layout)
        if weights[: run.parameters][~stays[: run.parameters]].any():
            raise UserError(
                "syncdrop cannot cut this model: its dropped units did not stay zero (an activation"
                " with f(0) != 0, or an unusual structure)"
            )
        return {"weights": weights[stays]}, {}

    def _stays(self, task: Any, layout: Layout) -> np.ndarray:
        layers, units = hidden_layers(layout), task.vectors["dropped"].astype(np.int64)
        ends = np.cumsum([drops(layer, self.options.drop_rate) for layer in layers])
        return submodel_mask(layout, layers, np.split(units, ends[:-1]))


class SyncDrop(Timed):
    """w_j <- (1 - alpha) w_j + alpha w_local,j for the elements j of the device's sub-model.

    There is no staleness weight. In each hidden layer the F units are ordered by score_f = sum |w -
    w_0| over the weights in and out of unit f, the most changed first. Of R devices, rank r (0: the
    fastest) lacks the p F units from floor(r F / R) on, shifted back at the end. A device that has
    not delivered yet lacks random units; with ``mask = "random"`` all do. Not in the paper: the
    layers are all hidden ones that can be cut (in residual networks, inside each block), the speed
    is the mean time from task to update, and R may exceed F.
    """

    Options = SyncDropOptions
    rule = SubModel

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.reference = self.weights  # w_0, never refreshed
        self.layers = hidden_layers(self.layout)
        self.stays: dict[str, np.ndarray] = {}  # edge -> mask of its latest sub-model
        if not any(drops(layer, self.options.drop_rate) for layer in self.layers):
            raise UserError(
                "syncdrop: the model has no hidden layer that could lose a share of"
                f" {self.options.drop_rate:g} of its units"
            )

    def assign(self, edges: list[str]) -> list[Decision]:
        super().assign(edges)
        return [self._cut(edge) for edge in edges]

    def apply(self, update: UpdateArrived, gap: int) -> np.ndarray:
        weights = aligned_copy(self.weights)
        stays = self.stays[update.edge]
        alpha = np.float32(self.options.alpha)
        weights[stays] = (1 - alpha) * weights[stays] + alpha * update.weights
        return weights

    def update_size(self, edge: str, name: str) -> int:
        return int(np.count_nonzero(self.stays[edge]))

    def _cut(self, edge: str) -> Assign:
        dropped = self._ranked(edge) or self._random(edge)
        self.stays[edge] = submodel_mask(self.layout, self.layers, dropped)
        return Assign(
            (edge,),
            {
                "weights": self.weights[self.stays[edge]],
                "dropped": np.concatenate(dropped).astype(np.float32),
            },
        )

    def _ranked(self, edge: str) -> list[np.ndarray]:
        """Return the units of each layer that a device of this speed lacks.

        Empty if its speed is not known or not used.
        """
        ranking = sorted(self.delays, key=lambda known: (self.mean_delay_s(known), known))
        if self.options.mask == "random" or edge not in ranking:
            return []
        rank, ranks = ranking.index(edge), len(ranking)
        change = np.abs(self.weights - self.reference)
        return [
            window(_scores(layer, change), drops(layer, self.options.drop_rate), rank, ranks)
            for layer in self.layers
        ]

    def _random(self, edge: str) -> list[np.ndarray]:
        rng = self.streams.rng("dropped units", self.triggers, edge)
        return [
            np.sort(rng.choice(layer.units, drops(layer, self.options.drop_rate), replace=False))
            for layer in self.layers
        ]


def drops(layer: HiddenLayer, rate: float) -> int:
    """Return how many of the layer's units a sub-model lacks; always fewer than all."""
    return int(rate * layer.units)


def window(scores: np.ndarray, count: int, rank: int, ranks: int) -> np.ndarray:
    """Return ``count`` units, sorted: in the order of falling score, those from floor(rank F /
    ranks) on, shifted back at the end.
    """
    first = min(rank * len(scores) // ranks, len(scores) - count)
    return np.sort(np.argsort(-scores, kind="stable")[first : first + count])


def _scores(layer: HiddenLayer, change: np.ndarray) -> np.ndarray:
    scores: np.ndarray = layer.rows(change).sum(axis=1) + layer.columns(change).sum(axis=(0, 2))
    return scores
