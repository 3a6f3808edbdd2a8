"""What virtual.py measures with: engines that count or skip training, and a bare loop."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from edgefl.hosts.setup.learning import Learning
from edgefl.hosts.virtual.pool.deferred_run import RunOutcome
from edgefl.hosts.virtual.pool.engine import InProcessEngine
from edgefl.jobs import Train


@dataclass(frozen=True, slots=True)
class Rate:
    """``updates`` per second, and ``steps`` per second of the processor (0: not counted)."""

    updates: float
    steps: float


class Counted(InProcessEngine):
    """Counts the steps: between two updates of a run, some tasks begin or end beyond their own.

    With FedBuff, 40 updates are the steps of 39; with merging, those of 42.
    """

    def __init__(self, learned: Learning) -> None:
        super().__init__(learned)
        self.steps = 0

    def finish(self, job: Any) -> Any:
        if isinstance(job, Train):
            self.steps += job.until_step - job.run.step
        return super().finish(job)


class Untrained(InProcessEngine):
    """An engine without training: each update is the model that was sent down."""

    def __init__(self, learned: Learning) -> None:
        super().__init__(learned)

    def finish(self, job: Any) -> Any:
        if not isinstance(job, Train):
            return super().finish(job)
        job.run.step = job.until_step
        job.run.outcome = RunOutcome(
            {"weights": job.run.task.vectors["weights"]}, {"samples": 1.0}, {}
        )
        return None


@contextmanager
def timed(owner: type, name: str, spent: dict[str, float]) -> Iterator[None]:
    """Add the time spent in a method to ``spent``."""
    method = getattr(owner, name)

    def measured(*arguments: Any, **keywords: Any) -> Any:
        began = time.perf_counter()
        try:
            return method(*arguments, **keywords)
        finally:
            spent[name] += time.perf_counter() - began

    setattr(owner, name, measured)
    try:
        yield
    finally:
        setattr(owner, name, method)


class BareLoop:
    """A plain torch loop over the devices' batches, with the steps of a run only.

    ``inputs``: all samples, normalised.
    """

    def __init__(self, learned: Learning, inputs: torch.Tensor) -> None:
        self.learned, self.inputs = learned, inputs
        self.model, section = learned.task.model(), learned.experiment.training
        self.optimiser = torch.optim.SGD(self.model.parameters(), lr=section.learning_rate)
        self.rng = np.random.Generator(np.random.PCG64(1))
        self.updates = self.steps = 0
        self.wall_s = self.processor_s = 0.0

    def update(self) -> None:
        """Train one epoch of the next device."""
        began_s, began_processor_s = time.perf_counter(), time.process_time()
        learned, targets = self.learned, self.learned.train[1]
        members = learned.shards[f"e{self.updates % len(learned.shards):03d}"]
        order = torch.from_numpy(self.rng.permutation(members))
        for index in order.split(learned.experiment.training.batch_size):
            self.optimiser.zero_grad()
            loss = learned.task.loss(self.model(self.inputs[index]), targets[index])
            loss.backward()
            self.optimiser.step()
            loss.item()
            self.steps += 1
        self.updates += 1
        self.wall_s += time.perf_counter() - began_s
        self.processor_s += time.process_time() - began_processor_s

    @property
    def rate(self) -> Rate:
        return Rate(self.updates / self.wall_s, self.steps / self.processor_s)
