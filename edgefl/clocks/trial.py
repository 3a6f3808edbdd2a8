"""Try model, loss and the user's own strategies before a run, so that a mistake is one line.

The user's code is tried in a fork: nothing that it changes there is in the run.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgefl.catalog import is_own
from edgefl.clocks.processes import answer_of_fork
from edgefl.clocks.setup.learning import Learning
from edgefl.clocks.virtual.run import run_virtual
from edgefl.data.dataset import cross_entropy
from edgefl.errors import Bug, UserError, told, users_place

if TYPE_CHECKING:
    import torch

LONGEST_S = 5.0  # wall-clock seconds for the trial of one strategy
SAMPLES = 2  # of the trial's batch: with one, BatchNorm fails in a training that is right


def try_out(learned: Learning) -> None:
    """Do one forward pass, loss and backward pass on a batch, and of each own strategy the events
    up to its first new model, without training. UserError that says what fails.

    A strategy is not tried with native links or devices.
    """
    if learned.trains_itself:
        return
    experiment = learned.experiment
    if any(map(is_own, (experiment.task or "", experiment.model.name, experiment.data.name))):
        status = _in_fork(partial(_model_fault, learned, in_fork=True))
        if status:
            name = experiment.task or experiment.model.name
            raise UserError(f"{name!r}: its process died on a batch (exit status {status})")
    elif learned.task.network is None or learned.compiled is None:
        _refuse(_model_fault(learned, in_fork=False))
    for index, entry in enumerate(experiment.strategies):
        if is_own(entry.strategy):
            # a process that dies here is no reason: the run says which one dies, and when
            _in_fork(partial(_strategy_fault, learned, index))


def _refuse(fault: str) -> None:
    if fault:
        raise UserError(fault)


def _in_fork(fault: Callable[[], str]) -> int:
    """Call ``fault`` in a fork, and return its exit status; UserError if it returns a text."""

    def work() -> str:
        hidden = os.open(os.devnull, os.O_WRONLY)  # the run prints it, too
        os.dup2(hidden, 1)
        os.dup2(hidden, 2)
        try:
            return fault()
        except UserError as error:
            return str(error)

    text, status = answer_of_fork("trial", work)
    _refuse(text)
    return status


# ---------------------------------------------------------------------- the model
def _model_fault(learned: Learning, in_fork: bool) -> str:
    """Say what is wrong with the model's outputs, its loss or its metric; "": nothing."""
    import torch

    from edgefl.models.torch_device import drawing_from, seeded

    experiment = learned.experiment
    trains = experiment.training.trainer != "none"
    who = f"model {experiment.model.name!r}"
    if experiment.task is not None:
        who = f"task {experiment.task!r}"
    if trains and not learned.layout.parameters:
        return f"{who}: the model has no parameter that is trained"
    if in_fork:
        learned.place()  # CUDA must not begin in a process that forks later
    space, device = learned.workspace, learned.workspace.device
    weights = learned.initial_weights()
    with drawing_from(seeded(0, device), device):
        if trains and len(learned.train[1]):
            rows = _rows(learned, learned.train[1])[: experiment.training.batch_size]
            vector = space.placed(weights).clone()
            space.point(vector, space.fresh_counters())
            fault, loss = _loss(learned, space.model, learned.train, rows)
            if fault:
                return f"{who}: {fault}"
            try:
                torch.autograd.backward(loss)
            except Exception as error:
                return f"{who}: the gradient of the loss fails: {_text(error)}"
            space.leave()  # UserError for state that would pass from task to task
            if torch.isfinite(loss):
                for entry in learned.layout.entries:
                    part = vector[entry.offset : entry.offset + entry.size]
                    if entry.kind == "buffer" and not torch.isfinite(part).all():
                        return (
                            f"{who}: the buffer {entry.name!r} is not finite after a step of"
                            " training, so every update would be discarded: expected finite numbers"
                        )
        if not len(learned.test[1]):
            return ""
        rows = _rows(learned, learned.test[1])
        with space.inference(weights) as model:
            fault = _scores_fault(learned, model, rows)
            return fault and f"{who}: {fault}"


