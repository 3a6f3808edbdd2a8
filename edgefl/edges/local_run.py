"""One training task in progress, as plain data.

This module imports torch only for who asks for tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from edgefl.edges.failure import BEFORE, TrainingFailure, training_failure
from edgefl.edges.training_plan import TaskLike, batches, pass_samples, samples_after
from edgefl.strategies.base.local_rule import LocalRule
from edgefl.vectors import Layout, aligned_copy

if TYPE_CHECKING:
    import torch

    from edgefl.edges.optimizers import Optimizer
    from edgefl.models.module_state import Changes
    from edgefl.models.torch_device import RandomStates


@dataclass(slots=True, eq=False, kw_only=True)
class Course:
    """The progress of one task on one device, in steps and in samples.

    A run that has failed does not continue and has no outcome.
    """

    task: TaskLike
    local_samples: int
    batch_size: int
    steps: int
    batches_per_epoch: int | None = None  # None: an epoch is a pass over the samples
    drop_last: bool = False  # a pass leaves out its last batch if that is smaller
    # every batch has batch_size samples; a device with fewer samples repeats them
    whole_batches: bool = False
    step: int = 0
    checkpoint: int | None = None  # the step before which the rule wants a fresher model
    failure: TrainingFailure | None = None
    # tokens processed after 0, 1, ... steps, if the device's speed is in tokens
    tokens: Sequence[int] | None = None

    @property
    def steps_per_epoch(self) -> int:
        return self.batches_per_epoch or batches(self.pass_samples, self.batch_size)

    @property
    def pass_samples(self) -> int:
        """Samples that a pass uses."""
        return pass_samples(self.local_samples, self.batch_size, self.drop_last)

    @property
    def samples(self) -> int:
        """Samples processed so far."""
        return self.samples_at(self.step)

    def samples_at(self, step: int) -> int:
        """Samples processed after ``step`` steps. The last batch of a pass may be smaller."""
        if self.whole_batches:
            return step * self.batch_size
        return samples_after(step, self.pass_samples, self.batch_size)

    def samples_until(self, step: int) -> int:
        """Samples to process from here to ``step``."""
        return self.samples_at(step) - (self.samples if self.step else 0)

    def work_until(self, step: int) -> int:
        """Samples or tokens to process from here to ``step``, as the device's speed counts them.

        The emulated computing time depends on it.
        """
        if self.tokens is None:
            return self.samples_until(step)
        return self.tokens[step] - self.tokens[self.step]


@dataclass(frozen=True, slots=True, eq=False)
class Merge:
    """A fresher model that is merged into a run after ``step`` steps."""

    step: int
    weights: np.ndarray
    version: int


@dataclass(slots=True, eq=False, kw_only=True)
class LocalRun(Course):
    """One task on one device, with its weights. ``LocalRule`` says what an algorithm may change.

    ``start`` may share memory with the received vector and is never written to. ``weights`` is the
    run's own vector and always current. All tensors but ``random_states`` are on the device of
    ``training.device``; ``tensor.numpy(force=True)`` copies one from a GPU. On the CPU, tensors are
    made from the arrays ``received`` and ``trained``, whose memory they share, when they are first
    asked for.
    """

    layout: Layout
    received: np.ndarray
    # None: the run is on a GPU, and ``on_gpu`` has (start, weights)
    trained: np.ndarray | None
    on_gpu: tuple[torch.Tensor, torch.Tensor] | None = None
    # copies of the vectors that the rule remembers; Trainer.remembered returns them
    memory: dict[str, torch.Tensor]
    learning_rate: float
    order: np.ndarray  # sample indices, epoch after epoch
    optimizer: Optimizer
    counters: list[torch.Tensor]
    draw_seed: Callable[[], int]  # of torch's generators, for models that draw (dropout)
    states: RandomStates | None = None  # of these generators, once they are asked for
    # what the run has changed in the module beside ``weights`` and ``counters``, while it waits
    changes: Changes | None = None
    loss_sum: float = 0.0
    coming: Merge | None = None  # ``Trainer.advance`` will merge it
    gradient: torch.Tensor | None = None  # set at the end of a run whose rule does not move
    # each step is w <- w - learning_rate g, or SGD's with momentum
    plain_sgd: bool = True
    # set while a fresher model is merged, see ``LocalRule.merge``
    probe: Callable[[torch.Tensor], tuple[float, torch.Tensor]] | None = None
    _order: torch.Tensor | None = field(default=None, repr=False)
    _tensors: tuple[torch.Tensor, torch.Tensor] | None = field(default=None, repr=False)

    @property
    def parameters(self) -> int:
        """Number of trainable elements at the front of every vector."""
        return self.layout.parameters

    @property
    def start(self) -> torch.Tensor:
        return self._start_and_weights()[0]

    @property
    def weights(self) -> torch.Tensor:
        return self._start_and_weights()[1]

    @property
    def trainable(self) -> torch.Tensor:
        """The trainable elements of ``weights``, a view."""
        return self.weights[: self.parameters]

    def weights_array(self) -> np.ndarray:
        """``weights`` as an array: on the CPU the same memory, from a GPU a copy."""
        if self.trained is not None:
            return self.trained
        copied: np.ndarray = self.weights.numpy(force=True)
        return copied

    @property
    def random_states(self) -> RandomStates:
        """The states of torch's generators."""
        if self.states is None:
            from edgefl.models.torch_device import seeded

            self.states = seeded(self.draw_seed(), self.weights.device)
        return self.states

    def order_from(self, first: int, stop: int) -> torch.Tensor:
        """Sample indices from sample ``first`` to ``stop`` of the run, on its device."""
        import torch

        if self._order is None:
            self._order = torch.from_numpy(self.order).to(self.weights.device)
        return self._order[first:stop]

    def copied(self, **changes: Any) -> LocalRun:
        """Return a copy with vectors of its own, which do not change if this run continues."""
        vectors: dict[str, Any] = {"_tensors": None, "_order": self._order}
        if self.trained is None:
            vectors["on_gpu"] = (self.start, self.weights.clone())
        else:
            vectors["trained"] = aligned_copy(self.trained)
        return replace(self, **vectors, **changes)

    def _start_and_weights(self) -> tuple[torch.Tensor, torch.Tensor]:
        if self.on_gpu is not None:
            return self.on_gpu
        if self._tensors is None:
            from edgefl.models.torch_device import one_thread
            from edgefl.models.workspace import wrap

            one_thread()
            assert self.trained is not None
            self._tensors = wrap(self.received), wrap(self.trained)
        return self._tensors


def set_checkpoint(run: Course, rule: LocalRule) -> None:
    """Ask the rule before which step it wants a fresher model, and store the answer."""
    try:
        run.checkpoint = rule.checkpoint(run)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        run.failure = run.failure or training_failure(error, BEFORE, type(rule).__module__)
