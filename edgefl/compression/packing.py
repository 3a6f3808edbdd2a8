"""Packs the vectors of messages: on an edge those of updates, at the coordinator models.

A packed vector keeps its name. Its bytes, filled up to whole float32 elements, take its place, and
the number "packed NAME" has its length. So nothing but the two actors knows of compression, and the
size of a message is that of the packed one.

Of a model only the trainable elements are packed. Its buffers follow them as they are: a running
variance that is not exact may be 0 or negative.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

import numpy as np

from edgefl.compression.compressor import Compressor, pack_with_error
from edgefl.protocol.codec import size_of
from edgefl.protocol.messages import DROPPED, DROPPED_PUSH, Assignment, Fresh, Pushed, Update
from edgefl.streams import Streams
from edgefl.vectors import Layout, aligned, aligned_copy, is_finite

MODEL = "weights"
ERROR = "compression error"  # in the memory of an edge
MARK = "packed "  # before a vector's name: the number with its length
ELEMENT_BYTES = 4
FAULT = "cannot be unpacked"
ModelMessage = TypeVar("ModelMessage", Assignment, Fresh, Pushed)


@dataclass(frozen=True, slots=True, eq=False)
class PackedModel:
    """A model, what travels in its place, and what the edges get."""

    model: np.ndarray
    version: int
    carrier: np.ndarray
    received: np.ndarray


@dataclass(slots=True)
class Packing:
    """How the messages of a run are packed.

    ``up``, ``down``: the methods; None: nothing is packed. ``delivers``: the vector of an update
    that is packed. A model is sent as its change since the model that the edge was given.
    ``samples``: the device's time for packing an update, in training samples. ``submodel``: the
    trainable elements of a sub-model, if the whole model has buffers; all others travel whole.
    """

    up: Compressor | None
    down: Compressor | None
    layout: Layout
    streams: Streams
    delivers: str = MODEL
    samples: float = 0.0
    submodel: int = 0
    saved_down: int = 0  # bytes, of models that have come to their edges
    # by a message's bytes: what it saves, and how many uploads of so many bytes have ended
    _saves: dict[int, int] = field(default_factory=dict, repr=False)
    _saves_up: dict[int, int] = field(default_factory=dict, repr=False)
    _uploads: dict[int, int] = field(default_factory=dict, repr=False)
    _last: PackedModel | None = field(default=None, repr=False)  # it goes to many edges

    # ------------------------------------------------------------------ down
    def sent(self, message: ModelMessage) -> ModelMessage:
        """Return the message with its model packed."""
        if self.down is None:
            return message
        model = message.vectors[MODEL]
        packed = self._packed(model, message.version)
        if packed is None:
            return message
        small = replace(
            message,
            vectors={**message.vectors, MODEL: packed.carrier},
            numbers={**message.numbers, MARK + MODEL: float(model.size)},
        )
        size_bytes = size_of(small)
        self._saves.pop(size_bytes, None)  # the latest one is the last one
        self._saves[size_bytes] = size_of(message) - size_bytes
        return small

    def carried(self, direction: str, size_bytes: int, kind: str) -> None:
        """Count what was saved by a transfer that has ended: delivered, or dropped.

        A broadcast is one transfer. Of a dropped one ``size_bytes`` were carried.
        """
        if direction == "up":
            self._uploads[size_bytes] = self._uploads.get(size_bytes, 0) + 1
        elif kind not in (DROPPED, DROPPED_PUSH):
            self.saved_down += self._saves.get(size_bytes, 0)
        elif self._saves:
            whole_bytes, saved = next(reversed(self._saves.items()))
            self.saved_down += round(saved * size_bytes / whole_bytes)

    def received(self, model: np.ndarray, version: int) -> np.ndarray:
        """Return the model that an edge gets if ``model`` is sent as ``version``."""
        packed = self._packed(model, version)
        return model if packed is None else packed.received

    def taken(self, message: ModelMessage) -> ModelMessage:
        """Return the message with its model unpacked. ValueError if it cannot be."""
        size = message.numbers.get(MARK + MODEL)
        if self.down is None or size is None:
            return message
        model = self._unpacked(self.down, message.vectors[MODEL], int(size))
        return replace(
            message,
            vectors={**message.vectors, MODEL: model},
            numbers=_unmarked(message.numbers),
        )

    def _packed(self, model: np.ndarray, version: int) -> PackedModel | None:
        """Pack a model once for all edges; None if it travels whole: one that is not finite has
        no packed form.
        """
        if self.down is None or not is_finite(model):
            return None
        if self._last is None or self._last.model is not model or self._last.version != version:
            tensors = self._tensors(model.size)
            part, rest = np.split(model, [sum(tensors)])
            packed = self.down.pack(part, tensors, self.streams.rng("compression", version))
            received = _joined(self.down.unpack(packed, tensors), rest)
            self._last = PackedModel(model, version, _joined(_carrier(packed), rest), received)
        return self._last

    # ------------------------------------------------------------------ up
    def update(
        self, update: Update, start: np.ndarray, memory: Mapping[str, np.ndarray], edge: str
    ) -> tuple[Update, dict[str, np.ndarray]]:
        """Return the update with its vector packed, and what the edge has to remember.

        ``start``: the model that the edge was given.
        """
        vector = update.vectors.get(self.delivers)
        if self.up is None or vector is None:
            return update, {}
        change = vector - start if self._is_model(vector, start) else vector
        if not is_finite(change):
            return update, {}  # the coordinator says so
        tensors = self._tensors(vector.size)
        part, rest = change[: sum(tensors)], vector[sum(tensors) :]
        rng = self.streams.rng("compression", edge, update.number)
        learned: dict[str, np.ndarray] = {}
        if self.up.keeps_error:
            error = memory.get(ERROR)
            if error is not None and error.size != part.size:
                error = None  # a strategy with sub-models: the error was that of another one
            packed, learned[ERROR] = pack_with_error(self.up, part, error, tensors, rng)
        else:
            packed = self.up.pack(part, tensors, rng)
        return replace(
            update,
            vectors={**update.vectors, self.delivers: _joined(_carrier(packed), rest)},
            numbers={**update.numbers, MARK + self.delivers: float(vector.size)},
        ), learned

    def unpacked(
        self, update: Update, start: np.ndarray, length_of: Callable[[str], int]
    ) -> tuple[Update, str | None]:
        """Return the update as it was before it was packed, and why that cannot be done, or None.

        ``length_of``: the length that a vector of this update must have.
        """
        if self.up is None or not update.vectors:
            return update, None
        marked = update.numbers.get(MARK + self.delivers)
        carrier, size = update.vectors.get(self.delivers), length_of(self.delivers)
        if carrier is None or marked != size:
            lost = carrier is not None and marked is None and not is_finite(carrier)
            return update, None if lost else FAULT
        try:
            vector = self._unpacked(self.up, carrier, size)
        except ValueError:
            return update, FAULT
        if self._is_model(vector, start):
            part = sum(self._tensors(size))
            vector[:part] += start[:part]
        vectors = {**update.vectors, self.delivers: vector}
        whole = replace(update, vectors=vectors, numbers=_unmarked(update.numbers))
        self._saves_up[size_of(update)] = size_of(whole) - size_of(update)
        return whole, None

    @property
    def saved_up(self) -> int:
        """Bytes, of all uploads that have ended: an update may need several, as after a fault."""
        return sum(self._saves_up.get(size, 0) * count for size, count in self._uploads.items())

    def model_bytes(self) -> int:
        """Return the bytes of the larger of a model that is sent down and its change that is
        sent up.
        """
        tensors, size = self._tensors(self.layout.size), self.layout.size
        return max(
            ELEMENT_BYTES * (size if way is None else _elements(way, tensors, size))
            for way in (self.up, self.down)
        )

    # ------------------------------------------------------------------ both
    def _is_model(self, vector: np.ndarray, start: np.ndarray) -> bool:
        return self.delivers == MODEL and vector.size == start.size

    def _tensors(self, size: int) -> tuple[int, ...]:
        """The lengths of the tensors that are packed of a vector of ``size`` elements: those of a
        model's trainable part; else the first of a sub-model's elements, or all, are one.
        """
        layout = self.layout
        if size == layout.size or (size == layout.parameters and not self.submodel):
            return tuple(entry.size for entry in layout.entries if entry.kind == "parameter")
        has_buffers = self.delivers == MODEL and layout.parameters < layout.size
        return (min(self.submodel, size) if has_buffers else size,)

    def _unpacked(self, way: Compressor, carrier: np.ndarray, size: int) -> np.ndarray:
        tensors = self._tensors(size)
        expected = _elements(way, tensors, size)
        if carrier.size != expected:
            raise ValueError(f"{carrier.size} elements, expected {expected}")
        packed = carrier.view(np.uint8)[: way.packed_bytes(tensors)]
        return _joined(way.unpack(packed, tensors), carrier[expected - size + sum(tensors) :])


def _elements(way: Compressor, tensors: tuple[int, ...], size: int) -> int:
    """The float32 elements that a vector of ``size`` elements takes if ``tensors`` are packed."""
    return -(-way.packed_bytes(tensors) // ELEMENT_BYTES) + size - sum(tensors)


def _joined(packed: np.ndarray, rest: np.ndarray) -> np.ndarray:
    """Return ``packed`` and then ``rest`` as one vector."""
    return aligned_copy(np.concatenate((packed, rest))) if rest.size else packed


def _carrier(packed: np.ndarray) -> np.ndarray:
    """Return bytes as a float32 vector, filled up with zeros. Only its bytes have a meaning."""
    whole = aligned(packed.size + -packed.size % ELEMENT_BYTES, np.uint8)
    whole[: packed.size], whole[packed.size :] = packed, 0
    return whole.view(np.float32)


def _unmarked(numbers: Mapping[str, float]) -> dict[str, float]:
    return {name: value for name, value in numbers.items() if not name.startswith(MARK)}
