"""What a worker pool asks of its backend, and what the backend reports."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np


@dataclass(frozen=True, slots=True)
class WorkerFailure:
    """What an order raised in its worker; ``users``: it was a UserError."""

    text: str
    users: bool


@dataclass(frozen=True, slots=True, eq=False)
class WorkerOrder:
    """Train ``run`` to ``until`` (on from where it stands, if ``stands``), or do ``job``."""

    number: int
    job: Any
    stands: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class WorkerReport:
    """``result``: of order ``number``; or ``ready``: the worker can take orders; or ``lost``: why
    it no longer can.

    The result of a Train is None if the run stands before its end, else as
    ``orders.plain_outcome`` gives it. Every order that is not lost with its worker is reported
    once, forgotten ones too (with any result).
    """

    worker: Any
    number: int = -1
    result: Any = None
    ready: bool = False
    lost: str | None = None


class WorkerBackend(Protocol):
    """Workers somewhere. A worker is any object that ``wait`` names in its reports."""

    def add_worker(self) -> None:
        """Start one more; ``wait`` reports when it is ready."""
        ...

    def send(self, worker: Any, order: WorkerOrder) -> None: ...

    def forget(self, worker: Any, number: int) -> None:
        """Drop an order, at the next chance, or the run that it has left standing."""
        ...

    def wait(self, timeout_s: float | None) -> list[WorkerReport]:
        """All reports that are there; None: wait until there is one."""
        ...

    def release(self, array: np.ndarray) -> None:
        """No later order holds this vector."""
        ...

    def close(self) -> None:
        """End all workers."""
        ...
