"""The edge's half of an algorithm. Every member is optional: the plain rule is local SGD that
sends its weights.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from edgefl.vectors import Layout


class LocalRule:
    """What an edge does differently from plain SGD.

    ``run`` is a ``LocalRun`` (edgefl.edges.local_run): ``run.start`` and ``run.weights`` are flat
    tensors over the whole layout, ``run.parameters`` the number of trainable elements at their
    front, ``run.step`` the steps done, ``run.steps`` the steps planned, ``run.task`` the task with
    its numbers, ``run.layout`` the vectors' layout, ``run.memory`` the dict of vectors that the
    edge keeps between tasks.
    """

    remembers: tuple[str, ...] = ()  # names of vectors kept on the edge between tasks
    # False: one gradient at the received model, no step. Its batch has training.batch_size samples,
    # drawn uniformly: without replacement as long as the device has others left
    moves: bool = True
    # what training does after a request: stand still until the answer, or "train_on": then it may
    # be taken back to there
    on_request: str = "wait"
    # what ``extra_loss`` gets of the model: its "outputs", or "features": what enters its last
    # linear layer, flat
    sees: str = "outputs"
    work: float = 1.0  # cost of a step as a multiple of a plain one, for the emulated compute time

    def __init__(self, options: Any) -> None:
        self.options = options

    def unpack(self, task: Any, layout: Layout) -> np.ndarray:
        """The model to start from, over the whole layout, made from what came down."""
        weights: np.ndarray = task.vectors["weights"]
        return weights

    def begin(self, run: Any) -> None:
        """Called once, before the first step."""

    def extra_loss(self, run: Any, batch: tuple[Any, Any], output: Any, forward: Any) -> Any | None:
        """A term added to the batch loss, or None. ``forward(weights, inputs)``: what another
        flat vector gives in ``output``'s place.
        """
        return None

    def adjust(self, run: Any, gradient: Any) -> None:
        """Change the flat gradient (trainable elements only) in place before the step."""

    def checkpoint(self, run: Any) -> int | None:
        """The step before which to ask for a fresher global model, or None. Asked once, after
        ``begin``.
        """
        return None

    def merge(self, run: Any, fresh: np.ndarray, version: int) -> None:
        """Put a fresher global model (flat, version > the task's) into ``run.weights``, in place.

        ``run.probe(weights)`` gives the loss of the batch to come at other weights, and its
        gradient (trainable elements).
        """

    def payload(self, run: Any) -> tuple[dict[str, np.ndarray], dict[str, float]]:
        """What goes up: named float32 vectors and named numbers. The frame adds samples, steps
        and loss to the numbers.
        """
        return {"weights": run.weights.numpy()}, {}
