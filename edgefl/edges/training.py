"""Local training of one task: its plan, its run, the optimizers, and the trainer.

A trainer works in slices: SGD or AdamW on flat vectors, with the hooks of a ``LocalRule``. Torch is
imported only where tensors are needed.
"""

from __future__ import annotations

import math
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import pairwise
from operator import index
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np

from edgefl.by_name import ByName
from edgefl.errors import UserError, own_place, told
from edgefl.protocol.messages import MOST_REASON, MOST_TRACE, Assignment, Fresh, Pushed
from edgefl.strategies.base.strategy import LocalRule, owns, takes_pushes
from edgefl.streams import Streams
from edgefl.vectors import Layout, aligned, aligned_copy, is_finite, read_only

if TYPE_CHECKING:
    import torch

    from edgefl.compiled.step import CompiledStep
    from edgefl.data.dataset import NormalisedRows
    from edgefl.models.module_state import Changes
    from edgefl.models.torch_device import RandomStates
    from edgefl.models.workspace import Workspace


BEFORE = "before its first step"
PUSHES = "pushes"  # the number of an update: how many pushed models are in it


@dataclass(frozen=True, slots=True)
class TrainingFailure:
    """Why a run has no outcome: an algorithm, a model or its data may raise an exception.

    The edge goes on: its task has failed, and it reports that to the coordinator.
    ``reason``: the step, its batch and the exception in one line. ``trace``: the traceback.
    """

    reason: str
    trace: str


def training_failure(error: BaseException, where: str, module: str) -> TrainingFailure:
    """Describe an exception in training. Both texts are short enough for their message.

    ``where``: where in the run it happened. ``module``: the algorithm's module; the reason names
    its line if the traceback has one.
    """
    text = str(error) if isinstance(error, UserError) else told(error, module)
    line = " ".join(f"{where}: {text}{own_place(error, module)}".split())
    trace = _bytes("".join(traceback.format_exception(error)))
    return TrainingFailure(_text(_bytes(line)[:MOST_REASON]), _text(trace[-MOST_TRACE:]))


def _bytes(text: str) -> bytes:
    return text.encode(errors="backslashreplace")


def _text(data: bytes) -> str:
    return data.decode(errors="ignore")  # the first or last character may be cut


@contextmanager
def guarded(run: Course, rule: LocalRule, where: str | None = None) -> Iterator[None]:
    """An exception of the rule, the model or the loss becomes the run's ``failure``.

    The first one counts. ``where``: as in ``training_failure``; None: in the present step.
    """
    try:
        yield
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # also SystemExit
        if run.failure is None:
            place = _this_step(run) if where is None else where
            run.failure = training_failure(error, place, type(rule).__module__)


def _this_step(run: Course) -> str:
    size = run.samples_until(run.step + 1)
    batch = f"batch of {size} sample{'' if size == 1 else 's'}"
    return f"step {run.step + 1} of {run.steps}, {batch}"


@dataclass(frozen=True, slots=True)
class Schedule:
    """A factor of the learning rate for each step, the first of which has number 0.

    It grows evenly over ``warmup_steps``, where the step after them has factor 1. Then it falls to
    ``end_share`` at step ``total_steps`` and stays there; ``"constant"``: it stays 1.
    ``total_steps`` None: the steps of the task.
    """

    kind: Literal["constant", "linear", "cosine"] = "constant"
    warmup_steps: int = 0
    total_steps: int | None = None
    end_share: float = 0.0

    def factor(self, step: int, task_steps: int) -> float:
        """Return the factor at ``step``; ``task_steps``: steps of the whole task."""
        if step < self.warmup_steps:
            return (step + 1) / (self.warmup_steps + 1)
        if self.kind == "constant":
            return 1.0
        total = task_steps if self.total_steps is None else self.total_steps
        done = min((step - self.warmup_steps) / max(total - self.warmup_steps, 1), 1.0)
        left = 1.0 - done if self.kind == "linear" else (1.0 + math.cos(math.pi * done)) / 2
        return self.end_share + (1.0 - self.end_share) * left


# names of an optimizer's state in the edge's memory; no rule uses them
MOMENTS, STEPS = ("optimizer first", "optimizer second"), "optimizer steps"
MOST_EPOCHS = 100_000  # of one task


