"""Training tasks that are trained together (``training.tasks_at_once``), for GPUs.

When a task is due, it is trained together with tasks that have begun and are due later. Which ones
depends only on the tasks that are under way, so a run that goes on from a checkpoint, which holds
what was trained ahead, writes the same bytes. A task that no longer counts when it is due has only
cost time.

One call of torch computes the steps of all of them: the runs' weights are the rows of one matrix,
and ``torch.func.vmap`` computes the loss of each row on its own batch. The results are those of
single runs but for the order of sums.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import Any

import torch
from torch.func import functional_call, vmap

from edgefl.clocks.setup.learning import Learning
from edgefl.clocks.virtual.pool.engine import (
    A_TASK_FAILED,
    DeferredRun,
    GroupCounts,
    InProcessEngine,
    RunOutcome,
    Standing,
    Stretch,
    ended,
)
from edgefl.edges.training import SGD, LocalRun, Trainer, adjust, batches
from edgefl.errors import UserError
from edgefl.jobs import Train
from edgefl.models.torch_device import CPU, RandomStates, drawing_from, seeded
from edgefl.models.workspace import Workspace
from edgefl.strategies.base.strategy import LocalRule, owns, takes_pushes

CLOSE = 1e-3  # the gradients of the check agree to this share of their largest element


class CannotMerge(Exception):
    """These runs must be trained one by one."""


class MergedSteps:
    """Computes steps of models with the layout of ``workspace``, whose module it calls."""

    def __init__(self, workspace: Workspace, loss: Any) -> None:
        self.workspace, self.loss = workspace, loss
        entries = workspace.layout.entries
        self._parts = [
            [entry for entry in entries if (entry.kind == "parameter") is trained]
            for trained in (True, False)
        ]
        # "error": a model that draws random numbers cannot be merged
        self._losses = vmap(self._loss_at, randomness="error")

    def slopes(
        self, trained: torch.Tensor, rest: torch.Tensor, batch: tuple[torch.Tensor, torch.Tensor]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the gradients (runs, parameters) and the losses (runs) of one batch per run.

        ``trained`` (runs, parameters) and ``rest`` (runs, buffers) are flat models. The tensors of
        ``batch`` have the shape (runs, samples, ...).
        """
        trained = trained.detach().requires_grad_()
        losses: torch.Tensor = self._losses(trained, rest, *batch)
        # a run's loss depends on its own row only, so this is each run's gradient
        (slopes,) = torch.autograd.grad(losses.sum(), trained)
        return slopes, losses.detach()

    def _loss_at(
        self,
        trained: torch.Tensor,
        rest: torch.Tensor,
        inputs: torch.Tensor,
        targets: torch.Tensor,
    ) -> torch.Tensor:
        tensors = {
            entry.name: part.view(entry.shape)
            for entries, vector in zip(self._parts, (trained, rest))
            for entry, part in zip(entries, vector.split([entry.size for entry in entries]))
        }
        loss: torch.Tensor = self.loss(
            functional_call(self.workspace.model, tensors, (inputs,)), targets
        )
        return loss

    def train(self, trainer: Trainer, runs: Sequence[LocalRun], rules: Sequence[LocalRule]) -> None:
        """Train all ``runs`` from their first step to their end.

        ``trainer``: of any of them; they share its samples and its plan, which is SGD. ``rules``:
        of each run; they do not add to the loss. If it raises an exception, no run is of use any
        more. CannotMerge if a rule draws random numbers: a task has its own.
        """
        group = _Group(self, trainer, runs, rules)
        device = self.workspace.device
        try:
            with drawing_from(seeded(0, device), device) as now:
                states = now()
                while rows := group.next_rows():
                    group.step(rows)
                    if group.steps == 1:
                        _check_undrawn(states, now())
                _check_undrawn(states, now())
        finally:
            changes = self.workspace.leave()
        if changes is not None:
            raise CannotMerge("training changes attributes of the model")
        group.end()

    # ------------------------------------------------------------------ which models can be merged
    def reason_against(self, vector: torch.Tensor, samples: tuple[Any, Any]) -> str | None:
        """Say why steps of this model cannot be merged; None: they can.

        It computes gradients at ``vector`` on two batches of ``samples`` (inputs, targets), merged
        and one by one. Neither is changed, nor are torch's own random numbers.
        """
        count = len(samples[1])
        rows = torch.tensor([[0, count // 2], [count - 1, 0]], device=self.workspace.device)
        pairs = [tuple(part.index_select(0, row) for part in samples) for row in rows]
        batch = tuple(torch.stack(parts) for parts in zip(*pairs))
        device = self.workspace.device
        with drawing_from(seeded(0, device), device) as now:
            states, alone = now(), []
            for inputs, targets in pairs:
                reason, slope = self._alone(vector, inputs, targets)
                if reason is not None:
                    return reason
                alone.append(slope)
            if not all(map(torch.equal, states, now())):
                return "the model draws random numbers in training, as dropout does"
            size = self.workspace.layout.parameters
            both = torch.stack([vector, vector])
            try:
                found, _ = self.slopes(both[:, :size], both[:, size:], (batch[0], batch[1]))
            except KeyboardInterrupt:
                raise
            except BaseException as error:
                return f"torch.func.vmap cannot merge the model's steps ({first_line(error)})"
        wanted = torch.stack(alone)
        if not torch.allclose(found, wanted, rtol=0, atol=CLOSE * float(wanted.abs().max())):
            return "torch.func.vmap computes other gradients for this model"
        return None

    def _alone(
        self, vector: torch.Tensor, inputs: torch.Tensor, targets: torch.Tensor
    ) -> tuple[str | None, torch.Tensor]:
        """Compute a gradient as ``Trainer`` does; also why the model cannot be merged, or None."""
        space, own, counters = self.workspace, vector.clone(), self.workspace.fresh_counters()
        kept = [counter.clone() for counter in counters]
        space.point(own, counters)
        space.gradient.zero_()
        try:
            torch.autograd.backward(self.loss(space.model(inputs), targets))
            space.settle()
            same = torch.equal(own, vector) and all(map(torch.equal, kept, counters))
            reason = None if same else "training changes buffers of the model, as BatchNorm's"
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            reason = f"two samples cannot be trained ({first_line(error)})"
        slope = space.gradient.clone()
        try:
            if space.leave() is not None:
                reason = reason or "training changes attributes of the model"
        except UserError as error:
            reason = reason or str(error)
        return reason, slope


class _Group:
    """Runs that are trained together: the rows of its tensors."""

    def __init__(
        self,
        merged: MergedSteps,
        trainer: Trainer,
        runs: Sequence[LocalRun],
        rules: Sequence[LocalRule],
    ) -> None:
        self.merged, self.trainer, self.runs, self.rules = merged, trainer, runs, rules
        self.steps = 0  # done, of one run or of several
        self.trained = torch.stack([run.trainable for run in runs])
        self.rest = torch.stack([run.weights[run.parameters :] for run in runs])
        self.losses = self.trained.new_zeros(len(runs), dtype=torch.float64)
        rates = [[-run.learning_rate] for run in runs]
        self.rates = torch.tensor(rates, device=self.trained.device, dtype=self.trained.dtype)
        velocities = [
            run.optimizer.velocity
            for run in runs
            if isinstance(run.optimizer, SGD) and run.optimizer.velocity is not None
        ]
        self.velocity = torch.stack(velocities) if velocities else None
        self._indices: dict[tuple[int, ...], torch.Tensor] = {}

    def next_rows(self) -> tuple[int, ...]:
        """The runs that do the next step: their batches have one size. None is left: ().

        Each pass over the samples begins when all runs have ended the one before, and ends with its
        smaller batches. So whole batches, which have one size, find many runs.
        """
        ahead = {
            row: (
                run.step // batches(run.pass_samples, run.plan.batch_size),
                -run.samples_until(run.step + 1),
            )
            for row, run in enumerate(self.runs)
            if run.step < run.steps
        }
        first = min(ahead.values(), default=None)
        return tuple(row for row, place in ahead.items() if place == first)

    def step(self, rows: tuple[int, ...]) -> None:
        """Do one step of SGD in each of these runs."""
        plan, whole = self.trainer.plan, len(rows) == len(self.runs)
        index = None if whole else self._index(rows)
        trained, rest, rates = (_chosen(of, index) for of in (self.trained, self.rest, self.rates))
        slopes, losses = self.merged.slopes(trained, rest, self._batch(rows))
        if plan.weight_decay:
            slopes = slopes.add(trained, alpha=plan.weight_decay)
        slopes = self._adjusted(rows, trained, slopes)
        if self.velocity is not None:
            slopes = _chosen(self.velocity, index).mul_(plan.momentum).add_(slopes)
        trained.addcmul_(slopes, rates)
        sums = _chosen(self.losses, index).add_(losses)
        if index is not None:  # these are copies of the rows
            self.trained.index_copy_(0, index, trained)
            self.losses.index_copy_(0, index, sums)
            if self.velocity is not None:
                self.velocity.index_copy_(0, index, slopes)
        for row in rows:
            self.runs[row].step += 1
            self.runs[row].optimizer.steps += 1
        self.steps += 1

    def _adjusted(
        self, rows: tuple[int, ...], trained: torch.Tensor, slopes: torch.Tensor
    ) -> torch.Tensor:
        """Let the rules that want it change the gradients of their runs."""
        slopes = slopes.contiguous()  # each row has memory of its own
        for row, weights, slope in zip(rows, trained, slopes):
            run, rule = self.runs[row], self.rules[row]
            if owns(rule, "adjust") or rule.proximal_weight:
                run.trainable.copy_(weights)
                adjust(rule, run, slope)
        return slopes

    def end(self) -> None:
        """Write the results into the runs."""
        for row, (run, loss_sum) in enumerate(zip(self.runs, self.losses.tolist())):
            run.trainable.copy_(self.trained[row])
            run.loss_sum = loss_sum
            if self.velocity is not None and isinstance(run.optimizer, SGD):
                run.optimizer.velocity = self.velocity[row].clone()

    def _index(self, rows: tuple[int, ...]) -> torch.Tensor:
        if rows not in self._indices:
            self._indices[rows] = torch.tensor(rows, device=self.trained.device)
        return self._indices[rows]

    def _batch(self, rows: tuple[int, ...]) -> tuple[torch.Tensor, torch.Tensor]:
        """The next batch of each run, as ``Trainer._batch``, in one look-up of all samples."""
        chosen = [self.runs[row] for row in rows]
        index = torch.cat(
            [run.order_from(run.samples, run.samples_at(run.step + 1)) for run in chosen]
        )
        inputs, targets = (
            part.index_select(0, index).unflatten(0, (len(rows), -1))
            for part in (self.trainer.inputs, self.trainer.targets)
        )
        return inputs, targets


def _check_undrawn(before: RandomStates, after: RandomStates) -> None:
    if not all(map(torch.equal, before, after)):
        raise CannotMerge("a local rule draws random numbers")


def _chosen(of: torch.Tensor, index: torch.Tensor | None) -> torch.Tensor:
    return of if index is None else of.index_select(0, index)


def first_line(error: BaseException) -> str:
    """Return the type of the error and the first line of its text."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


KEY = "training.tasks_at_once"


class MergedEngine(InProcessEngine):
    """Trains up to ``training.tasks_at_once`` tasks together, when the first of them is due."""

    groups: GroupCounts

    def __init__(self, learned: Learning, note: str | None = None) -> None:
        super().__init__(learned, note)
        self.learned, self.at_once = learned, learned.experiment.training.tasks_at_once or 1
        self.groups = GroupCounts()
        self._steps = MergedSteps(learned.workspace, learned.task.loss)
        self._waiting: dict[DeferredRun, tuple[int, int]] = {}  # -> when it is due, number
        self._started = 0
        of_all = self._reason_against_all()
        self._reasons = [
            of_all or reason_against(learned.rule(index))
            for index in range(len(learned.experiment.strategies))
        ]
        self.note = note or self._told(of_all)

    def start(self, job: Any, due_ns: int) -> None:
        if not isinstance(job, Train):
            return
        self._started += 1
        if self._fits(job) and job.run.outcome is None:
            self._waiting[job.run] = due_ns, self._started

    def finish(self, job: Any) -> Any:
        if not isinstance(job, Train) or not self._trained(job):
            return super().finish(job)
        run: DeferredRun = job.run
        assert run.outcome is not None
        run.step = job.until_step
        run.end(run.outcome)
        return None

    def _trained(self, job: Train) -> bool:
        """Whether ``job.run`` has its outcome: it was trained with others, perhaps just now."""
        run: DeferredRun = job.run
        self._waiting.pop(run, None)
        if not self._fits(job):
            return False
        if run.outcome is not None:
            return True
        others = [other for other in self._waiting if other.index == run.index]
        others = heapq.nsmallest(self.at_once - 1, others, key=self._waiting.__getitem__)
        if not others:
            return False
        for other in others:
            del self._waiting[other]
        group = [run, *others]
        for each, outcome in zip(group, self._together(group)):
            each.outcome = outcome
        return True

    def drop(self, run: DeferredRun) -> None:
        super().drop(run)
        self._waiting.pop(run, None)

    def clear(self) -> None:
        super().clear()
        self._waiting.clear()

    def _fits(self, job: Train) -> bool:
        run: DeferredRun = job.run
        whole = run.step == 0 and job.until_step == run.steps > 0
        free = run.checkpoint is None and not run.merges
        return self._reasons[run.index] is None and whole and free

    def _together(self, group: Sequence[DeferredRun]) -> list[RunOutcome]:
        """Train these tasks, and return their outcomes, which may be failures."""
        stretches = [
            Stretch(run.index, run.edge, run.task, run.kept, (), run.steps) for run in group
        ]
        standing = [self._executor.begin(stretch) for stretch in stretches]
        begun = [each for each in standing if each.run.failure is None]
        reason = self._merged(begun) if begun else None
        if reason is None:
            return [ended(each) for each in standing]
        # the task that has failed tells its own reason, and the others do not fail with it
        outcomes = [self._alone(run, stretch) for run, stretch in zip(group, stretches)]
        failures = sum(outcome.failure is not None for outcome in outcomes)
        of_a_task = failures > len(group) - len(begun)  # more than failed at their begin
        name = self.learned.experiment.strategies[group[0].index].name
        self.groups.failed(
            A_TASK_FAILED if of_a_task else reason,
            f"{KEY} = {self.at_once}: {len(begun)} tasks of {name} could not be trained together"
            f" ({reason}), so they were trained again one by one; more such groups are counted in"
            " summary.json",
        )
        return outcomes

    def _merged(self, begun: Sequence[Standing]) -> str | None:
        """Do all steps of these runs together; return the reason if that fails, otherwise None."""
        runs, rules = [each.run for each in begun], [each.rule for each in begun]
        try:
            self._steps.train(begun[0].trainer, runs, rules)
        except torch.OutOfMemoryError as error:
            raise UserError(
                f"{KEY} = {self.at_once}: {len(begun)} tasks together need more memory than the"
                " GPU has: expected fewer"
            ) from error
        except CannotMerge as reason:
            return str(reason)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            return first_line(error)
        self.groups.together[len(begun)] += 1
        return None

    def _alone(self, run: DeferredRun, stretch: Stretch) -> RunOutcome:
        outcome = self._executor.train(run, stretch)
        assert isinstance(outcome, RunOutcome), "a run without a checkpoint has stopped"
        return outcome

    # ------------------------------------------------------------------ what can be merged
    def _reason_against_all(self) -> str | None:
        training, learned = self.learned.experiment.training, self.learned
        if learned.trains_itself:
            return f"{learned.trains_itself} trains itself"
        keys = {
            'trainer = "none"': training.trainer == "none",
            'optimizer = "adamw"': training.optimizer == "adamw",
            "schedule": training.schedule is not None,
            "micro_batch_size": training.micro_batch_size is not None,
        }
        if any(keys.values()):
            return f"with training.{next(key for key in keys if keys[key])}"
        if learned.workspace.device != CPU:
            learned.place()  # a run before this one has moved the model, but not these samples
        start = learned.workspace.placed(learned.initial_weights())
        return self._steps.reason_against(start, learned.train)

    def _told(self, of_all: str | None) -> str | None:
        """A line that says which tasks are trained one by one; None: none of them."""
        alone = f"{KEY} = {self.at_once}: trained one by one are the tasks of"
        if of_all is not None:
            return f"{alone} all strategies: {of_all}"
        names = [entry.name for entry in self.learned.experiment.strategies]
        told = [f"{name}: {why}" for name, why in zip(names, self._reasons) if why is not None]
        return f"{alone} {'; '.join(told)}" if told else None


def reason_against(rule: LocalRule) -> str | None:
    """Say why tasks with this rule are trained one by one; None: they can be trained together.

    What a rule does before and after the steps, and to the gradients, is done run by run.
    """
    if not rule.moves:
        return "its devices compute single gradients"
    if owns(rule, "extra_loss") or rule.sees != LocalRule.sees:
        return "its local rule adds a term to the loss"
    if owns(rule, "checkpoint") or owns(rule, "asks"):
        return "its devices ask for fresher models"
    if takes_pushes(rule):
        return "its devices take pushed models"
    return None
