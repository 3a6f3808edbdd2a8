"""User strategies for tests, whose models are computed by jobs."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from edgefl.errors import UserError
from edgefl.jobs import Result
from edgefl.strategies.base.asynchronous import Asynchronous, AsynchronousOptions
from edgefl.strategies.base.events_and_decisions import (
    Decision,
    JobDone,
    JobFailed,
    Report,
    RunJob,
    UpdateArrived,
)
from edgefl.vectors import aligned_copy
from emulator.units import to_ns


@dataclass(frozen=True, slots=True, eq=False)
class Halve:
    """A job that halves each vector, unless ``mishap`` makes it fail.

    "kill FILE" creates FILE and kills the worker, unless the file exists.
    """

    vectors: dict[str, np.ndarray]
    mishap: str

    def work(self, learned: Any) -> Result:
        sort, _, marker = self.mishap.partition(" ")
        if sort == "refuse":
            raise UserError("nothing to halve here")
        if sort == "break":
            raise ArithmeticError("no half of this")
        if sort == "kill" and not Path(marker).exists():
            Path(marker).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        if sort == "always":
            os.kill(os.getpid(), signal.SIGKILL)
        by = np.float32("nan") if sort == "nan" else np.float32(0.5)
        return {name: aligned_copy(vector) * by for name, vector in self.vectors.items()}, {
            "samples": float(sum(learned.samples.values()))
        }


class HalvingOptions(AsynchronousOptions):
    cost_s: float = 0.3
    mishap: str = ""
    on_update: int = 2  # the update, counted from 0, whose job has the mishap


class Halving(Asynchronous):
    """A job halves each update, which is then the next model."""

    Options = HalvingOptions
    runs_jobs = True

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.updates = 0

    def arrived(self, update: UpdateArrived, now: int) -> list[Decision]:
        mishap = self.options.mishap if self.updates == self.options.on_update else ""
        job = RunJob(
            f"halve {self.updates}",
            Halve({"weights": update.weights}, mishap),
            to_ns(self.options.cost_s),
        )
        self.updates += 1
        return [job, *super().arrived(update, now)]

    def apply(self, update: UpdateArrived, gap: int) -> None:
        return None

    def job_done(self, event: JobDone, now: int) -> list[Decision]:
        return [
            Report({"samples": event.numbers["samples"]}),
            self._publish(event.vectors["weights"]),
        ]

    def job_failed(self, event: JobFailed, now: int) -> list[Decision]:
        return [Report({"failed": 1.0})]


class Forbidden(Halving):
    runs_jobs = False
