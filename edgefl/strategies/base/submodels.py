"""Sub-models: which hidden units of a model can be dropped, and the flat vector without them.

A unit (a convolution's filter, a hidden layer's output) is dropped with all that touches it: what
computes it, its normalisation, and what the next layer does with it. On the device those elements
are zero, and zero they stay: the unit's output is 0 if its activation maps 0 to 0.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from edgefl.vectors import Layout, LayoutEntry


@dataclass(frozen=True, slots=True)
class HiddenLayer:
    """One layer's droppable units: ``producer`` computes them, ``beside`` are their biases and
    normalisations, ``consumer`` reads them.

    Unit f is row f of the producer and the consumer's input columns from first + f width on,
    ``width`` of them.
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
        """The producer as (units, weights of a unit): a view."""
        return _part(vector, self.producer).reshape(self.units, -1)

    def columns(self, vector: np.ndarray) -> np.ndarray:
        """The consumer as (outputs, units, weights of a unit)."""
        outputs, inputs = self.consumer.shape[:2]
        by_input = _part(vector, self.consumer).reshape(outputs, inputs, -1)[
            :, self.first : self.first + self.units * self.width
        ]
        return by_input.reshape(outputs, self.units, -1)

    def drop(self, stays: np.ndarray, units: np.ndarray) -> None:
        """Set every element of a mask that touches these units to False."""
        self.rows(stays)[units] = False
        for entry in self.beside:
            _part(stays, entry)[units] = False
        _part(stays, self.consumer).reshape(*self.consumer.shape[:2], -1)[
            :, self._inputs(units)
        ] = False

    def _inputs(self, units: np.ndarray) -> np.ndarray:
        return (self.first + units[:, None] * self.width + np.arange(self.width)).ravel()


def hidden_layers(layout: Layout) -> list[HiddenLayer]:
    """The layers whose units can be dropped, in order; the last layer's outputs never can.

    Read off the shapes: a layer is followed by one of the same module (a chain, or the two
    convolutions of a residual block) that takes its outputs, or several layers side by side by one
    that takes all of theirs. A shortcut around a layer so keeps it whole.
    """
    weights = [
        entry for entry in layout.entries if entry.kind == "parameter" and len(entry.shape) > 1
    ]
    return list(_found(layout, weights))


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
    """The layers from ``index`` on that read the same and that one layer elsewhere puts
    together; none if they are fewer than two.
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
    """Entries of one number a unit: the producer's bias, and the normalisation between it and
    the next layer, with its buffers.
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
    """A mask over the flat vector: True for what belongs to the sub-model without each layer's
    ``dropped`` units.
    """
    stays = np.ones(layout.size, dtype=np.bool_)
    for layer, units in zip(layers, dropped):
        layer.drop(stays, units)
    return stays


def _home(entry: LayoutEntry) -> str:
    """The module that the layer is a part of."""
    return entry.module.rpartition(".")[0]


def _part(vector: np.ndarray, entry: LayoutEntry) -> np.ndarray:
    return vector[entry.offset : entry.offset + entry.size]
