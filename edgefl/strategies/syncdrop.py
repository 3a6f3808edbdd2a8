"""SyncDrop (AsyncDrop): each device trains a sub-model; only its elements are mixed in (Dun 2023).

Source: Dun et al. 2023, arXiv 2210.16105.

A unit of a model that can be dropped is a filter of a convolution or an output of a hidden layer.
It is dropped with the weights that compute it, its normalisation, and the weights of the next layer
that read it. On the device these elements are zero and stay zero: the unit's output is 0 if its
activation maps 0 to 0.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

import numpy as np
from pydantic import Field

from edgefl.errors import UserError
from edgefl.strategies.base.asynchronous import AsynchronousOptions, Timed
from edgefl.strategies.base.events_and_decisions import Assign, Decision, UpdateArrived
from edgefl.strategies.base.strategy import LocalRule
from edgefl.vectors import Layout, LayoutEntry, aligned, aligned_copy

# names of the modules that attend in models of transformers
ATTENTION = frozenset(("attention", "attn", "self_attn", "self_attention", "SelfAttention"))


@dataclass(frozen=True, slots=True)
class HiddenLayer:
    """The units of one layer that can be dropped.

    ``producer`` computes them, ``beside`` are their biases and normalisations, ``consumer`` reads
    them. Unit f is row f of the producer and the ``width`` input columns of the consumer that begin
    at first + f width.
    """

    producer: LayoutEntry
    beside: tuple[LayoutEntry, ...]
    consumer: LayoutEntry
    first: int
    width: int

    @property
    def units(self) -> int:
        return self.producer.shape[0]

    def rows(self, vector: np.ndarray) -> np.ndarray:
        """Return the producer as (units, weights of a unit): a view."""
        return _part(vector, self.producer).reshape(self.units, -1)

    def columns(self, vector: np.ndarray) -> np.ndarray:
        """Return the consumer as (outputs, units, weights of a unit)."""
        outputs, inputs = self.consumer.shape[:2]
        by_input = _part(vector, self.consumer).reshape(outputs, inputs, -1)[
            :, self.first : self.first + self.units * self.width
        ]
        return by_input.reshape(outputs, self.units, -1)

    def drop(self, stays: np.ndarray, units: np.ndarray) -> None:
        """Set every element of a mask that belongs to these units to False."""
        self.rows(stays)[units] = False
        for entry in self.beside:
            _part(stays, entry)[units] = False
        _part(stays, self.consumer).reshape(*self.consumer.shape[:2], -1)[
            :, self._inputs(units)
        ] = False

    def _inputs(self, units: np.ndarray) -> np.ndarray:
        return (self.first + units[:, None] * self.width + np.arange(self.width)).ravel()


def hidden_layers(layout: Layout) -> list[HiddenLayer]:
    """Return the layers whose units can be dropped, in order. The last layer is never among them.

    The shapes decide. Either the next layer belongs to the same module (a chain, or the two
    convolutions of a residual block) and reads the outputs. Or several parallel layers are followed
    by one that reads all their outputs. So a layer with a shortcut around it keeps all its units.
    A transformer keeps its attention: only the wide layers of its feed-forward parts, or the ranks
    of its adapters, are hidden layers.
    """
    weights = [
        entry for entry in layout.entries if entry.kind == "parameter" and len(entry.shape) > 1
    ]
    if any(_attends(entry) for entry in weights):
        return list(_of_transformer(layout, weights))
    return list(_found(layout, weights))


def _attends(entry: LayoutEntry) -> bool:
    """Whether the weight belongs to an attention, by the names that transformers' models use."""
    return any(part in ATTENTION or part.startswith("lora_") for part in entry.name.split("."))


def _of_transformer(layout: Layout, weights: Sequence[LayoutEntry]) -> Iterator[HiddenLayer]:
    for producer, consumer in pairwise(weights):
        units, inputs = producer.shape[:2]
        adapter = producer.name.replace(".lora_A.", ".lora_B.")
        if adapter != producer.name:
            found = adapter == consumer.name
        else:
            apart = not (_attends(producer) or _attends(consumer))
            found = apart and units > inputs and consumer.shape == (inputs, units)
        if found:
            yield HiddenLayer(producer, _beside(layout, producer, weights), consumer, 0, 1)


def _found(layout: Layout, weights: Sequence[LayoutEntry]) -> Iterator[HiddenLayer]:
    index = 0
    while index < len(weights) - 1:
        branches = _side_by_side(weights, index)
        if branches:
            first = 0
            for producer in branches:
                yield HiddenLayer(
                    producer,
                    _beside(layout, producer, weights),
                    weights[index + len(branches)],
                    first,
                    1,
                )
                first += producer.shape[0]
            index += len(branches)
            continue
        producer, consumer = weights[index : index + 2]
        if _home(producer) == _home(consumer) and consumer.shape[1] % producer.shape[0] == 0:
            yield HiddenLayer(
                producer,
                _beside(layout, producer, weights),
                consumer,
                0,
                consumer.shape[1] // producer.shape[0],
            )
        index += 1


def _side_by_side(weights: Sequence[LayoutEntry], index: int) -> Sequence[LayoutEntry]:
    """Return the parallel layers from ``index`` on: one layer of another module reads them all.

    Empty if there are fewer than two.
    """
    end = index
    while end < len(weights) and (_home(weights[end]), weights[end].shape[1]) == (
        _home(weights[index]),
        weights[index].shape[1],
    ):
        end += 1
    branches = weights[index:end]
    together = (
        end < len(weights)
        and _home(weights[end]) != _home(weights[index])
        and weights[end].shape[1] == sum(b.shape[0] for b in branches)
    )
    return branches if together and len(branches) > 1 else []


def _beside(
    layout: Layout, producer: LayoutEntry, weights: Sequence[LayoutEntry]
) -> tuple[LayoutEntry, ...]:
    """Return the entries with one number per unit.

    These are the producer's bias and the normalisation before the next layer, with its buffers.
    """
    behind = [entry.offset for entry in weights if entry.offset > producer.offset]
    modules = {
        e.module
        for e in layout.entries
        if e.kind == "parameter" and producer.offset <= e.offset < min(behind)
    }
    return tuple(e for e in layout.entries if e.module in modules and e.shape == producer.shape[:1])


def submodel_mask(
    layout: Layout, layers: Sequence[HiddenLayer], dropped: Sequence[np.ndarray]
) -> np.ndarray:
    """Return a mask over the flat vector: False for the ``dropped`` units of each layer."""
    stays = np.ones(layout.size, dtype=np.bool_)
    for layer, units in zip(layers, dropped):
        layer.drop(stays, units)
    return stays


def _home(entry: LayoutEntry) -> str:
    """Return the module that contains the layer."""
    return entry.module.rpartition(".")[0]


def _part(vector: np.ndarray, entry: LayoutEntry) -> np.ndarray:
    return vector[entry.offset : entry.offset + entry.size]


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
    is the mean time from task to update, and R may exceed F. For that the authors' first unit, r
    floor(F / R), is floor(r F / R) here; both are the same if R divides F.
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

    @classmethod
    def submodel_parameters(cls, options: Any, layout: Layout) -> int:
        layers = hidden_layers(layout)
        # whichever units are dropped, their elements are as many
        dropped = [np.arange(drops(layer, options.drop_rate)) for layer in layers]
        stays = submodel_mask(layout, layers, dropped)
        return int(np.count_nonzero(stays[: layout.parameters]))

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
