"""Steps of several training runs at once: one call of torch computes the steps of all of them.

The runs' weights are the rows of one matrix. ``torch.func.vmap`` computes the loss of each row on
its own batch. The results are those of single runs but for the order of sums.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.func import functional_call, vmap

from edgefl.edges.local_run import LocalRun
from edgefl.edges.optimizers import SGD
from edgefl.edges.trainer import Trainer, adjust
from edgefl.edges.training_plan import batches
from edgefl.errors import UserError
from edgefl.models.torch_device import RandomStates, drawing_from, seeded
from edgefl.models.workspace import Workspace
from edgefl.strategies.base.local_rule import LocalRule, owns

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
                run.step // batches(run.pass_samples, run.batch_size),
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