def _rows(learned: Learning, targets: Any) -> torch.Tensor:
    """Two samples; with labels, those of the largest and the smallest one."""
    import torch

    if isinstance(targets, torch.Tensor) and targets.ndim == 1:
        return torch.stack([targets.argmax(), targets.argmin()])
    return torch.arange(min(SAMPLES, len(targets)), device=learned.workspace.device)


def _loss(
    learned: Learning, model: Any, samples: tuple[Any, Any], rows: torch.Tensor
) -> tuple[str, Any]:
    """Return (what is wrong, the loss) of a batch."""
    import torch

    inputs, targets = (part.index_select(0, rows) for part in samples)
    batch = f"on a batch of {len(rows)} {'sample' if len(rows) == 1 else 'samples'}"
    try:
        outputs = model(inputs)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        return f"the model fails {batch} of shape {_shape(inputs[0])}: {_text(error)}", None
    classes, plain = learned.task.dataset.classes, learned.task.loss is cross_entropy
    if plain and isinstance(targets, torch.Tensor) and targets.ndim == 1:
        fits = isinstance(outputs, torch.Tensor) and outputs.ndim == 2
        if not fits or len(outputs) != len(rows) or outputs.shape[1] < classes:
            expected = f"a tensor of shape {(len(rows), classes)}: a number for each class"
            return f"the model returns {_described(outputs)} {batch}, expected {expected}", None
    try:
        loss = learned.task.loss(outputs, targets)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        what = f"of {_described(outputs)} and targets of shape {_shape(targets)}"
        return f"the loss {what} fails: {_text(error)}", None
    if not isinstance(loss, torch.Tensor) or loss.numel() != 1:
        return f"the loss is {_described(loss)}, expected a tensor with one number, the mean", None
    return "", loss


def _scores_fault(learned: Learning, model: Any, rows: torch.Tensor) -> str:
    fault, _ = _loss(learned, model, learned.test, rows)
    if fault:
        return f"in evaluation, {fault}"
    inputs, targets = (part.index_select(0, rows) for part in learned.test)
    try:
        float(learned.task.metric(model(inputs), targets))
        learned.task.terms(targets)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        return f"the metric fails: {_text(error)}"
    return ""


def _described(value: Any) -> str:
    import torch

    if isinstance(value, torch.Tensor):
        return f"a tensor of shape {_shape(value)}"
    if isinstance(value, (tuple, list)):
        return f"a {type(value).__name__} of {len(value)}"
    return "None" if value is None else f"a {type(value).__name__}"


def _shape(value: Any) -> tuple[int, ...]:
    return tuple(value.shape) if hasattr(value, "shape") else (len(value),)


def _text(error: BaseException) -> str:
    lines = told(error).strip().splitlines()
    return f"{lines[0]}{users_place(error)}"


# ---------------------------------------------------------------------- a strategy
class _Enough(Exception):
    """The strategy has made its first model, or this takes too long."""


def without_training(learned: Learning) -> Learning:
    """The same experiment without training, evaluation and a journal: only its times are real."""
    experiment = learned.experiment
    quiet = {
        "training": experiment.training.model_copy(update={"trainer": "none"}),
        "evaluation": experiment.evaluation.model_copy(
            update={"every_versions": 0, "every_s": None, "train_samples": 0, "by_label": False}
            | {"edges": None}
        ),
        "record": experiment.record.model_copy(update={"payloads": False}),
        # no score changes
        "stop": experiment.stop.model_copy(update={"target": None, "no_progress_s": None}),
    }
    return replace(learned, experiment=experiment.model_copy(update=quiet))


def _strategy_fault(learned: Learning, index: int) -> str:
    """Say how the strategy fails before its first model; "": it does not."""
    end_s = time.monotonic() + LONGEST_S

    def watch(now: int, run: Any) -> None:
        if run.coordinator.version or time.monotonic() > end_s:
            raise _Enough

    entry = learned.experiment.strategies[index]
    try:
        with tempfile.TemporaryDirectory() as folder, suppress(_Enough):
            run_virtual(without_training(learned), index, Path(folder), watch)
    except Bug as bug:
        return f"strategy {entry.strategy!r}: {bug.blame()}" if bug.algorithm else ""
    except UserError as error:  # native links have no virtual clock; a full disk is told later
        return str(error) if repr(entry.strategy) in str(error) else ""
    return ""
