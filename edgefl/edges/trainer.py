"""Local training in slices: SGD on flat vectors that calls the hooks of a ``LocalRule``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from edgefl.edges.failure import BEFORE, TrainingFailure, training_failure
from edgefl.edges.local_run import LocalRun, Merge, set_checkpoint
from edgefl.edges.optimizers import SGD, kept_state, optimizer
from edgefl.edges.sample_order import sample_order, tokens_by_step
from edgefl.edges.training_plan import TaskLike, TrainingPlan
from edgefl.errors import UserError
from edgefl.strategies.base.local_rule import LocalRule, owns
from edgefl.streams import Streams
from edgefl.vectors import Layout, aligned, aligned_copy

if TYPE_CHECKING:
    import torch

    from edgefl.compiled.step import CompiledStep
    from edgefl.data.dataset import NormalisedRows
    from edgefl.models.workspace import Workspace

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
        hooks = ("unpack", "begin", "extra_loss", "adjust", "merge", "payload")
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

    def begin(self, task: TaskLike, rule: LocalRule, memory: Mapping[str, np.ndarray]) -> LocalRun:
        """Make a run at its first step, and call the rule's ``begin`` and ``checkpoint``.

        ValueError if the task's numbers are invalid.
        """
        received, failure = self._start(task, rule)
        compiled = self._compiled_for(rule)
        on_gpu = None if self._is_on_cpu() else self._placed(received)
        steps = self.plan.steps(task, rule, len(self.members))
        run = LocalRun(
            task=task,
            layout=self.layout,
            received=received,
            trained=aligned_copy(received) if on_gpu is None else None,
            on_gpu=on_gpu,
            memory={
                name: self.workspace.placed(aligned_copy(memory[name]))
                for name in rule.remembers
                if name in memory
            },
            local_samples=len(self.members),
            batch_size=self.plan.batch_size,
            batches_per_epoch=self.plan.batches_per_epoch,
            drop_last=self.plan.drop_last,
            steps=steps,
            whole_batches=not rule.moves,
            learning_rate=self.plan.learning_rate_of(task),
            order=np.zeros(0, dtype=np.int64),
            optimizer=SGD(0.0, None),
            counters=self._fresh_counters(compiled),
            draw_seed=lambda: int(
                self.streams.rng("torch", self.edge, task.number).integers(2**63)
            ),
            failure=failure,
            plain_sgd=self.plan.is_plain_sgd,
        )
        run.optimizer = optimizer(self.plan, lambda: run.trainable, memory)
        self._draw(run)
        try:
            rule.begin(run)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            self._fail(run, rule, error, BEFORE)
        set_checkpoint(run, rule)
        return run

    def _is_on_cpu(self) -> bool:
        # a workspace on a GPU is there already
        return callable(self._workspace) or self._workspace.device.type == "cpu"

    def _draw(self, run: LocalRun) -> None:
        """Draw the order of samples."""
        run.order = sample_order(self.streams, self.edge, run.task.number, self.members, run)
        if self.lengths is not None:
            run.tokens = tokens_by_step(run.order, self.lengths, run)

    def _fresh_counters(self, compiled: Compiled | None) -> list[torch.Tensor]:
        return [] if compiled else self.workspace.fresh_counters()

    def _start(self, task: TaskLike, rule: LocalRule) -> tuple[np.ndarray, TrainingFailure | None]:
        """Return the model to start from; if the rule fails, zeros and the failure."""
        try:
            vector = self._checked(rule.unpack(task, self.layout))
            return np.ascontiguousarray(vector, np.float32), None
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            zeros = aligned(self.layout.size)
            zeros[:] = 0
            return zeros, training_failure(error, BEFORE, type(rule).__module__)

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
        stop, coming = run.steps if until_step is None else min(until_step, run.steps), run.coming
        if coming is not None and coming.step <= stop:
            if not self._advance(run, rule, coming.step, deadline):
                return False
            run.coming = None
            self.merge(run, rule, coming.weights, coming.version)
        return self._advance(run, rule, stop, deadline)

    def _advance(
        self, run: LocalRun, rule: LocalRule, stop: int, deadline: Callable[[], bool] | None
    ) -> bool:
        if run.step >= stop or run.failure is not None:
            return True
        compiled = self._compiled_for(rule)
        if compiled is not None:
            return self._advance_compiled(compiled, run, rule, stop, deadline)
        self.workspace.point(run.weights, run.counters)
        self.workspace.resume(run.changes)
        from edgefl.models.torch_device import drawing_from

        try:
            with drawing_from(run.random_states, self.workspace.device) as states:
                while run.step < stop and run.failure is None:
                    self._try_step(run, rule)
                    if deadline is not None and deadline():
                        break
                run.states = states()
        finally:
            self._leave(run, rule, f"after step {run.step} of {run.steps}")
        return run.step >= stop or run.failure is not None

    def _advance_compiled(
        self,
        compiled: Compiled,
        run: LocalRun,
        rule: LocalRule,
        stop: int,
        deadline: Callable[[], bool] | None,
    ) -> bool:
        if not isinstance(run.optimizer, SGD) or not rule.moves or owns(rule, "adjust"):
            from edgefl.models.torch_device import drawing_from

            with drawing_from(run.random_states, run.weights.device) as states:  # the rule may draw
                self._compiled_loop(compiled, run, rule, stop, deadline, plain=False)
                run.states = states()
        else:
            self._compiled_loop(compiled, run, rule, stop, deadline, plain=True)
        return run.step >= stop or run.failure is not None

    def _compiled_for(self, rule: LocalRule) -> Compiled | None:
        """The compiled step, if it is there and takes this rule."""
        return None if self.compiled is None or Compiled.takes(rule) else self.compiled

    def _compiled_loop(
        self,
        compiled: Compiled,
        run: LocalRun,
        rule: LocalRule,
        stop: int,
        deadline: Callable[[], bool] | None,
        plain: bool,
    ) -> None:
        """``plain``: the rule does not see the gradient of each step."""
        while run.step < stop and run.failure is None:
            # the same numbers in one call as in one for each step
            steps = min(stop - run.step, MOST_STEPS) if plain and deadline is None else 1
            try:
                if plain:
                    self._compiled_steps(compiled, run, rule, run.step + steps)
                else:
                    self._compiled_step(compiled, run, rule)
            except KeyboardInterrupt:
                raise
            except BaseException as error:
                self._fail(run, rule, error, _this_step(run))
            if deadline is not None and deadline():
                break

    def _compiled_steps(
        self, compiled: Compiled, run: LocalRun, rule: LocalRule, stop: int
    ) -> None:
        """Do all steps until ``stop`` in one call."""
        optimizer = run.optimizer
        assert isinstance(optimizer, SGD)
        ends = [run.samples_at(step) for step in range(run.step, stop + 1)]
        inputs, labels, index = self._samples(compiled, run, ends[0], ends[-1])
        rates = [self._rate(run, optimizer.steps + step) for step in range(stop - run.step)]
        velocity = optimizer.velocity
        losses = compiled.step.train(
            run.weights_array(),
            None if velocity is None else velocity.numpy(),
            inputs,
            labels,
            index,
            np.diff(np.array(ends, dtype=np.int64)),
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

    def _compiled_step(self, compiled: Compiled, run: LocalRun, rule: LocalRule) -> None:
        value, gradient = self._compiled_gradient(compiled, run, run.weights_array())
        self._finish_step(run, rule, value, gradient)

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

    def _leave(self, run: LocalRun, rule: LocalRule, where: str) -> None:
        """Take the module back to what it held before; what the run needs of it stays with it."""
        try:
            run.changes = self.workspace.leave()
        except UserError as error:
            self._fail(run, rule, error, where)

    def merge(self, run: LocalRun, rule: LocalRule, fresh: np.ndarray, version: int) -> None:
        """Let the rule merge a fresher global model into the run, between two slices."""
        if run.failure is not None:
            return
        run.probe = lambda weights: self._probe(run, weights, self._compiled_for(rule))
        try:
            rule.merge(run, self._checked(fresh), version)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            self._fail(run, rule, error, f"a fresher model before step {run.step + 1}")
        finally:
            run.probe = None

    def kept(self, run: LocalRun) -> LocalRun:
        """Copy the run in its present state. The copy does not change if the run continues."""
        return run.copied(
            memory={name: vector.clone() for name, vector in run.memory.items()},
            optimizer=run.optimizer.copied(),
            counters=[counter.clone() for counter in run.counters],
            changes=None if run.changes is None else self.workspace.state.copy_of(run.changes),
        )

    def merge_at(self, run: LocalRun, step: int, fresh: np.ndarray, version: int) -> None:
        """Let ``advance`` merge a fresher model after ``step`` steps."""
        run.coming = Merge(step, fresh, version)

    def payload(
        self, run: LocalRun, rule: LocalRule
    ) -> tuple[dict[str, np.ndarray], dict[str, float]]:
        """Return the vectors and numbers of the update; nothing if the run has failed.

        The vectors are copies of the rule's. To the rule's numbers it adds samples (of the device),
        steps (done) and loss (mean over batches).
        """
        if run.failure is not None:
            return {}, {}
        counted = {
            "samples": run.local_samples,
            "steps": run.step,
            "loss": run.loss_sum / max(run.step, 1),
        }
        try:
            vectors, numbers = rule.payload(run)
            return {name: _copied(vector) for name, vector in vectors.items()}, {
                name: float(value) for name, value in {**numbers, **counted}.items()
            }
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            self._fail(run, rule, error, f"its update, after step {run.step}")
            return {}, {}

    def remembered(self, run: LocalRun, rule: LocalRule) -> dict[str, np.ndarray]:
        """Copies of the vectors that the edge keeps for its next task.

        They are the rule's and, if the plan keeps it, the optimizer's state. The edge uses them
        once this task's update is acknowledged.
        """
        state = kept_state(self.plan, run.optimizer) if rule.moves else {}
        try:
            return state | {
                name: _copied(run.memory[name]) for name in rule.remembers if name in run.memory
            }
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            self._fail(run, rule, error, f"what it remembers, after step {run.step}")
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

    def _fail(self, run: LocalRun, rule: LocalRule, error: BaseException, where: str) -> None:
        """Record a failure of the run; the first one counts."""
        run.failure = run.failure or training_failure(error, where, type(rule).__module__)

    def _try_step(self, run: LocalRun, rule: LocalRule) -> None:
        try:
            self._step(run, rule)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            self._fail(run, rule, error, _this_step(run))

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
            self._move(run, gradient)
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
        whole = sum(terms)
        return sum(
            self._backward(run, rule, part, (count / whole, len(part[1]) / len(batch[1])))
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

    def _move(self, run: LocalRun, gradient: torch.Tensor) -> None:
        run.optimizer.step(run.trainable, gradient, self._rate(run, run.optimizer.steps))

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

    def _placed(self, received: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
        """The model to start from and a copy of it to train, on the GPU."""
        start = self.workspace.placed(received)
        return start, start.clone()


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

    def merge(self, run: LocalRun, rule: LocalRule, fresh: np.ndarray, version: int) -> None:
        super()._draw(run)
        super().merge(run, rule, fresh, version)

    def _advance(
        self, run: LocalRun, rule: LocalRule, stop: int, deadline: Callable[[], bool] | None
    ) -> bool:
        run.step = max(run.step, stop)
        if not rule.moves and run.gradient is None:
            run.gradient = run.trainable.new_zeros(run.parameters)
        return True


def _this_step(run: LocalRun) -> str:
    size = run.samples_until(run.step + 1)
    batch = f"batch of {size} sample{'' if size == 1 else 's'}"
    return f"step {run.step + 1} of {run.steps}, {batch}"


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
