"""Local training in slices: SGD on flat vectors that calls the hooks of a ``LocalRule``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
import torch

from edgefl.edges.failure import BEFORE, TrainingFailure, training_failure
from edgefl.edges.local_run import LocalRun, Merge, set_checkpoint
from edgefl.edges.optimizers import kept_state, optimizer
from edgefl.edges.sample_order import sample_order, tokens_by_step
from edgefl.edges.training_plan import TaskLike, TrainingPlan
from edgefl.errors import UserError
from edgefl.models.torch_device import RandomStates, drawing_from, seeded
from edgefl.models.workspace import Workspace
from edgefl.strategies.base.local_rule import LocalRule
from edgefl.streams import Streams
from edgefl.vectors import aligned, aligned_copy


class Trainer:
    """Trains on one device's samples.

    The samples are the rows ``members`` of ``inputs`` and ``targets`` (all rows if None). An
    exception of the rule, the model or the loss becomes the run's ``failure``. Trainers of one
    process may share ``workspace``, ``inputs`` and ``targets``, and their runs may advance in turn,
    slice by slice.
    """

    def __init__(
        self,
        workspace: Workspace,
        inputs: torch.Tensor,
        targets: torch.Tensor,
        loss: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
        plan: TrainingPlan,
        streams: Streams,
        edge: str,
        members: np.ndarray | None = None,
        lengths: np.ndarray | None = None,
        terms: Callable[[torch.Tensor], int] = len,
    ) -> None:
        """``lengths``: tokens of each of the samples, if the device's speed is in tokens.

        ``terms(targets)``: of how many terms ``loss`` is the mean.
        """
        self.lengths, self.terms = lengths, terms
        self.workspace, self.inputs, self.targets, self.loss = workspace, inputs, targets, loss
        self.plan, self.streams, self.edge = plan, streams, edge
        self.members = (
            np.arange(len(inputs)) if members is None else np.asarray(members, dtype=np.int64)
        )
        if not len(self.members):
            raise ValueError(f"edge {edge} has no samples to train on")

    def begin(self, task: TaskLike, rule: LocalRule, memory: Mapping[str, np.ndarray]) -> LocalRun:
        """Make a run at its first step, and call the rule's ``begin`` and ``checkpoint``.

        ValueError if the task's numbers are invalid.
        """
        space, (start, failure) = self.workspace, self._start(task, rule)
        weights = start.clone()
        trainable = weights[: space.layout.parameters]
        steps = self.plan.steps(task, rule, len(self.members))
        run = LocalRun(
            task=task,
            layout=space.layout,
            start=start,
            weights=weights,
            trainable=trainable,
            memory={
                name: space.placed(aligned_copy(memory[name]))
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
            order=torch.zeros(0, dtype=torch.int64),
            optimizer=optimizer(self.plan, trainable, memory),
            counters=space.fresh_counters(),
            random_states=(),
            failure=failure,
            plain_sgd=self.plan.is_plain_sgd,
        )
        self._draw(run)
        try:
            rule.begin(run)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            self._fail(run, rule, error, BEFORE)
        set_checkpoint(run, rule)
        return run

    def _draw(self, run: LocalRun) -> None:
        """Draw what the run's steps need: the order of samples and the states of generators."""
        order = sample_order(self.streams, self.edge, run.task.number, self.members, run)
        run.order = torch.from_numpy(order).to(self.workspace.device)
        run.random_states = self._random_states(run.task)
        if self.lengths is not None:
            run.tokens = tokens_by_step(order, self.lengths, run)

    def _start(
        self, task: TaskLike, rule: LocalRule
    ) -> tuple[torch.Tensor, TrainingFailure | None]:
        """Return the model to start from; if the rule fails, zeros and the failure."""
        layout = self.workspace.layout
        try:
            return self.workspace.placed(self._checked(rule.unpack(task, layout))), None
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            zeros = self.workspace.placed(aligned(layout.size)).zero_()
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
        self.workspace.point(run.weights, run.counters)
        self.workspace.resume(run.changes)
        try:
            with drawing_from(run.random_states, self.workspace.device) as states:
                while run.step < stop and run.failure is None:
                    self._try_step(run, rule)
                    if deadline is not None and deadline():
                        break
                run.random_states = states()
        finally:
            self._leave(run, rule, f"after step {run.step} of {run.steps}")
        return run.step >= stop or run.failure is not None

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
        run.probe = lambda weights: self._probe(run, weights)
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
        weights = run.weights.clone()
        return replace(
            run,
            weights=weights,
            trainable=weights[: run.parameters],
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
            outputs: torch.Tensor = model(inputs)
            return outputs

    def features(self, weights: np.ndarray | torch.Tensor, inputs: torch.Tensor) -> torch.Tensor:
        """The inputs of the last linear layer; otherwise like ``forward``."""
        with self.workspace.inference(weights):
            return self.workspace.with_features(inputs)[1]

    def _fail(self, run: LocalRun, rule: LocalRule, error: BaseException, where: str) -> None:
        """Record a failure of the run; the first one counts."""
        run.failure = run.failure or training_failure(error, where, type(rule).__module__)

    def _try_step(self, run: LocalRun, rule: LocalRule) -> None:
        try:
            self._step(run, rule)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            size = run.samples_until(run.step + 1)
            batch = f"batch of {size} sample{'' if size == 1 else 's'}"
            self._fail(run, rule, error, f"step {run.step + 1} of {run.steps}, {batch}")

    def _step(self, run: LocalRun, rule: LocalRule) -> None:
        gradient = self.workspace.gradient
        batch = self._batch(run)
        gradient.zero_()
        value = self._accumulated(run, rule, batch)
        if self.plan.weight_decay and self.plan.optimizer == "sgd":
            gradient.add_(run.trainable, alpha=self.plan.weight_decay)
        rule.adjust(run, gradient)
        if rule.moves:
            self._move(run, gradient)
        else:
            run.gradient = gradient.clone()
        self.workspace.settle()
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
        if rule.sees == "features":
            output, seen, other = *self.workspace.with_features(batch[0]), self.features
        else:
            output, other = self.workspace.model(batch[0]), self.forward
            seen = output
        loss = self.loss(output, batch[1])
        extra = rule.extra_loss(run, batch, seen, other)
        if shares != (1.0, 1.0):
            loss, extra = loss * shares[0], None if extra is None else extra * shares[1]
        torch.autograd.backward(loss if extra is None else loss + extra)
        return loss.item()

    def _probe(self, run: LocalRun, weights: torch.Tensor) -> tuple[float, torch.Tensor]:
        """Loss of the next batch at ``weights``, and its gradient.

        It uses copies, so training is not affected.
        """
        space = self.workspace
        space.point(weights.clone(), [counter.clone() for counter in run.counters])
        space.resume(None if run.changes is None else space.state.copy_of(run.changes))
        try:
            # the same dropout as in the next step
            with drawing_from(run.random_states, space.device):
                inputs, targets = self._batch(run)
                loss = self.loss(space.model(inputs), targets)
                space.gradient.zero_()
                torch.autograd.backward(loss)
            return loss.item(), space.gradient.clone()
        finally:
            space.leave()

    def _move(self, run: LocalRun, gradient: torch.Tensor) -> None:
        schedule, rate = self.plan.schedule, run.learning_rate
        if schedule is not None:
            rate *= schedule.factor(run.optimizer.steps, run.steps)
        run.optimizer.step(run.trainable, gradient, rate)

    def _batch(self, run: LocalRun) -> tuple[torch.Tensor, torch.Tensor]:
        first = run.samples
        index = run.order[first : run.samples_at(run.step + 1)]
        return self.inputs.index_select(0, index), self.targets.index_select(0, index)

    def _random_states(self, task: TaskLike) -> RandomStates:
        seed = int(self.streams.rng("torch", self.edge, task.number).integers(2**63))
        return seeded(seed, self.workspace.device)

    def _checked(self, vector: np.ndarray) -> np.ndarray:
        if vector.shape != (self.workspace.layout.size,):
            raise ValueError(
                f"a vector of shape {vector.shape} for a model of {self.workspace.layout.size}"
                " elements"
            )
        return vector


class NullTrainer(Trainer):
    """Trains nothing (``trainer = "none"``): a task takes its emulated time and returns its model.

    Steps are only counted. So a study that depends on time only can run for 100,000 slots.
    """

    def _draw(self, run: LocalRun) -> None:
        """Draw nothing before a merge, which may compute the loss of the next batch."""
        if self.lengths is not None:
            super()._draw(run)

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


def _copied(vector: np.ndarray | torch.Tensor) -> np.ndarray:
    if isinstance(vector, torch.Tensor):
        vector = vector.numpy(force=True)
    return aligned_copy(np.asarray(vector, dtype=np.float32))
