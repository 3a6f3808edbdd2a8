"""Sub-models: which hidden units of a model can be dropped, and the flat vector without them.

A unit is a filter of a convolution or an output of a hidden layer. It is dropped with the weights
that compute it, its normalisation, and the weights of the next layer that read it. On the device
these elements are zero and stay zero: the unit's output is 0 if its activation maps 0 to 0.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from edgefl.vectors import Layout, LayoutEntry

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
