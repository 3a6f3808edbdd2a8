"""The section of the experiment file about the training on the edges."""

from __future__ import annotations

import re
from typing import Literal

from pydantic import Field, field_validator, model_validator

from edgefl.config.section import Section


class LearningRateSchedule(Section):
    """How the learning rate changes over the steps of local training.

    Without this table it stays the same. Steps are counted from the start of the task; with
    `optimizer_state = "kept"`, over all tasks of the edge.
    """

    kind: Literal["constant", "linear", "cosine"] = "linear"
    """What follows the warm-up: `"constant"`, or a fall that is `"linear"` or follows a
    `"cosine"`.
    """
    warmup_steps: int = Field(0, ge=0)
    """Number of steps in which the learning rate grows evenly to its full value; step k of n has
    the share k / (n + 1).
    """
    total_steps: int | None = Field(None, ge=1)
    """Step at which the fall ends, counted from the first step of the warm-up; more than
    `warmup_steps`. Default: the steps of the task. Required with `optimizer_state = "kept"`.
    """
    end_share: float = Field(0.0, ge=0, le=1)
    """Learning rate after the fall, as a share of the full one."""

    @model_validator(mode="after")
    def _falls_after_the_warmup(self) -> LearningRateSchedule:
        if self.total_steps is not None and self.total_steps <= self.warmup_steps:
            raise ValueError(
                f"total_steps: expected more than warmup_steps ({self.warmup_steps}), found"
                f" {self.total_steps}"
            )
        return self


class Training(Section):
    """Local training on an edge. A strategy may override epochs and the learning rate for its
    tasks.
    """

    epochs: int = Field(1, ge=1, le=1_000_000)
    """Epochs in one task. An epoch is a pass over the edge's samples, or `batches_per_epoch`."""
    batches_per_epoch: int | None = Field(None, ge=1, le=10_000)
    """Steps of the optimizer in one epoch; none: a pass over the edge's samples. The batches are
    those of shuffled passes. With 1, as some papers print their equations, an epoch is one
    mini-batch. Refresh points count epochs.
    """
    batch_size: int = Field(32, ge=1, le=10_000_000)
    """Samples per step of the optimizer."""
    drop_last: bool = False
    """Leave out the last batch of each pass over the samples if it is smaller than `batch_size`, as
    `drop_last` of torch's `DataLoader` does. Normalisation over a batch (BatchNorm) fails on a last
    batch of one sample. The samples are shuffled before each pass, so that others are left out each
    time. An edge with fewer samples than a batch trains on all of them, in one batch.
    """
    micro_batch_size: int | None = Field(None, ge=1, le=10_000_000)
    """Samples that go through the model at one time; the gradients of a batch's parts are
    accumulated. A smaller value needs less memory, and the gradient stays that of the whole batch
    (but normalisation layers see one part at a time). Default: the whole batch.
    """
    learning_rate: float = Field(0.05, gt=0)
    """Learning rate of local training."""
    schedule: LearningRateSchedule | None = None
    optimizer: Literal["sgd", "adamw"] = "sgd"
    """The optimizer on the edges: `"sgd"`, or `"adamw"`, which is usual for transformers.
    Strategies that compute gradients from an edge's change of weights need `"sgd"`.
    """
    momentum: float = Field(0.0, ge=0, lt=1)
    """Momentum of SGD. The momentum buffer starts at 0 in each task, or see `optimizer_state`."""
    beta1: float = Field(0.9, ge=0, lt=1)
    """Decay of AdamW's first moment."""
    beta2: float = Field(0.999, ge=0, lt=1)
    """Decay of AdamW's second moment."""
    epsilon: float = Field(1e-8, gt=0)
    """Added to the root of AdamW's second moment, to avoid a division by 0."""
    weight_decay: float = Field(0.0, ge=0)
    """Weight decay. SGD adds it to the gradient (L2 penalty); AdamW shrinks the weights by it times
    the learning rate.
    """
    optimizer_state: Literal["fresh", "kept"] = "fresh"
    """State of the optimizer (momentum, moments, number of steps) when a task begins. `"fresh"`: it
    starts anew. `"kept"`: it stays on the edge from the last task whose update was acknowledged.
    """
    trainer: Literal["sgd", "none"] = "sgd"
    """`"sgd"`: edges train, with the optimizer above. `"none"`: tasks take their emulated time but
    return the received model unchanged. Use `"none"` for studies of timing and scheduling only.
    """

    engine: Literal["auto", "compiled", "torch"] = "auto"
    """What computes training and evaluation on a CPU. `"compiled"`: machine code made for the
    model, several times as fast for small networks: any `nn.Sequential` of convolutions, max
    pooling, ReLU and linear layers, with cross-entropy. `"torch"`: eager torch. `"auto"`: the
    compiled step where it fits, otherwise torch; `summary.json` says which. The two differ in the
    last bits of each sum.
    """
    device: str | None = Field(None, examples=["cuda", "cuda:1", "auto"])
    """Where models are trained and evaluated and jobs run: `"cpu"`, the default; `"cuda"`, the
    first GPU; `"cuda:N"`, GPU N, counted from 0; or `"auto"`, the first GPU of each machine that
    has one, otherwise its CPU. Each machine of a run may have another one.
    """
    tasks_at_once: int | None = Field(None, ge=1, le=10_000, examples=[10])
    """Virtual clock, with one worker: up to so many tasks that are under way at the same time are
    trained together, in one call of torch for a step of all of them. It is meant for GPUs.
    Strategies whose devices do plain SGD allow it; the others train one by one, and the run says
    why. Default: 1.
    """

    @field_validator("device")
    @classmethod
    def _device_exists(cls, device: str | None) -> str | None:
        if device is not None and not re.fullmatch(r"cpu|auto|cuda(:(0|[1-9]\d?))?", device):
            raise ValueError(f'expected "cpu", "cuda", "cuda:N" or "auto", found {device!r}')
        return device

    @model_validator(mode="after")
    def _keys_of_the_optimizer(self) -> Training:
        strange = ("momentum",) if self.optimizer == "adamw" else ("beta1", "beta2", "epsilon")
        of = "sgd" if self.optimizer == "adamw" else "adamw"
        for key in strange:
            if getattr(self, key) != type(self).model_fields[key].default:
                raise ValueError(f'{key}: expected only with optimizer = "{of}"')
        schedule = self.schedule
        if (
            schedule is not None
            and schedule.kind != "constant"
            and schedule.total_steps is None
            and self.optimizer_state == "kept"
        ):
            raise ValueError(
                'schedule.total_steps: missing; optimizer_state = "kept" counts the steps of all'
                " tasks of an edge"
            )
        return self