def batches(samples: int, batch_size: int) -> int:
    """Steps of a pass over ``samples``, at least 1."""
    return max(1, -(-samples // batch_size))


def pass_samples(samples: int, batch_size: int, drop_last: bool) -> int:
    """Samples that a pass over ``samples`` uses: with ``drop_last``, those of its whole batches.

    If there is no whole batch, they are all samples, in one batch.
    """
    return samples - samples % batch_size if drop_last and samples > batch_size else samples


def samples_after(steps: int, samples: int, batch_size: int) -> int:
    """Samples processed in ``steps`` steps of passes over ``samples``.

    The last batch of a pass may be smaller.
    """
    passes, rest = divmod(steps, batches(samples, batch_size))
    return passes * samples + min(rest * batch_size, samples)


@lru_cache(maxsize=1024)
def batch_sizes(first: int, stop: int, samples: int, batch_size: int) -> np.ndarray:
    """Samples of each step from ``first`` to before ``stop``, int64; all tasks of a device ask."""
    ends = [samples_after(step, samples, batch_size) for step in range(first, stop + 1)]
    sizes = np.diff(np.array(ends, dtype=np.int64))
    read_only([sizes])
    return sizes


@dataclass(frozen=True, slots=True)
class TrainingPlan:
    """Steps of SGD or AdamW: epochs x ceil(samples / batch_size) of them.

    A task's ``numbers`` may override or scale epochs and learning rate.
    ``drop_last``: epochs x floor(samples / batch_size), at least one for an epoch.
    With ``batches_per_epoch``: epochs x batches_per_epoch steps, along shuffled passes.
    A rule that only computes one gradient uses a whole batch, see ``Course.whole_batches``.
    ``keeps_state``: the optimizer goes on where it was at the end of the edge's last task.
    ``micro_batch_size``: samples of one forward and backward pass; None: the whole batch.
    """

    epochs: int
    batch_size: int
    learning_rate: float
    weight_decay: float = 0.0
    momentum: float = 0.0
    optimizer: Literal["sgd", "adamw"] = "sgd"
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8
    keeps_state: bool = False
    micro_batch_size: int | None = None
    schedule: Schedule | None = None  # None: the learning rate stays as it is
    batches_per_epoch: int | None = None  # None: an epoch is a pass over the samples
    drop_last: bool = False

    @property
    def is_plain_sgd(self) -> bool:
        """Whether an edge's change of weights is the sum of its gradients times one learning rate.

        With momentum m it is up to 1 / (1 - m) times as large.
        """
        return self.optimizer == "sgd" and self.schedule is None and not self.momentum

    @property
    def remembers(self) -> tuple[str, ...]:
        """Names of the vectors that an edge may keep of the optimizer between tasks."""
        return (*MOMENTS, STEPS) if self.keeps_state else ()

    def epochs_of(self, task: Assignment) -> int:
        """Epochs of ``task``: its own number or the plan's, times its scale, rounded, at least 1.

        ValueError if the number is below 1 before scaling, or above MOST_EPOCHS after it.
        """
        epochs = int(task.numbers.get("epochs", self.epochs))
        if epochs < 1:
            raise ValueError(f"task {task.number} asks for {epochs} epochs, expected at least 1")
        scaled = max(1, round(epochs * task.numbers.get("epochs_scale", 1.0)))
        if scaled > MOST_EPOCHS:  # the order of samples needs memory for all epochs
            raise ValueError(
                f"task {task.number} asks for {scaled:.3g} epochs, expected at most {MOST_EPOCHS}"
            )
        return scaled

    def learning_rate_of(self, task: Assignment) -> float:
        """Learning rate of ``task``: its own or the plan's, times its scale."""
        return float(task.numbers.get("learning_rate", self.learning_rate)) * task.numbers.get(
            "learning_rate_scale", 1.0
        )

    def steps(self, task: Assignment, rule: LocalRule, samples: int) -> int:
        """Steps of ``task`` on a device with ``samples`` samples, at most its ``most_steps``.

        ValueError if that number is below 1.
        """
        steps = self.epochs_of(task) * self.steps_per_epoch(samples) if rule.moves else 1
        most = task.numbers.get("most_steps", steps)
        if most < 1:
            raise ValueError(
                f"task {task.number} asks for at most {most:g} steps, expected at least 1"
            )
        return int(min(steps, most))

    def steps_per_epoch(self, samples: int) -> int:
        return self.batches_per_epoch or batches(self.pass_samples(samples), self.batch_size)

    def pass_samples(self, samples: int) -> int:
        """Samples that a pass uses on a device with ``samples``."""
        return pass_samples(samples, self.batch_size, self.drop_last)

    def task_samples(self, samples: int) -> int:
        """Samples that a task of the plan's own epochs processes on a device with ``samples``."""
        steps = self.epochs * self.steps_per_epoch(samples)
        return samples_after(steps, self.pass_samples(samples), self.batch_size)


@dataclass(slots=True, eq=False, kw_only=True)
class Course:
    """The progress of one task on one device, in steps and in samples.

    A run that has failed does not continue and has no outcome.
    """

    task: Assignment
    plan: TrainingPlan
    local_samples: int
    steps: int
    # every batch has plan.batch_size samples; a device with fewer samples repeats them
    whole_batches: bool = False
    step: int = 0
    # the steps before which the rule wants fresher models, each later than the one before
    checkpoints: tuple[int, ...] = ()
    failure: TrainingFailure | None = None
    # tokens processed after 0, 1, ... steps, if the device's speed is in tokens
    tokens: Sequence[int] | None = None

    @property
    def checkpoint(self) -> int | None:
        """The first of ``checkpoints``; None: there is none."""
        return self.checkpoints[0] if self.checkpoints else None

    @property
    def steps_per_epoch(self) -> int:
        return self.plan.steps_per_epoch(self.local_samples)

    @property
    def pass_samples(self) -> int:
        """Samples that a pass uses."""
        return self.plan.pass_samples(self.local_samples)

    @property
    def samples(self) -> int:
        """Samples processed so far."""
        return self.samples_at(self.step)

    def samples_at(self, step: int) -> int:
        """Samples processed after ``step`` steps. The last batch of a pass may be smaller."""
        if self.whole_batches:
            return step * self.plan.batch_size
        return samples_after(step, self.pass_samples, self.plan.batch_size)

    def samples_until(self, step: int) -> int:
        """Samples to process from here to ``step``."""
        return self.samples_at(step) - (self.samples if self.step else 0)

    def work_until(self, step: int) -> int:
        """Samples or tokens to process from here to ``step``, as the device's speed counts them.

        The emulated computing time depends on it.
        """
        return self.work_between(self.step, step)

    def work_between(self, first: int, step: int) -> int:
        """Samples or tokens to process from step ``first`` to ``step``, as in ``work_until``."""
        if self.tokens is None:
            return self.samples_at(step) - (self.samples_at(first) if first else 0)
        return self.tokens[step] - self.tokens[first]


@dataclass(frozen=True, slots=True, eq=False)
class Merge:
    """A model that is merged into a run after ``step`` steps: a fresher one, or a pushed one.

    A run that has done more steps merges it at once, if a step follows.
    """

    step: int
    model: Fresh | Pushed


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
    # ``Trainer.advance`` will merge them, the first one first
    coming: deque[Merge] = field(default_factory=deque)
    pushes: int = 0  # pushed models that the rule got
    # a copy as of the last merge, if the rule takes pushed models: see ``Trainer.certain``
    mark: LocalRun | None = None
    gradient: torch.Tensor | None = None  # set at the end of a run whose rule does not move
    # set while a model is merged, see ``LocalRule.merge`` and ``pushed``
    pushed: Mapping[str, np.ndarray] | None = None
    probe: Callable[[torch.Tensor], tuple[float, torch.Tensor]] | None = None
    _order: torch.Tensor | None = field(default=None, repr=False)
    _tensors: tuple[torch.Tensor, torch.Tensor] | None = field(default=None, repr=False)

    @property
    def parameters(self) -> int:
        """Number of trainable elements at the front of every vector."""
        return self.layout.parameters

    @property
    def plain_sgd(self) -> bool:
        """Whether each step is w <- w - learning_rate g."""
        return self.plan.is_plain_sgd

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
        vectors: dict[str, Any] = {"_tensors": None, "_order": self._order, "mark": None}
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


def set_checkpoints(run: Course, rule: LocalRule) -> None:
    """Ask the rule before which steps it wants fresher models, and store the answer."""
    with guarded(run, rule, BEFORE):
        found = rule.checkpoint(run)
        if found is None:
            return
        steps = tuple(map(index, found if isinstance(found, Iterable) else (found,)))
        if any(step < 0 for step in steps) or any(after <= step for step, after in pairwise(steps)):
            raise ValueError(
                f"checkpoint returned {', '.join(map(str, steps))}: expected steps from 0 on, each"
                " later than the one before"
            )
        run.checkpoints = steps


def asks_now(run: Course, rule: LocalRule) -> bool:
    """Whether the rule asks for a fresher model at the run's present step."""
    with guarded(run, rule, f"asks, after step {run.step} of {run.steps}"):
        return bool(rule.asks(run))
    return False


def sample_order(
    streams: Streams, edge: str, task: int, members: np.ndarray, course: Course
) -> np.ndarray:
    """The indices of samples: as many shuffled passes over ``members`` as the steps need."""
    rng = streams.rng("batches", edge, task)
    batch, steps = course.plan.batch_size, course.steps
    if course.whole_batches:
        used, passes = len(members), -(-steps * batch // len(members))
    else:
        used = course.pass_samples
        passes = -(-steps // batches(used, batch))
    return np.concatenate([rng.permutation(members)[:used] for _ in range(passes)])


def tokens_by_step(order: np.ndarray, lengths: np.ndarray, course: Course) -> Sequence[int]:
    """The tokens that are processed after 0, 1, ... steps: with padding to the longest of a batch.

    ``lengths``: tokens of each training sample, by index.
    """
    ends = [course.samples_at(step) for step in range(course.steps + 1)]
    sizes = [(end - first) * int(lengths[order[first:end]].max()) for first, end in pairwise(ends)]
    return [0, *np.cumsum(sizes, dtype=np.int64).tolist()]


class Optimizer(Protocol):
    """Moves the trainable elements of a run, step by step.

    Its state starts anew with each task, or stays on the edge like the vectors that a rule
    remembers.
    """

    steps: int  # done so far, in earlier tasks too if the state is kept

    def step(self, weights: torch.Tensor, gradient: torch.Tensor, learning_rate: float) -> None:
        """Move ``weights`` in place. ``gradient`` is not changed."""
        ...

    def copied(self) -> Optimizer:
        """Copy the state."""
        ...

    def moments(self) -> tuple[torch.Tensor, ...]:
        """The state but for ``steps``: at most two vectors."""
        ...


@dataclass(slots=True)
class SGD:
    """w <- w - rate v, with v <- momentum v + g; without momentum (``velocity`` None) v = g."""

    momentum: float
    velocity: torch.Tensor | None
    steps: int = 0

    def step(self, weights: torch.Tensor, gradient: torch.Tensor, learning_rate: float) -> None:
        direction = gradient
        if self.velocity is not None:
            direction = self.velocity.mul_(self.momentum).add_(gradient)
        weights.add_(direction, alpha=-learning_rate)
        self.steps += 1

    def copied(self) -> SGD:
        velocity = None if self.velocity is None else self.velocity.clone()
        return SGD(self.momentum, velocity, self.steps)

    def moments(self) -> tuple[torch.Tensor, ...]:
        return () if self.velocity is None else (self.velocity,)


def optimizer(
    plan: TrainingPlan, tensor: Callable[[], torch.Tensor], memory: Mapping[str, np.ndarray]
) -> Optimizer:
    """The optimizer of a new run. It goes on from the edge's ``memory`` if the plan keeps state.

    ``tensor()``: the trainable elements; SGD without momentum does not ask for them.
    """
    made: Optimizer
    if plan.optimizer == "adamw":
        from edgefl.models.adam import Adam

        first, second = (tensor().new_zeros(len(tensor())) for _ in range(2))
        made = Adam(first, second, 0, plan.beta1, plan.beta2, plan.epsilon, plan.weight_decay)
    else:
        velocity = tensor().new_zeros(len(tensor())) if plan.momentum else None
        made = SGD(plan.momentum, velocity)
    if plan.keeps_state and STEPS in memory:
        from edgefl.models.workspace import wrap

        for name, vector in zip(MOMENTS, made.moments()):
            vector.copy_(wrap(memory[name]))
        made.steps = int(memory[STEPS][0])
    return made


def kept_state(plan: TrainingPlan, of: Optimizer) -> dict[str, np.ndarray]:
    """Copies of what the edge keeps of an optimizer; empty if it keeps nothing.

    A state that is not finite is not kept: the server refuses its update, so it must not affect
    later tasks either.
    """
    moments = of.moments()
    if not plan.keeps_state or not all(bool(vector.isfinite().all()) for vector in moments):
        return {}
    kept = {name: aligned_copy(of.numpy(force=True)) for name, of in zip(MOMENTS, moments)}
    # float32 has all whole numbers up to 16 million
    return kept | {STEPS: aligned_copy(np.array([of.steps], dtype=np.float32))}


MOST_STEPS = 64  # of a compiled call, whose samples may be normalised for it


@dataclass(frozen=True, slots=True, eq=False)
class Compiled:
    """The compiled step of the model, and all training samples."""

    step: CompiledStep
    labels: np.ndarray
    inputs: NormalisedRows

    @staticmethod
    def takes(rule: LocalRule) -> str | None:
        """Say why tasks with this rule need torch; None: they do not."""
        if owns(rule, "extra_loss") or rule.sees != LocalRule.sees:
            return "its local rule adds a term to the loss"
        return None

    @staticmethod
    def is_all(rule: LocalRule) -> bool:
        """Whether the steps are all that tasks with this rule compute, so that torch is not even
        loaded.
        """
        hooks = ("unpack", "begin", "extra_loss", "adjust", "merge", "pushed", "asks", "payload")
        return not rule.remembers and rule.moves and not any(owns(rule, hook) for hook in hooks)


class Trainer:
    """Trains on one device's samples.

    The samples are the rows ``members`` of ``inputs`` and ``targets`` (all rows if None). An
    exception of the rule, the model or the loss becomes the run's ``failure``. Trainers of one
    process may share ``workspace``, ``inputs`` and ``targets``, and their runs may advance in turn,
    slice by slice. ``workspace``, ``inputs`` and ``targets`` may be functions that make them: they
    are called when torch is needed, which it is not for a compiled step.
    """

    def __init__(
        self,
        workspace: Workspace | Callable[[], Workspace],
        inputs: torch.Tensor | Callable[[], torch.Tensor],
        targets: torch.Tensor | Callable[[], torch.Tensor],
        loss: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
        plan: TrainingPlan,
        streams: Streams,
        edge: str,
        members: np.ndarray | None = None,
        lengths: np.ndarray | None = None,
        terms: Callable[[torch.Tensor], int] = len,
        compiled: Compiled | None = None,
        layout: Layout | None = None,
    ) -> None:
        """``lengths``: tokens of each of the samples, if the device's speed is in tokens.

        ``terms(targets)``: of how many terms ``loss`` is the mean. ``compiled``: what computes the
        steps of rules that it takes, in place of torch. ``layout``: of the model, if it is known
        without the workspace.
        """
        self.compiled, self._layout = compiled, layout
        self.lengths, self.terms = lengths, terms
        self._workspace, self._inputs, self._targets = workspace, inputs, targets
        self.loss = loss
        self.plan, self.streams, self.edge = plan, streams, edge
        rows = np.arange(len(self.inputs)) if members is None else members
        self.members: np.ndarray = np.asarray(rows, dtype=np.int64)
        if not len(self.members):
            raise ValueError(f"edge {edge} has no samples to train on")

    @property
    def workspace(self) -> Workspace:
        return self._workspace() if callable(self._workspace) else self._workspace

    @property
    def inputs(self) -> torch.Tensor:
        return self._inputs() if callable(self._inputs) else self._inputs

    @property
    def targets(self) -> torch.Tensor:
        return self._targets() if callable(self._targets) else self._targets

    @property
    def layout(self) -> Layout:
        return self._layout or self.workspace.layout

    def begin(
        self, task: Assignment, rule: LocalRule, memory: Mapping[str, np.ndarray]
    ) -> LocalRun:
        """Make a run at its first step, and call the rule's ``begin`` and ``checkpoint``.

        ValueError if the task's numbers are invalid.
        """
        compiled, received = self._compiled_for(rule), aligned(self.layout.size)
        received[:] = 0
        run = LocalRun(
            task=task,
            layout=self.layout,
            received=received,
            trained=None,
            memory={
                name: self.workspace.placed(aligned_copy(memory[name]))
                for name in rule.remembers
                if name in memory
            },
            plan=self.plan,
            local_samples=len(self.members),
            steps=self.plan.steps(task, rule, len(self.members)),
            whole_batches=not rule.moves,
            learning_rate=self.plan.learning_rate_of(task),
            order=np.zeros(0, dtype=np.int64),
            optimizer=SGD(0.0, None),
            counters=self._fresh_counters(compiled),
            draw_seed=lambda: int(
                self.streams.rng("torch", self.edge, task.number).integers(2**63)
            ),
        )
        with guarded(run, rule, BEFORE):
            vector = self._checked(rule.unpack(task, self.layout))
            run.received = np.ascontiguousarray(vector, np.float32)
        # a workspace on a GPU is there already
        if not callable(self._workspace) and self._workspace.device.type != "cpu":
            start = self._workspace.placed(run.received)
            run.on_gpu = start, start.clone()  # the model to start from and a copy of it to train
        else:
            run.trained = aligned_copy(run.received)
        run.optimizer = optimizer(self.plan, lambda: run.trainable, memory)
        self._draw(run)
        with guarded(run, rule, BEFORE):
            rule.begin(run)
        set_checkpoints(run, rule)
        return run

    def _draw(self, run: LocalRun) -> None:
        """Draw the order of samples."""
        run.order = sample_order(self.streams, self.edge, run.task.number, self.members, run)
        if self.lengths is not None:
            run.tokens = tokens_by_step(run.order, self.lengths, run)

    def _fresh_counters(self, compiled: Compiled | None) -> list[torch.Tensor]:
        return [] if compiled else self.workspace.fresh_counters()

    def advance(
        self,
        run: LocalRun,
        rule: LocalRule,
        until_step: int | None = None,
        deadline: Callable[[], bool] | None = None,
    ) -> bool:
        """Train to ``until_step`` (None: to the end), or until ``deadline()`` is true.

        ``deadline()`` is called after each step. Returns True if the run has reached ``until_step``
        or has failed.
        """
        stop = run.steps if until_step is None else min(until_step, run.steps)
        while run.coming and run.coming[0].step <= stop:
            if not self._advance(run, rule, run.coming[0].step, deadline):
                return False
            self.merge(run, rule, run.coming.popleft())
            if run.failure is None and takes_pushes(rule):
                run.mark = self.kept(run)
        return self._advance(run, rule, stop, deadline)

    def _advance(
        self, run: LocalRun, rule: LocalRule, stop: int, deadline: Callable[[], bool] | None
    ) -> bool:
        compiled = self._compiled_for(rule)
        # the compiled steps go on without a look at each gradient, so nothing draws
        plain = isinstance(run.optimizer, SGD) and rule.moves and not owns(rule, "adjust")
        with ExitStack() as stack:
            if run.step < stop and run.failure is None:
                if compiled is None:
                    stack.enter_context(self._in_module(run, rule))
                if compiled is None or not plain:
                    stack.enter_context(self._drawing(run))
                stack.enter_context(guarded(run, rule))
                while run.step < stop:
                    if compiled is None:
                        self._step(run, rule)
                    elif plain:
                        # the same numbers in one call as in one for each step
                        steps = MOST_STEPS if deadline is None else 1
                        self._compiled_steps(compiled, run, rule, min(stop, run.step + steps))
                    else:
                        value, gradient = self._compiled_gradient(
                            compiled, run, run.weights_array()
                        )
                        self._finish_step(run, rule, value, gradient)
                    if deadline is not None and deadline():
                        break
        return run.step >= stop or run.failure is not None

    @contextmanager
    def _in_module(self, run: LocalRun, rule: LocalRule) -> Iterator[None]:
        """Train in the module. What the run needs of it stays with the run afterwards."""
        self.workspace.point(run.weights, run.counters)
        self.workspace.resume(run.changes)
        try:
            yield
        finally:
            with guarded(run, rule, f"after step {run.step} of {run.steps}"):
                run.changes = self.workspace.leave()

    @contextmanager
    def _drawing(self, run: LocalRun) -> Iterator[None]:
        """Let torch's generators go on from the run's states: the model or the rule may draw."""
        from edgefl.models.torch_device import drawing_from

        with drawing_from(run.random_states, run.weights.device) as states:
            yield
            run.states = states()

    def _compiled_for(self, rule: LocalRule) -> Compiled | None:
        """The compiled step, if it is there and takes this rule."""
        return None if self.compiled is None or Compiled.takes(rule) else self.compiled

    def _compiled_steps(
        self, compiled: Compiled, run: LocalRun, rule: LocalRule, stop: int
    ) -> None:
        """Do all steps until ``stop`` in one call."""
        optimizer = run.optimizer
        assert isinstance(optimizer, SGD)
        assert not run.whole_batches
        sizes = batch_sizes(run.step, stop, run.pass_samples, self.plan.batch_size)
        samples = self._samples(compiled, run, run.samples, run.samples_at(stop))
        rates = [self._rate(run, optimizer.steps + step) for step in range(stop - run.step)]
        velocity = optimizer.velocity
        losses = compiled.step.train(
            run.weights_array(),
            None if velocity is None else velocity.numpy(),
            *samples,
            sizes,
            np.array(rates, dtype=np.float32),
            optimizer.momentum,
            self.plan.weight_decay,
            None if not rule.proximal_weight else run.received,
            rule.proximal_weight,
        )
        for loss in losses.tolist():
            run.loss_sum += loss
        optimizer.steps += stop - run.step
        run.step = stop

    def _compiled_gradient(
        self, compiled: Compiled, run: LocalRun, weights: np.ndarray
    ) -> tuple[float, torch.Tensor]:
        """The loss of the next batch at ``weights``, and its gradient."""
        from edgefl.models.workspace import wrap

        gradient = aligned(run.parameters)
        samples = self._samples(compiled, run, run.samples, run.samples_at(run.step + 1))
        return compiled.step.gradient(weights, gradient, *samples), wrap(gradient)

    def _samples(
        self, compiled: Compiled, run: LocalRun, first: int, stop: int
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Inputs, labels, and the rows of them that a run trains on, from sample to sample."""
        index = run.order[first:stop]
        if compiled.inputs.whole is not None:
            return compiled.inputs.whole, compiled.labels, index
        return compiled.inputs[index], compiled.labels[index], np.arange(len(index))

    def merge(self, run: LocalRun, rule: LocalRule, merge: Merge) -> None:
        """Let the rule merge a model into the run, between two slices, if a step follows."""
        if run.failure is not None or run.step >= run.steps:
            return
        model = merge.model
        run.probe = lambda weights: self._probe(run, weights, self._compiled_for(rule))
        if isinstance(model, Pushed):
            with guarded(run, rule, f"a pushed model before step {run.step + 1}"):
                vectors, numbers = ByName(model.vectors), ByName(model.numbers)
                task = Assignment(model.number, model.version, vectors, numbers)
                run.pushed, run.pushes = vectors, run.pushes + 1
                whole = self._checked(rule.unpack(task, self.layout))
                rule.pushed(run, whole, model.version, numbers)
        else:
            with guarded(run, rule, f"a fresher model before step {run.step + 1}"):
                rule.merge(run, self._checked(model.vectors["weights"]), model.version)
        run.probe = run.pushed = None

    def certain(self, run: LocalRun, kept: LocalRun) -> LocalRun:
        """The latest copy of the run that a model which arrives later cannot change.

        That is the one of its last merge, or ``kept``, from which it began.
        """
        return run.mark or kept

    def kept(self, run: LocalRun) -> LocalRun:
        """Copy the run in its present state. The copy does not change if the run continues."""
        return run.copied(
            coming=deque(run.coming),
            memory={name: vector.clone() for name, vector in run.memory.items()},
            optimizer=run.optimizer.copied(),
            counters=[counter.clone() for counter in run.counters],
            changes=None if run.changes is None else self.workspace.state.copy_of(run.changes),
        )

    def merge_at(self, run: LocalRun, merge: Merge) -> None:
        """Let ``advance`` merge a model, after those that were to be merged before."""
        run.coming.append(merge)

    def asks(self, run: LocalRun, rule: LocalRule) -> bool:
        """Whether the rule asks for a fresher model at the run's present step."""
        return asks_now(run, rule)

    def payload(
        self, run: LocalRun, rule: LocalRule
    ) -> tuple[dict[str, np.ndarray], dict[str, float]]:
        """Return the vectors and numbers of the update; nothing if the run has failed.

        The vectors are copies of the rule's. To the rule's numbers it adds samples (of the device),
        steps (done) and loss (mean over batches). A rule with a number of such a name has failed.
        """
        if run.failure is not None:
            return {}, {}
        counted = {
            "samples": run.local_samples,
            "steps": run.step,
            "loss": run.loss_sum / max(run.step, 1),
            **({PUSHES: run.pushes} if run.pushes else {}),
        }
        with guarded(run, rule, f"its update, after step {run.step}"):
            vectors, numbers = rule.payload(run)
            if taken := [name for name in ("samples", "steps", "loss", PUSHES) if name in numbers]:
                raise ValueError(
                    f"payload returned {', '.join(taken)}: expected another name, since the edge"
                    " adds this number"
                )
            return {name: _copied(vector) for name, vector in vectors.items()}, {
                name: float(value) for name, value in {**numbers, **counted}.items()
            }
        return {}, {}

    def remembered(self, run: LocalRun, rule: LocalRule) -> dict[str, np.ndarray]:
        """Copies of the vectors that the edge keeps for its next task.

        They are the rule's and, if the plan keeps it, the optimizer's state. The edge uses them
        once this task's update is acknowledged. If a vector of the rule is not finite, none is
        kept: the server acknowledges an update that it refuses, too, and such a task must not
        affect later ones.
        """
        state = kept_state(self.plan, run.optimizer) if rule.moves else {}
        with guarded(run, rule, f"what it remembers, after step {run.step}"):
            kept = {
                name: _copied(run.memory[name]) for name in rule.remembers if name in run.memory
            }
            return state | kept if all(map(is_finite, kept.values())) else state
        return {}

    def forward(self, weights: np.ndarray | torch.Tensor, inputs: torch.Tensor) -> torch.Tensor:
        """Outputs of the model at another flat vector, in evaluation mode without gradients.

        The run in progress is not affected.
        """
        with self.workspace.inference(weights) as model:
            outputs: torch.Tensor = model(self.workspace.arranged(inputs))
            return outputs

    def features(self, weights: np.ndarray | torch.Tensor, inputs: torch.Tensor) -> torch.Tensor:
        """The inputs of the last linear layer; otherwise like ``forward``."""
        with self.workspace.inference(weights):
            return self.workspace.with_features(self.workspace.arranged(inputs))[1]

    def _step(self, run: LocalRun, rule: LocalRule) -> None:
        gradient = self.workspace.gradient
        batch = self._batch(run)
        gradient.zero_()
        value = self._accumulated(run, rule, batch)
        self._finish_step(run, rule, value, gradient)
        self.workspace.settle()

    def _finish_step(
        self, run: LocalRun, rule: LocalRule, value: float, gradient: torch.Tensor
    ) -> None:
        """Move the model by the gradient of a batch whose loss is ``value``."""
        if self.plan.weight_decay and self.plan.optimizer == "sgd":
            gradient.add_(run.trainable, alpha=self.plan.weight_decay)
        adjust(rule, run, gradient)
        if rule.moves:
            run.optimizer.step(run.trainable, gradient, self._rate(run, run.optimizer.steps))
        else:
            run.gradient = gradient.clone()
        run.loss_sum += value
        run.step += 1

    def _accumulated(
        self, run: LocalRun, rule: LocalRule, batch: tuple[torch.Tensor, torch.Tensor]
    ) -> float:
        """Add the gradient of a batch's loss to the workspace's, and return the loss.

        A batch that is larger than a micro-batch goes through the model in parts. Each part counts
        by its terms of the loss, so the sum is the gradient of the whole batch.
        """
        size = self.plan.micro_batch_size
        if size is None or len(batch[1]) <= size:
            return self._backward(run, rule, batch)
        import torch

        parts = list(zip(torch.split(batch[0], size), torch.split(batch[1], size)))
        terms = [self.terms(targets) for _, targets in parts]
        total = sum(terms)
        return sum(
            self._backward(run, rule, part, (count / total, len(part[1]) / len(batch[1])))
            for part, count in zip(parts, terms)
            if count
        )

    def _backward(
        self,
        run: LocalRun,
        rule: LocalRule,
        batch: tuple[torch.Tensor, torch.Tensor],
        shares: tuple[float, float] = (1.0, 1.0),
    ) -> float:
        """Add the gradient of the loss of ``batch``, and return the loss without the rule's term.

        ``shares``: of the loss, and of the rule's term, if ``batch`` is a part of a batch.
        """
        inputs = self.workspace.arranged(batch[0])
        if rule.sees == "features":
            output, seen, other = *self.workspace.with_features(inputs), self.features
        else:
            output, other = self.workspace.model(inputs), self.forward
            seen = output
        loss = self.loss(output, batch[1])
        extra = rule.extra_loss(run, batch, seen, other)
        if shares != (1.0, 1.0):
            loss, extra = loss * shares[0], None if extra is None else extra * shares[1]
        import torch

        torch.autograd.backward(loss if extra is None else loss + extra)
        return loss.item()

    def _probe(
        self, run: LocalRun, weights: torch.Tensor, compiled: Compiled | None = None
    ) -> tuple[float, torch.Tensor]:
        """Loss of the next batch at ``weights``, and its gradient.

        It uses copies, so training is not affected.
        """
        if compiled is not None:
            vector = np.ascontiguousarray(weights.detach().numpy(), np.float32)
            return self._compiled_gradient(compiled, run, vector)
        space = self.workspace
        space.point(weights.clone(), [counter.clone() for counter in run.counters])
        space.resume(None if run.changes is None else space.state.copy_of(run.changes))
        from edgefl.models.torch_device import drawing_from

        try:
            # the same dropout as in the next step
            with drawing_from(run.random_states, space.device):
                inputs, targets = self._batch(run)
                loss = self.loss(space.model(space.arranged(inputs)), targets)
                space.gradient.zero_()
                import torch

                torch.autograd.backward(loss)
            return loss.item(), space.gradient.clone()
        finally:
            space.leave()

    def _rate(self, run: LocalRun, step: int) -> float:
        """The learning rate of the optimizer's step number ``step``."""
        schedule = self.plan.schedule
        factor = 1.0 if schedule is None else schedule.factor(step, run.steps)
        return run.learning_rate * factor

    def _batch(self, run: LocalRun) -> tuple[torch.Tensor, torch.Tensor]:
        index = run.order_from(run.samples, run.samples_at(run.step + 1))
        return self.inputs.index_select(0, index), self.targets.index_select(0, index)

    def _checked(self, vector: np.ndarray) -> np.ndarray:
        size = self.layout.size
        if vector.shape != (size,):
            raise ValueError(f"a vector of shape {vector.shape} for a model of {size} elements")
        return vector


class NullTrainer(Trainer):
    """Trains nothing (``trainer = "none"``): a task takes its emulated time and returns its model.

    Steps are only counted. So a study that depends on time only can run for 100,000 slots.
    """

    def _draw(self, run: LocalRun) -> None:
        """Draw nothing before a merge, which may compute the loss of the next batch."""
        if self.lengths is not None:
            super()._draw(run)

    def _fresh_counters(self, compiled: Compiled | None) -> list[torch.Tensor]:
        return []

    def merge(self, run: LocalRun, rule: LocalRule, merge: Merge) -> None:
        super()._draw(run)
        super().merge(run, rule, merge)

    def _advance(
        self, run: LocalRun, rule: LocalRule, stop: int, deadline: Callable[[], bool] | None
    ) -> bool:
        run.step = max(run.step, stop)
        if not rule.moves and run.gradient is None:
            run.gradient = run.trainable.new_zeros(run.parameters)
        return True


def adjust(rule: LocalRule, run: LocalRun, gradient: torch.Tensor) -> None:
    """Change a step's gradient in place as the rule asks."""
    weight, size = rule.proximal_weight, run.parameters
    if weight:
        gradient.add_(run.weights[:size], alpha=weight).sub_(run.start[:size], alpha=weight)
    rule.adjust(run, gradient)


def _copied(vector: np.ndarray | torch.Tensor) -> np.ndarray:
    if hasattr(vector, "numpy"):
        vector = vector.numpy(force=True)
    return aligned_copy(np.asarray(vector, dtype=np.float32))
