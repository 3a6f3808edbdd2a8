"""The edge side of an algorithm.

Every member is optional: the default is local SGD, and the edge sends its weights.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from edgefl.vectors import Layout


def owns(rule: LocalRule, hook: str) -> bool:
    """Whether the rule has such a hook of its own."""
    return hook in vars(rule) or getattr(type(rule), hook) is not getattr(LocalRule, hook)


class LocalRule:
    """What an edge does differently from plain SGD.

    ``run`` is a ``LocalRun`` (edgefl.edges.training): ``run.start`` and ``run.weights`` are flat
    tensors over the whole layout, ``run.parameters`` the number of trainable elements at their
    front, ``run.step`` the steps done, ``run.steps`` the steps planned, ``run.task`` the task with
    its numbers, ``run.layout`` the vectors' layout, ``run.memory`` the dict of vectors that the
    edge keeps between tasks. ``run.weights_array()`` is ``run.weights`` as a numpy array; a rule
    that asks for no tensor needs no torch. On a GPU (``training.device``) all tensors are there:
    ``tensor.numpy(force=True)`` copies one from it, and on the CPU shares its memory.
    """

    remembers: tuple[str, ...] = ()  # names of vectors kept on the edge between tasks
    # False: one gradient at the received model, and no step. The batch has training.batch_size
    # samples, drawn uniformly, without replacement while the device has enough samples
    moves: bool = True
    # what training does after a request: "wait" for the answer, or "train_on"; then the run may be
    # taken back to the request
    on_request: str = "wait"
    # what ``extra_loss`` gets from the model: its "outputs", or its "features": the flat input of
    # its last linear layer
    sees: str = "outputs"
    # emulated compute time of a step, as a multiple of a plain SGD step
    work: float = 1.0

    def __init__(self, options: Any) -> None:
        self.options = options

    def unpack(self, task: Any, layout: Layout) -> np.ndarray:
        """Return the model to start from, over the whole layout, from the received task."""
        weights: np.ndarray = task.vectors["weights"]
        return weights

    def begin(self, run: Any) -> None:
        """Prepare the run. Called once, before the first step."""

    def extra_loss(self, run: Any, batch: tuple[Any, Any], output: Any, forward: Any) -> Any | None:
        """Return a term that is added to the batch loss, or None.

        ``forward(weights, inputs)`` computes ``output`` for another flat vector of weights.
        """
        return None

    @property
    def proximal_weight(self) -> float:
        """mu of a proximal term (mu / 2) ||w - w_start||^2 that is added to the loss.

        Its gradient mu (w - w_start) is added before ``adjust``. Normalisation buffers are not
        pulled.
        """
        return 0.0

    def adjust(self, run: Any, gradient: Any) -> None:
        """Change the flat gradient (trainable elements only) in place before the step."""

    def checkpoint(self, run: Any) -> int | None:
        """Return the step before which to ask for a fresher global model, or None.

        Called once, after ``begin``.
        """
        return None

    def merge(self, run: Any, fresh: np.ndarray, version: int) -> None:
        """Merge a fresher global model (flat, version > the task's) into ``run.weights``, in place.

        ``run.probe(weights)`` returns the loss of the next batch at other weights, and its gradient
        (trainable elements).
        """

    def payload(self, run: Any) -> tuple[dict[str, np.ndarray], dict[str, float]]:
        """Return what the edge sends: named float32 vectors and named numbers.

        The edge adds samples, steps and loss to the numbers.
        """
        return {"weights": run.weights_array()}, {}
