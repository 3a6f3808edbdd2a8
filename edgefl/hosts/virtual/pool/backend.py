"""The interface between a worker pool and its backend: orders and reports."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np


@dataclass(frozen=True, slots=True)
class WorkerFailure:
    """The error that an order raised in its worker. ``users``: it was a UserError."""

    text: str
    users: bool


@dataclass(frozen=True, slots=True, eq=False)
class WorkerOrder:
    """Do ``job``. ``stands``: the job's run has stopped at a checkpoint in this worker."""

    number: int
    job: Any
    stands: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class WorkerReport:
    """A worker's report: the ``result`` of order ``number``, or ``ready``, or ``lost``.

    ``ready``: the worker can take orders. ``lost``: why it no longer can. The result of a Train is
    None if the run stopped before its end, otherwise that of ``orders.plain_outcome``. Every order
    is reported once unless its worker is lost; a forgotten order may report any result.
    """

    worker: Any
    number: int = -1
    result: Any = None
    ready: bool = False
    lost: str | None = None


class WorkerBackend(Protocol):
    """Provides workers. A worker is any object that ``wait`` names in its reports."""

    def add_worker(self) -> None:
        """Start one more worker; ``wait`` reports when it is ready."""
        ...

    def send(self, worker: Any, order: WorkerOrder) -> None: ...

    def forget(self, worker: Any, number: int) -> None:
        """Drop an order as soon as possible, or the run that it left at a checkpoint."""
        ...

    def wait(self, timeout_s: float | None) -> list[WorkerReport]:
        """Return all available reports. ``timeout_s`` None: wait until there is one."""
        ...

    def release(self, array: np.ndarray) -> None:
        """Release a vector that no later order uses."""
        ...

    def close(self) -> None:
        """End all workers."""
        ...
